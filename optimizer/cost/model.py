"""Equation 2 of the paper, for one query group.

    COST(S1 ⋈ S2) = b1 * Crd(S1) + b2 * Crd(S2)        indexing: leaf inputs, and joined inputs that change their key
                  + min(DistKey(S1), DistKey(S2))      index set intersection
                  + bm * Crd(S1 ⋈ S2)                  full materialization, only at the sink

A group pays for each thing once, however many of its queries use it:

- an index per (leaf, key columns), over the tuples that *any* query of the group wants on that leaf;
- an exchange per (join, new key), over the tuples that the join's users want;
- an intersection per join;
- a fold, or the pass over tuples that are delivered as they are, per leaf of queries over one stream: like an index;
- the combinations its sinks expand, per join that is the last one of some queries, over the tuples that those
  queries want. Queries that want different tuples make each other's combinations be looked at (Figure 6: 6*6 against
  3*3 + 3*3); that is the price of sharing, and the reason for groups;
- the rows of windows that close, per query that folds: nobody shares them, so they decide nothing, but they are part
  of what a query costs.

Groups share nothing, so the cost of a plan is the sum over its groups. Costs are in units of one indexed tuple per
second unless the weights were calibrated (`calibration`), then in seconds of work per second.

`fixed` is what every index, exchange and join costs whatever its size: a kernel call, a bucket, a task's bookkeeping.
The paper has no such term; with many small groups it is what keeps them from being too small.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from optimizer.cost.cardinality import ARRAY, SCALAR, Cardinalities, Number, Operations
from optimizer.cost.shapes import Shape, Side


@dataclass(frozen=True, slots=True)
class Weights:
    """The price of one indexed tuple, one intersected key, one expanded combination, one exchanged tuple, and what an
    index, a join or an exchange costs whatever its size."""

    index: float = 1.0
    intersection: float = 0.5
    materialization: float = 0.5
    exchange: float = 2.0
    fixed: float = 20.0

    @property
    def values(self) -> tuple[float, float, float, float, float]:
        return self.index, self.intersection, self.materialization, self.exchange, self.fixed


@dataclass(frozen=True, slots=True)
class Member:
    """Queries of one shape within one group, taken together: per leaf of the shape the union of their columns.
    `closed`: rows a second of windows that close."""

    shape: Shape
    bits: tuple[int, ...]
    seconds: float
    uids: tuple[str, ...]
    closed: float = 0.0

    def plus(self, other: Member) -> Member:
        bits = tuple(a | b for a, b in zip(self.bits, other.bits, strict=True))
        uids = tuple(sorted((*self.uids, *other.uids)))
        closed = self.closed + other.closed
        return replace(self, bits=bits, seconds=max(self.seconds, other.seconds), uids=uids, closed=closed)


Tree = tuple[Member, int]
"""A member and the root of its tree: the number of a join, or of a scan if the member reads only one stream."""


@dataclass(slots=True)
class _Use:
    """One join in a group: the columns of its users per leaf, the longest window, how many members use it."""

    bits: list[int]
    seconds: float
    members: int = 1
    fractions: list[float] | None = None

    def add(self, bits: Sequence[int], seconds: float, members: int) -> None:
        self.bits = [a | b for a, b in zip(self.bits, bits, strict=True)]
        self.seconds = max(self.seconds, seconds)
        self.members += members
        self.fractions = None


class Shared:
    """One group with its trees, taken apart into what is paid once. Mutable, for the search that made it.

    `remove` takes a tree out but leaves its columns in the unions and its closed windows (they cannot be subtracted),
    so the cost is exact only for groups built by adding.
    """

    def __init__(self, model: CostModel, trees: Iterable[Tree] = ()) -> None:
        self.model = model
        self.leaf_bits: dict[int, int] = {}
        self.joins: dict[int, _Use] = {}
        self.sinks: dict[int, _Use] = {}
        self.indexes: dict[int, int] = {}
        self.exchanges: dict[int, int] = {}
        self.closed = 0.0
        self._fractions: dict[int, float] = {}
        self._keys: dict[int, float] = {}
        for member, root in trees:
            self.add(member, root)

    # -- building --------------------------------------------------------------------------------------------------

    def add(self, member: Member, root: int) -> None:
        shapes, uses, indexes, exchanges = self.model.shapes, self.joins, self.indexes, self.exchanges
        own = dict(zip(member.shape.leaves, member.bits, strict=True))
        self._widen(own)
        for number in shapes.subtree(root):
            join = shapes.joins[number]
            self._use(uses, number, [own[leaf] for leaf in join.leaves], member.seconds)
            for index in join.indexes:
                indexes[index] = indexes.get(index, 0) + 1
            for exchange in join.exchanges:
                exchanges[exchange] = exchanges.get(exchange, 0) + 1
        for index in shapes.scanned(root):
            indexes[index] = indexes.get(index, 0) + 1
        self._use(self.sinks, root, [own[leaf] for leaf in shapes.leaves(root)], member.seconds)
        self.closed += member.closed

    def remove(self, root: int) -> None:
        table = self.model.shapes.joins
        for number in self.model.shapes.subtree(root):
            for index in table[number].indexes:
                _decrease(self.indexes, index)
            for exchange in table[number].exchanges:
                _decrease(self.exchanges, exchange)
            self._unuse(self.joins, number)
        for index in self.model.shapes.scanned(root):
            _decrease(self.indexes, index)
        self._unuse(self.sinks, root)

    def absorb(self, other: Shared) -> None:
        """The other group's queries join this one."""
        self._widen(other.leaf_bits)
        for mine, theirs in ((self.joins, other.joins), (self.sinks, other.sinks)):
            for number, use in theirs.items():
                self._use(mine, number, use.bits, use.seconds, use.members)
        for index, n in other.indexes.items():
            self.indexes[index] = self.indexes.get(index, 0) + n
        for exchange, n in other.exchanges.items():
            self.exchanges[exchange] = self.exchanges.get(exchange, 0) + n
        self.closed += other.closed

    def _widen(self, bits: Mapping[int, int]) -> None:
        for leaf, b in bits.items():
            self.leaf_bits[leaf] = self.leaf_bits.get(leaf, 0) | b
        self._fractions.clear()
        self._keys.clear()

    @staticmethod
    def _use(uses: dict[int, _Use], join: int, bits: Sequence[int], seconds: float, members: int = 1) -> None:
        use = uses.get(join)
        if use is None:
            uses[join] = _Use(list(bits), seconds, members)
        else:
            use.add(bits, seconds, members)

    @staticmethod
    def _unuse(uses: dict[int, _Use], join: int) -> None:
        uses[join].members -= 1
        if not uses[join].members:
            del uses[join]

    # -- prices ----------------------------------------------------------------------------------------------------

    def cost(self) -> float:
        return (
            sum(self.index(i) for i in self.indexes)
            + sum(self.exchange(e) for e in self.exchanges)
            + sum(self.intersection(j) for j in self.joins)
            + sum(self.materialization(j) for j in self.sinks)
            + self.model.weights.materialization * self.closed
        )

    def absorption(self, other: Shared) -> float:
        """By how much both together cost more (less, if negative) than both apart, in time proportional to the other.

        One thing is left out: keys that survive in other joins because an index got larger.
        """
        model, card, w = self.model, self.model.cardinalities, self.model.weights
        change = 0.0
        mine: dict[int, int] = {}
        counted: dict[int, list[int]] = {}
        about = model.shapes.indexes
        for index in self.indexes:
            mine[about[index].leaf] = mine.get(about[index].leaf, 0) + 1
        for index in other.indexes:
            theirs = counted.setdefault(about[index].leaf, [0, 0])
            theirs[0] += 1
            theirs[1] += index in self.indexes
        for leaf, (theirs_n, common) in counted.items():
            mine_n = mine.get(leaf, 0)
            if not mine_n:
                continue
            union = card.fraction(leaf, self.leaf_bits[leaf] | other.leaf_bits[leaf])
            tuples = (mine_n + theirs_n - common) * union
            tuples -= mine_n * self.fraction(leaf) + theirs_n * other.fraction(leaf)
            change += w.index * card.rate(leaf) * tuples - w.fixed * common
        for number in other.joins:
            if number in self.joins:
                change -= other.intersection(number)
        for exchange in other.exchanges:
            if exchange in self.exchanges:
                join = model.shapes.exchanges[exchange].join
                both = self._both(self.joins[join], other.joins[join])
                together = model.exchange(exchange, model.fractions(join, both.bits), both.seconds)
                change += together - self.exchange(exchange) - other.exchange(exchange)
        for number, use in other.sinks.items():
            if number in self.sinks:
                both = self._both(self.sinks[number], use)
                together = model.materialization(number, model.fractions(number, both.bits), both.seconds)
                change += together - self.materialization(number) - other.materialization(number)
        return change

    @staticmethod
    def _both(a: _Use, b: _Use) -> _Use:
        return _Use([x | y for x, y in zip(a.bits, b.bits, strict=True)], max(a.seconds, b.seconds))

    def fraction(self, leaf: int) -> float:
        fraction = self._fractions.get(leaf)
        if fraction is None:
            fraction = self._fractions[leaf] = self.model.cardinalities.fraction(leaf, self.leaf_bits[leaf])
        return fraction

    def index(self, index: int) -> float:
        leaf = self.model.shapes.indexes[index].leaf
        return float(self.model.index(leaf, self.fraction(leaf)))

    def exchange(self, exchange: int) -> float:
        join = self.model.shapes.exchanges[exchange].join
        use = self.joins[join]
        return float(self.model.exchange(exchange, self._wanted(join, use), use.seconds))

    def intersection(self, join: int) -> float:
        w = self.model.weights
        return w.intersection * self.keys(join) + w.fixed

    def materialization(self, join: int) -> float:
        use = self.sinks[join]
        return float(self.model.materialization(join, self._wanted(join, use), use.seconds))

    def combinations(self, join: int) -> float:
        """Crd of the join over the tuples its users want."""
        use = self.joins[join]
        return float(self.model.cardinalities.combinations(join, self._wanted(join, use), use.seconds))

    def _wanted(self, join: int, use: _Use) -> list[float]:
        if use.fractions is None:
            use.fractions = self.model.fractions(join, use.bits)
        return use.fractions

    def keys(self, join: int) -> float:
        """Keys that survive the intersection."""
        keys = self._keys.get(join)
        if keys is None:
            j = self.model.shapes.joins[join]
            keys = self._keys[join] = min(self._side_keys(j.left), self._side_keys(j.right))
        return keys

    def _side_keys(self, side: Side) -> float:
        card = self.model.cardinalities
        if side.index >= 0:
            return float(card.keys(side.index, self.fraction(side.input)))
        if side.exchange < 0:
            return self.keys(side.input)
        use = self.joins[side.input]
        return float(card.exchanged_keys(side.exchange, self._wanted(side.input, use), use.seconds, SCALAR))


