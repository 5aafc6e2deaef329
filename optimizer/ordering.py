"""Join ordering for all queries of a group at once: Figure 7b of the paper, then a polish per shape.

**Iterative dynamic programming** (`iterate`). Every query starts as a list of terms, its leaves. In each iteration

1. all joins of two connected terms are candidates; equal candidates of different queries are one candidate, shared by
   them. Its *shared cost* SCOST is its cost over the tuples all of them want, divided by the number of those queries
   (MaxShared); for comparison the cost for one query alone is MinShared;
2. candidates are taken by rising SCOST and substituted in all their queries (T1, T2, ...). A candidate of which a query
   was already served in this iteration can no longer be shared as priced; its other queries wait for the next iteration,
   where it is priced again without the lost one. (In the figure: Q3.W⋈C loses Q2 in the first iteration and is priced
   alone in the second.)

What lies in different groups is never compared: the function sees one group. The paper keeps groups per join (V⋈W.G1);
here a query lives in one group with all its joins, so a V⋈W and a W⋈C of one query are never in different
groups, and MinShared is not an option *within* a group: equal joins of a group are one join. Executing something separately
means leaving the group, which `grouping` decides by cost.

**Polish** (`polish`). The iteration is greedy, so each shape is then reordered by exact dynamic programming over its leaf sets,
pricing what the rest of the group already has at nothing (`best_tree`). A new tree is kept only if the cost of the
whole group falls. For a group of one shape this alone gives the optimum.

Bushy trees, composite keys and cycles need no special case: a candidate is any two terms with at least one predicate between
them, and its key is all predicates between them. An exchange is part of a candidate's price, so orders that keep the
partitioning attribute win when the rest is equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from optimizer.cost import CostModel, Member, Shared, Tree
from optimizer.shapes import Join, columns

TOLERANCE = 1e-9
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Choice:
    """One line of Figure 7b: in this iteration these queries took this join at this shared cost."""

    iteration: int
    join: str
    uids: tuple[str, ...]
    max_shared: float
    min_shared: tuple[float, ...]


def order(model: CostModel, members: Sequence[Member], before: Sequence[int] = ()) -> tuple[list[Tree], float]:
    """The best trees found for the members of one group, and their cost. `before`: trees to improve on, if any."""
    members = sorted(members, key=lambda m: m.shape.text) if not before else list(members)
    if len(members) == 1:
        starts = [[(members[0], best_tree(model, members[0]))]]
    else:
        starts = [list(zip(members, iterate(model, members), strict=True))]
        starts.append([(m, best_tree(model, m)) for m in members])
    if before:
        starts.append(list(zip(members, before, strict=True)))
    priced = [(model.cost(trees), i, trees) for i, trees in enumerate(starts)]
    if len(members) == 1:
        cost, _, trees = min(priced, key=lambda p: p[:2])
        return trees, cost
    polished = [(*polish(model, trees, cost), i) for cost, i, trees in priced[:2]]
    polished += [(trees, cost, i) for cost, i, trees in priced[2:]]
    trees, cost, _ = min(polished, key=lambda p: (p[1], p[2]))
    return trees, cost


def iterate(model: CostModel, members: Sequence[Member], trace: list[Choice] | None = None) -> list[int]:
    """The roots of the members' trees, in their order."""
    shapes = model.shapes
    group = Shared(model, ())
    for m in members:
        for leaf, bits in zip(m.shape.leaves, m.bits, strict=True):
            group.leaf_bits[leaf] = group.leaf_bits.get(leaf, 0) | bits
    group.fractions = {n: model.cardinalities.fraction(n, b) for n, b in group.leaf_bits.items()}
    own = [dict(zip(m.shape.leaves, m.bits, strict=True)) for m in members]
    terms = [list(m.shape.leaves) for m in members]
    iteration = 0
    while any(len(t) > 1 for t in terms):
        iteration += 1
        users: dict[int, list[int]] = {}
        for i, member in enumerate(members):
            for a, b in combinations(terms[i], 2):
                candidate = shapes.join(member.shape, a, b)
                if candidate >= 0:
                    users.setdefault(candidate, []).append(i)
        priced = []
        for candidate, who in users.items():
            queries = sum(len(members[i].uids) for i in who)
            cost = _price(model, group, candidate, [(own[i], members[i]) for i in who])
            priced.append((cost / queries, shapes.joins[candidate].text, candidate))
        priced.sort()
        served: set[int] = set()
        for shared_cost, text, candidate in priced:
            who = users[candidate]
            if served.isdisjoint(who):
                join = shapes.joins[candidate]
                for i in who:
                    terms[i] = [*(t for t in terms[i] if t not in (join.left, join.right)), candidate]
                if trace is not None:
                    alone = [_price(model, group, candidate, [(own[i], members[i])]) for i in who]
                    each = tuple(a for a, i in zip(alone, who, strict=True) for _ in members[i].uids)
                    uids = tuple(u for i in who for u in members[i].uids)
                    trace.append(Choice(iteration, text, uids, shared_cost, each))
            served.update(who)
    return [t[0] for t in terms]


