"""Local search over query groups: single queries leave, move, or start a group of their own while the plan gets
cheaper.

Grouping is greedy and never takes a query back. Here every query is asked, in turn, whether the plan would be cheaper
with it somewhere else, with orders adapted to the move; the best place is taken. It ends when no query moves.

Every step lowers the cost, so it ends; `rounds` bounds the work. A step costs one ordering per candidate group, so
it is meant for small plans and for the few groups that an incremental step touches.

`never_above_unshared` is the last step of every full optimization, and of an incremental one for the small groups that
it touched: a group that costs more than its queries one by one is dissolved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from optimizer.cost.cardinality import SCALAR
from optimizer.cost.model import CostModel
from optimizer.cost.shapes import Shape
from optimizer.search.clusters import Cluster, Singles, members_of, ordered
from optimizer.search.dynamic import TOLERANCE


class Alone:
    """The cost of every query by itself in its best order, computed when asked for."""

    def __init__(self, model: CostModel, singles: Singles) -> None:
        self._model = model
        self._singles = singles
        self._known: dict[str, Cluster] = {}

    def __call__(self, uid: str) -> Cluster:
        by_itself = self._known.get(uid)
        if by_itself is None:
            by_itself = self._known[uid] = ordered(self._model, [self._singles[uid]])
        return by_itself

    def at_least(self, uid: str) -> float:
        """What no order can save: an index per leaf, a fixed cost per join, what is made. Much faster to get."""
        if uid in self._known:
            return self._known[uid].cost
        model, single = self._model, self._singles[uid]
        card = model.cardinalities
        pairs = zip(single.shape.leaves, single.bits, strict=True)
        fractions = [(leaf, card.fraction(leaf, bits)) for leaf, bits in pairs]
        joins = len(fractions) - 1
        cost = model.closing(single)
        if joins:
            cost += sum(model.index(leaf, f) for leaf, f in fractions) + joins * model.weights.fixed
        results = math.prod(card.rate(leaf) * f for leaf, f in fractions) * card.selectivity(
            frozenset(single.shape.edges)
        )
        return float(cost + model.made_of(single.shape.fold, fractions, results * single.seconds**joins, SCALAR))


def refine(
    model: CostModel,
    singles: Singles,
    clusters: Sequence[Cluster],
    alone: Alone,
    movers: Iterable[str] | None = None,
    rounds: int = 4,
) -> list[Cluster]:
    """Moves single queries (all, or only `movers`) while that makes the plan cheaper."""
    asked = sorted(movers) if movers is not None else sorted(u for c in clusters for u in c.uids)
    current = list(clusters)
    known: dict[tuple[str, ...], Cluster] = {c.uids: c for c in clusters}

    def with_members(uids: Iterable[str], roots: Mapping[Shape, int]) -> Cluster:
        key = tuple(sorted(uids))
        group = known.get(key)
        if group is None:
            group = known[key] = ordered(model, members_of(singles, key), roots)
        return group

    for _ in range(rounds):
        moved = False
        for uid in asked:
            home = next(i for i, c in enumerate(current) if uid in c.uids)
            here = current[home]
            rest = [u for u in here.uids if u != uid]
            left = with_members(rest, here.roots) if rest else None
            saved = here.cost - (left.cost if left else 0.0)
            options: list[tuple[float, int, Cluster]] = []
            if left:
                options.append((alone(uid).cost, -1, alone(uid)))
            leaves = set(singles[uid].shape.leaves)
            for i, c in enumerate(current):
                if i != home and not leaves.isdisjoint(c.leaf_bits):
                    both = with_members((*c.uids, uid), c.roots)
                    options.append((both.cost - c.cost, i, both))
            if not options:
                continue
            added, target, place = min(options, key=lambda o: (o[0], o[1]))
            if added < saved - TOLERANCE * here.cost:
                moved = True
                after = [c for i, c in enumerate(current) if i not in (home, target)]
                current = sorted([*after, place, *([left] if left else [])], key=lambda c: c.uids)
        if not moved:
            break
    return current


def never_above_unshared(clusters: Sequence[Cluster], alone: Alone) -> list[Cluster]:
    """Dissolves clusters that cost more than their queries one by one."""
    result = []
    for c in clusters:
        if len(c.uids) == 1 or c.cost <= sum(alone.at_least(u) for u in c.uids):
            result.append(c)
        elif c.cost > sum(alone(u).cost for u in c.uids):
            result += [alone(u) for u in c.uids]
        else:
            result.append(c)
    return sorted(result, key=lambda c: c.uids)