def _decrease(counts: dict[Any, int], key: Any) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


class CostModel:
    """Weights and cardinalities; the prices of single things. Pure apart from its memo tables."""

    def __init__(self, cardinalities: Cardinalities, weights: Weights) -> None:
        self.cardinalities = cardinalities
        self.shapes = cardinalities.shapes
        self.weights = weights

    def cost(self, trees: Iterable[Tree]) -> float:
        """COST of one group."""
        return Shared(self, trees).cost()

    def fractions(self, join: int, bits: Sequence[int]) -> list[float]:
        card = self.cardinalities
        return [card.fraction(leaf, b) for leaf, b in zip(self.shapes.leaves(join), bits, strict=True)]

    def index(self, leaf: int, fraction: Number) -> Number:
        return self.weights.index * self.cardinalities.rate(leaf) * fraction + self.weights.fixed

    def exchange(self, exchange: int, fractions: Sequence[Number], seconds: Number, ops: Operations = SCALAR) -> Number:
        moved = self.cardinalities.participants(exchange, fractions, seconds, ops)
        return self.weights.exchange * moved + self.weights.fixed

    def materialization(self, join: int, fractions: Sequence[Number], seconds: Number) -> Number:
        return self.weights.materialization * self.cardinalities.combinations(join, fractions, seconds)

    def tree_cost(self, root: int, fractions: Mapping[int, Number], seconds: Number) -> Number:
        """COST of one tree as a group of its own, for many sets of queries at once: fractions may be arrays.

        The same sum as `Shared.cost` for a single member, without windows that close; a test holds them together.
        """
        w, card, joins = self.weights, self.cardinalities, self.shapes.joins
        ops = SCALAR if isinstance(seconds, float) else ARRAY
        total: Number = 0.0
        keys: dict[int, Number] = {}
        for number in self.shapes.subtree(root):
            sides = []
            for side in (joins[number].left, joins[number].right):
                if side.index >= 0:
                    total = total + self.index(side.input, fractions[side.input])
                    sides.append(card.keys(side.index, fractions[side.input]))
                elif side.exchange >= 0:
                    below = [fractions[leaf] for leaf in joins[side.input].leaves]
                    total = total + self.exchange(side.exchange, below, seconds, ops)
                    sides.append(card.exchanged_keys(side.exchange, below, seconds, ops))
                else:
                    sides.append(keys[side.input])
            keys[number] = ops.minimum(sides[0], sides[1])
            total = total + w.intersection * keys[number] + w.fixed
        leaves = self.shapes.leaves(root)
        for _ in self.shapes.scanned(root):
            total = total + self.index(leaves[0], fractions[leaves[0]])
        return total + self.materialization(root, [fractions[leaf] for leaf in leaves], seconds)