def _price(
    model: CostModel, group: Shared, candidate: int, users: Sequence[tuple[dict[int, int], Member]]
) -> float:
    """COST of one join for these users: indexes, exchanges, intersection.

    Materialization is left out: a query expands the same combinations whatever its order.
    """
    join = model.shapes.joins[candidate]
    bits = [0] * len(join.leaves)
    seconds = 0.0
    for own, member in users:
        bits = [b | own[leaf] for b, leaf in zip(bits, join.leaves, strict=True)]
        seconds = max(seconds, member.seconds)
    of_leaf = dict(zip(join.leaves, bits, strict=True))
    fractions = {leaf: model.cardinalities.fraction(leaf, b) for leaf, b in of_leaf.items()}
    cost = sum(group.index(i) for i in join.indexes)
    for exchange in join.exchanges:
        below = [fractions[leaf] for leaf in model.shapes.joins[exchange[0]].leaves]
        cost += model.exchange(exchange, below, seconds)
    keys = min(_keys(model, group, join, left, fractions, seconds) for left in (True, False))
    cost += model.weights.intersection * keys + model.weights.fixed
    return float(cost)


def _keys(
    model: CostModel, group: Shared, join: Join, left: bool, fractions: dict[int, float], seconds: float
) -> float:
    side, key = (join.left, join.left_key) if left else (join.right, join.right_key)
    below = model.shapes.joins.get(side)
    if below is None:
        return float(model.cardinalities.keys(side, columns(key), group.fractions[side]))
    if join.exchange_left if left else join.exchange_right:
        own = [fractions[leaf] for leaf in below.leaves]
        return float(model.exchanged_keys(side, key, own, seconds))
    return min(_keys(model, group, below, at_left, fractions, seconds) for at_left in (True, False))


def polish(model: CostModel, trees: Sequence[Tree], cost: float) -> tuple[list[Tree], float]:
    """Reorders one member after another against the rest of the group, while the group gets cheaper."""
    current = list(trees)
    for _ in range(ROUNDS):
        improved = False
        group = Shared(model, current)
        for i, (member, root) in enumerate(current):
            if len(member.shape.leaves) == 2:
                continue
            better = best_tree(model, member, group, root)
            if better == root:
                continue
            candidate = [*current[:i], (member, better), *current[i + 1 :]]
            shared = Shared(model, candidate)
            price = shared.cost()
            if price < cost * (1 - TOLERANCE):
                current, cost, group, improved = candidate, price, shared, True
        if not improved:
            break
    return current, cost


