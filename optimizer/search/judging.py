"""Which parts of a better plan are made now, which are remembered as wishes, and which are forgotten.

A search looks at the plan as a whole; here its result is taken to pieces (`model.parts`), and each is judged by itself
(`policy.hysteresis`). So a part that is held back holds nothing else back:

- Wishes of earlier optimizations are priced again, and compete with what was found now: of parts that touch the same
  place the one that gains most stands.
- Of a part that must still wait, the queries that were just created move at once, where that pays by itself. Nobody
  else moves with them, so no state of others is rebuilt.
- Of a part that waits for restless queries only, the others move without them, where that pays by itself.

Cost: a part is priced by the groups that it touches, so all of them together take about as long as pricing the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from optimizer.cost.model import CostModel, Shared
from optimizer.model.parts import Part, fitted
from optimizer.model.pins import Pins
from optimizer.model.plan import Leaf, Node, Placement, Plan, SourceNode, walk
from optimizer.policy.hysteresis import Hysteresis, HysteresisConfig, Wish, Worth, worth
from optimizer.search.assemble import trees_of
from optimizer.search.clusters import Cluster, Singles, cluster
from optimizer.search.refine import Alone


@dataclass(frozen=True, slots=True)
class Offer:
    """A part with its price: `gain` per second, of queries that cost `basis` a second; `price`: what rebuilding their
    state costs once."""

    part: Part
    gain: float
    basis: float
    price: float


class Pricer:
    """Prices parts of one plan with the statistics of one moment."""

    def __init__(
        self, model: CostModel, plan: Plan, singles: Singles, before: Mapping[int, Cluster], alone: Alone
    ) -> None:
        self._model, self._plan, self._singles, self._before, self._alone = model, plan, singles, before, alone
        self._nodes: set[Node] | None = None

    def __call__(self, part: Part) -> Offer:
        cost = after = price = 0.0
        moves = {m.uid: m for m in part.moves}
        for group in sorted(part.groups):
            stay = [p for p in self._plan.groups.get(group, ()) if p.uid not in moves]
            come = [Placement(m.uid, group, 0, m.root) for m in part.moves if m.group == group]
            cost += self._before[group].cost if group in self._before else 0.0
            if stay or come:
                made = cluster(self._model, trees_of(self._model.shapes, [*stay, *come], self._singles))
                after += made.cost
                price += self._rebuild(made, group, come)
        basis = min(cost, sum(self._alone.at_least(uid) for uid in moves))
        return Offer(part, cost - after, basis, price)

    def _rebuild(self, c: Cluster, group: int, come: Sequence[Placement]) -> float:
        """The work of filling new joins for the windows still open: their cost per second times the longest window."""
        if self._nodes is None:
            self._nodes = {n for p in self._plan.placements for n in walk(p.root)}
        old, price = self._nodes, 0.0
        if {p.root for p in come} <= old:
            return 0.0
        shapes, shared = self._model.shapes, Shared(self._model, c.trees)
        for number, use in shared.joins.items():
            if shapes.plan_node(number, group) in old:
                continue
            join = shapes.joins[number]
            work = shared.intersection(number) + sum(shared.exchange(e) for e in join.exchanges)
            for index in join.indexes:
                if SourceNode(shapes.leaf_of(shapes.indexes[index].leaf), group) not in old:
                    work += shared.index(index)
            price += work * use.seconds
        return price


@dataclass(frozen=True, slots=True)
class Judged:
    """`accepted`: parts to make now. `better`: parts that would be better, those included. `moved`: which queries the
    judgement moves; `hysteresis`: what to remember."""

    accepted: tuple[Part, ...]
    better: tuple[Part, ...]
    hysteresis: Hysteresis
    reasons: tuple[str, ...]


def take_all(price: Pricer, found: Sequence[Part], at: Hysteresis, plan: Plan, pins: Pins) -> Judged:
    """Whatever is better, because a person asked for it."""
    known = (fitted(w.part, plan) for w in at.wishes)
    offers = [price(p) for p in (*found, *(p for p in known if p is not None and pins.allow(p)))]
    parts = tuple(o.part for o in _strongest(offers) if o.gain > 0)
    reasons = ("forced",) if parts else ("the running plan is the best one found",)
    return Judged(parts, parts, Hysteresis((), at.restless), reasons)


def judge(
    config: HysteresisConfig,
    at: Hysteresis,
    price: Pricer,
    found: Sequence[Part],
    plan: Plan,
    newcomers: Collection[str],
    horizon_s: float,
    pins: Pins,
) -> Judged:
    """`found`: what the search would change; `newcomers`: queries that were created since the last optimization."""

    def weigh(offer: Offer) -> Worth:
        return worth(config, gain=offer.gain, basis=offer.basis, price=offer.price, horizon_s=horizon_s)

    known = [(o, w.wanted) for w in at.wishes if (p := fitted(w.part, plan)) and pins.allow(p) for o in [price(p)]]
    told = [(o, wanted, weigh(o)) for o, wanted in known]
    still = Hysteresis(tuple(Wish(o.part, n if w.pays else 0) for o, n, w in told if w.seen), at.restless)
    offers = _strongest([*map(price, found), *(o for o, _, w in told if w.seen)])
    judging = _Judging(config, still, price, weigh, frozenset(newcomers))
    for offer in offers:
        judging.take(offer)
    moved = {uid for p in judging.accepted for uid in p.uids}.difference(newcomers)
    after = at.after(config, judging.wishes, moved, plan.by_uid)
    reasons = tuple(judging.reasons) or ("the running plan is the best one found",)
    return Judged(tuple(judging.accepted), tuple(judging.better), after, reasons)


class _Judging:
    """One optimization's judgement while it is made."""

    def __init__(
        self,
        config: HysteresisConfig,
        at: Hysteresis,
        price: Pricer,
        weigh: Callable[[Offer], Worth],
        newcomers: frozenset[str],
    ) -> None:
        self._config, self._at, self._price, self._weigh, self._newcomers = config, at, price, weigh, newcomers
        self.accepted: list[Part] = []
        self.better: list[Part] = []
        self.wishes: list[Wish] = []
        self.reasons: list[str] = []

    def take(self, offer: Offer) -> None:
        part, whole = offer.part, self._weigh(offer)
        others = part.uids - self._newcomers
        needed = self._at.needed(self._config, others) if others else 1
        wanted = self._at.wanted(part) + 1 if whole.pays else 0
        if whole.seen:
            self.better.append(part)
        if whole.pays and wanted >= needed:
            self.accepted.append(part)
            self.reasons.append(whole.reason)
        elif self._without_waiting(part, others, wanted, wish=whole.seen):
            return
        else:
            if whole.seen:
                self.wishes.append(Wish(part, wanted))
            self.reasons.append(f"wanted {wanted} of {needed} times in a row" if whole.pays else whole.reason)

    def _without_waiting(self, part: Part, others: frozenset[str], wanted: int, *, wish: bool) -> bool:
        """Make what need not wait: the moves of newcomers, or else of those that are not restless."""
        restless = frozenset(self._at.doublings())
        for uids, needed, who in (
            (part.uids & self._newcomers, 0, "created"),
            (others - restless, self._at.needed(self._config, ()), "calm"),
        ):
            if not uids or uids == part.uids or wanted < needed:
                continue
            offer = self._price(part.only(uids))
            said = self._weigh(offer)
            if not said.pays:
                continue
            self.accepted.append(offer.part)
            if not wish:
                self.better.append(offer.part)
            rest = part.rest_of(offer.part)
            if wish:
                self.wishes.append(Wish(rest, wanted))
            self.reasons.append(f"{len(uids)} {who} queries do not wait for {len(rest.moves)} others: {said.reason}")
            return True
        return False


def _strongest(offers: Iterable[Offer]) -> Iterator[Offer]:
    """Those that gain most; of parts that touch the same place one."""
    touched: set[tuple[int, Leaf]] = set()
    for offer in sorted(offers, key=lambda o: (-o.gain, o.part.moves[0].uid)):
        places = offer.part.places
        if touched.isdisjoint(places):
            touched |= places
            yield offer
