"""The cheapest tree of one shape, by dynamic programming over connected leaf sets, next to the rest of its group.

What others in the group already have (joins, indexes, exchanges) is free, so the result is the order that adds least to
theirs; without a group it is the best order of the queries alone. Per leaf set the best tree of *every partitioning*
is kept, because a dearer tree with the right partitioning can save an exchange above it; where stages have a price,
the best one of every partitioning and number of stages, because they are counted at the end.

A shape of n leaves has at most 2^n leaf sets and 3^n splits (n <= 8); chains, the usual case, have n^2 and n^3. The
splits are found once per shape. Equal prices are decided by the tree's text, so the result does not depend on what
ran before.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from optimizer.cost.cardinality import SCALAR
from optimizer.cost.model import CostModel, Member, Shared
from optimizer.cost.shapes import Join, Shape, Shapes, Side

TOLERANCE = 1e-9

_Entry = tuple[float, int]


def best_tree(model: CostModel, member: Member, group: Shared | None = None, own_root: int = -1) -> int:
    """`own_root`: the member's tree within `group`, whose parts do not count as others'; -1 when it is not in there."""
    shapes, shape = model.shapes, member.shape
    if len(shape.leaves) == 1:
        return shape.leaves[0]
    if len(shape.leaves) == 2:
        return shapes.join(shape, *shape.leaves)
    prices = _Prices(model, member, group, own_root)
    joins, number_of, price_of = shapes.joins, shapes.join, prices.join
    best: dict[int, list[_Entry]] = {1 << i: [(0.0, leaf)] for i, leaf in enumerate(shape.leaves)}
    full = (1 << len(shape.leaves)) - 1
    for mask, splits in _splits(shape):
        kept_trees: dict[object, _Entry] = {}
        for part, rest in splits:
            for cost_a, a in best[part]:
                for cost_b, b in best[rest]:
                    join = joins[number_of(shape, a, b)]
                    cost = cost_a + cost_b + price_of(join)
                    kept: object = None
                    if mask == full:
                        cost += model.depth(join.stages)
                    else:
                        kept = (join.partition, join.stages) if model.stage else join.partition
                    known = kept_trees.get(kept)
                    if known is None or _better(cost, join, known[0], joins[known[1]]):
                        kept_trees[kept] = (cost, join.id)
        best[mask] = list(kept_trees.values())
    return best[full][0][1]


def unavoidable_stages(shapes: Shapes, wanted: Iterable[Shape]) -> int:
    """Join stages that a plan of these shapes has in any order."""
    return max((_least_stages(shapes, shape) for shape in set(wanted)), default=1)


def _least_stages(shapes: Shapes, shape: Shape) -> int:
    if len(shape.leaves) <= 2:
        return len(shape.leaves) - 1
    known = shapes.least_stages.get(shape.id)
    if known is None:
        joins, full = shapes.joins, (1 << len(shape.leaves)) - 1
        best: dict[int, list[int]] = {1 << i: [leaf] for i, leaf in enumerate(shape.leaves)}
        for mask, splits in _splits(shape):
            least: dict[object, int] = {}
            for part, rest in splits:
                for a in best[part]:
                    for b in best[rest]:
                        join = joins[shapes.join(shape, a, b)]
                        at = None if mask == full else join.partition
                        if at not in least or join.stages < joins[least[at]].stages:
                            least[at] = join.id
            best[mask] = list(least.values())
        known = shapes.least_stages[shape.id] = joins[best[full][0]].stages
    return known


def saving(model: CostModel, member: Member, group: Shared, own_root: int, root: int) -> float:
    """By which part the member's own share of the group's cost falls when it changes from `own_root` to `root`.

    An estimate: joins that others have count as free, although another user makes them a little dearer.
    """
    prices = _Prices(model, member, group, own_root)
    joins = model.shapes.joins
    before, after = (
        sum(prices.join(joins[n]) for n in model.shapes.subtree(r)) + model.depth(model.shapes.stages(r))
        for r in (own_root, root)
    )
    return 1 - after / before if before > 0 else 0.0


def _better(cost: float, join: Join, known_cost: float, known: Join) -> bool:
    """Cheaper, or equally cheap and first in the alphabet."""
    if abs(cost - known_cost) <= TOLERANCE * max(cost, known_cost):
        return join.text < known.text
    return cost < known_cost


@lru_cache(maxsize=16384)
def _splits(shape: Shape) -> tuple[tuple[int, tuple[tuple[int, int], ...]], ...]:
    """Every connected leaf set of two or more, small ones first, with its splits into two connected sets."""
    place = {leaf: i for i, leaf in enumerate(shape.leaves)}
    neighbours = [0] * len(shape.leaves)
    for x, y in shape.ends:
        neighbours[place[x]] |= 1 << place[y]
        neighbours[place[y]] |= 1 << place[x]

    def connected(mask: int) -> bool:
        seen = todo = mask & -mask
        while todo:
            reached = neighbours[(todo & -todo).bit_length() - 1] & mask & ~seen
            seen |= reached
            todo = (todo & (todo - 1)) | reached
        return seen == mask

    sets = [m for m in range(1, 1 << len(shape.leaves)) if connected(m)]
    known = set(sets)
    result = []
    for mask in sorted(sets, key=lambda m: (m.bit_count(), m)):
        if mask.bit_count() > 1:
            low = mask & -mask
            parts = [p for p in sets if p & low and p & mask == p and p != mask and mask ^ p in known]
            result.append((mask, tuple((p, mask ^ p) for p in parts)))
    return tuple(result)


class _Prices:
    """What each join would add to the group if this member used it."""

    def __init__(self, model: CostModel, member: Member, group: Shared | None, own_root: int) -> None:
        self.model = model
        self.member = member
        self.group = group
        own = [model.shapes.joins[n] for n in model.shapes.subtree(own_root)]
        self._own_joins = {j.id for j in own}
        self._own_indexes = {i for j in own for i in j.indexes}
        self._own_exchanges = {e for j in own for e in j.exchanges}
        card = model.cardinalities
        pairs = list(zip(member.shape.leaves, member.bits, strict=True))
        self.fractions = {leaf: card.fraction(leaf, bits) for leaf, bits in pairs}
        self.group_fractions = self.fractions
        if group is not None:
            theirs = group.leaf_bits
            self.group_fractions = {leaf: card.fraction(leaf, b | theirs.get(leaf, 0)) for leaf, b in pairs}
        self._keys: dict[int, float] = {}
        self._priced: dict[int, float] = {}

    def join(self, join: Join) -> float:
        price = self._priced.get(join.id)
        if price is None:
            price = self._priced[join.id] = self._join(join)
        return price

    def _join(self, join: Join) -> float:
        model, g = self.model, self.group
        cost = 0.0
        for index in join.indexes:
            if g is None or g.indexes.get(index, 0) <= (index in self._own_indexes):
                leaf = model.shapes.indexes[index].leaf
                cost += model.index(leaf, self.group_fractions[leaf])
        for exchange in join.exchanges:
            if g is None or g.exchanges.get(exchange, 0) <= (exchange in self._own_exchanges):
                below = self._below(model.shapes.exchanges[exchange].join)
                cost += model.exchange(exchange, below, self.member.seconds)
        users = g.joins.get(join.id) if g is not None else None
        if users is None or users.members <= (join.id in self._own_joins):
            cost += model.weights.intersection * self._survivors(join) + model.weights.fixed
        return cost

    def _below(self, join: int) -> list[float]:
        return [self.fractions[leaf] for leaf in self.model.shapes.joins[join].leaves]

    def _survivors(self, join: Join) -> float:
        keys = self._keys.get(join.id)
        if keys is None:
            keys = self._keys[join.id] = min(self._side(join.left), self._side(join.right))
        return keys

    def _side(self, side: Side) -> float:
        card = self.model.cardinalities
        if side.index >= 0:
            return float(card.keys(side.index, self.group_fractions[side.input]))
        if side.exchange >= 0:
            below = self._below(side.input)
            return float(card.exchanged_keys(side.exchange, below, self.member.seconds, SCALAR))
        return self._survivors(self.model.shapes.joins[side.input])