def best_tree(model: CostModel, member: Member, group: Shared | None = None, own_root: int = -1) -> int:
    """The cheapest tree of one shape by dynamic programming over leaf sets, next to the rest of `group`.

    Joins, indexes and exchanges that others in the group have are free; `own_root` is the member's tree within `group`,
    whose parts are not others'. Per leaf set the best tree of every partitioning is kept, because a dearer tree with the
    right partitioning can save an exchange above it.
    """
    shapes, shape = model.shapes, member.shape
    prices = _Prices(model, member, group, own_root)
    n = len(shape.leaves)
    best: dict[int, dict[object, tuple[float, str, int]]] = {
        1 << i: {leaf: (0.0, "", leaf)} for i, leaf in enumerate(shape.leaves)
    }
    for mask in sorted(range(1, 1 << n), key=lambda m: (m.bit_count(), m)):
        if mask.bit_count() < 2:
            continue
        found: dict[object, tuple[float, str, int]] = {}
        low = mask & -mask
        part = (mask - 1) & mask
        while part:
            if part & low and part in best and mask ^ part in best:
                for cost_a, _, a in best[part].values():
                    for cost_b, _, b in best[mask ^ part].values():
                        joined = shapes.join(shape, a, b)
                        if joined < 0:
                            continue
                        join = shapes.joins[joined]
                        entry = (cost_a + cost_b + prices.join(join), join.text, joined)
                        known = found.get(join.partition)
                        if known is None or _less(entry, known):
                            found[join.partition] = entry
            part = (part - 1) & mask
        if found:
            best[mask] = found
    result: tuple[float, str, int] | None = None
    for entry in best[(1 << n) - 1].values():
        if result is None or _less(entry, result):
            result = entry
    assert result is not None
    return result[2]


def _less(a: tuple[float, str, int], b: tuple[float, str, int]) -> bool:
    """Cheaper, or equally cheap and first in the alphabet."""
    if abs(a[0] - b[0]) <= TOLERANCE * max(a[0], b[0]):
        return a[1] < b[1]
    return a[0] < b[0]


class _Prices:
    """What each join would add to the group if this member used it."""

    def __init__(self, model: CostModel, member: Member, group: Shared | None, own_root: int) -> None:
        self.model = model
        self.member = member
        self.group = group
        own = model.shapes.joins[own_root].subtree if own_root >= 0 else ()
        self._own_joins = set(own)
        self._own_indexes = {i for n in own for i in model.shapes.joins[n].indexes}
        self._own_exchanges = {e for n in own for e in model.shapes.joins[n].exchanges}
        card = model.cardinalities
        pairs = list(zip(member.shape.leaves, member.bits, strict=True))
        self.fractions = {leaf: card.fraction(leaf, bits) for leaf, bits in pairs}
        self.group_fractions = self.fractions
        if group is not None:
            self.group_fractions = {
                leaf: card.fraction(leaf, bits | group.leaf_bits.get(leaf, 0)) for leaf, bits in pairs
            }
        self._keys: dict[int, float] = {}
        self._priced: dict[int, float] = {}

    def join(self, join: Join) -> float:
        found = self._priced.get(join.id)
        if found is None:
            found = self._priced[join.id] = self._join(join)
        return found

    def _join(self, join: Join) -> float:
        model, g = self.model, self.group
        cost = 0.0
        for index in join.indexes:
            if g is None or g.indexes.get(index, 0) <= (index in self._own_indexes):
                cost += model.index(index[0], self.group_fractions[index[0]])
        for exchange in join.exchanges:
            if g is None or g.exchanges.get(exchange, 0) <= (exchange in self._own_exchanges):
                cost += model.exchange(exchange, self._below(exchange[0]), self.member.seconds)
        users = g.joins.get(join.id) if g is not None else None
        if users is None or users.members <= (join.id in self._own_joins):
            cost += model.weights.intersection * self._survivors(join) + model.weights.fixed
        return cost

    def _below(self, join: int) -> list[float]:
        return [self.fractions[leaf] for leaf in self.model.shapes.joins[join].leaves]

    def _survivors(self, join: Join) -> float:
        found = self._keys.get(join.id)
        if found is None:
            found = self._keys[join.id] = min(
                self._side(join.left, join.left_key, join.exchange_left),
                self._side(join.right, join.right_key, join.exchange_right),
            )
        return found

    def _side(self, side: int, key: tuple[tuple[object, object], ...], exchanged: bool) -> float:
        model = self.model
        below = model.shapes.joins.get(side)
        if below is None:
            return float(model.cardinalities.keys(side, columns(key), self.group_fractions[side]))  # type: ignore[arg-type]
        if exchanged:
            return float(model.exchanged_keys(side, key, self._below(side), self.member.seconds))  # type: ignore[arg-type]
        return self._survivors(below)
