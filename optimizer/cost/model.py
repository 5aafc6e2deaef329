"""Equation 2 of the paper, for one query group.

    COST(S1 ⋈ S2) = b1 * Crd(S1) + b2 * Crd(S2)        indexing: leaf inputs, and joined inputs that change their key
                  + min(DistKey(S1), DistKey(S2))      index set intersection
                  + bm * Crd(S1 ⋈ S2)                  full materialization, only at the sink

A group pays for each thing once, however many of its queries use it:

- an index per (leaf, key columns), over the tuples that *any* query of the group wants on that leaf;
- an exchange per (join, new key), over the tuples that the join's users want;
- an intersection per join;
- the combinations its sinks expand, per join that is the last one of some queries, over the tuples that those
  queries want. Queries that want different tuples make each other's combinations be looked at (Figure 6: 6*6 against
  3*3 + 3*3); that is the price of sharing, and the reason for groups;
- a fold, over the tuples that any of *its* queries wants: of one stream those tuples, of a join the items of the lists
  that meet, each once, however many combinations they stand for; or the combinations, if these are cheaper;
- the pass over tuples that are delivered as they are, per leaf of queries over one stream;
- the entries that windows are combined from when they close, and their rows, per query that folds: nobody shares
  them, so they decide nothing, but they are part of what a query costs.

Groups share nothing, so the cost of a plan is the sum over its groups. Costs are in units of one indexed tuple per
second unless the weights were calibrated (`calibration`), then in seconds of work per second.

A join stage more makes every epoch longer, whatever flows through it: a Spark job, and the wait for its slowest task.
Stages are those of the plan (optimizer.model.stages): all groups share them, and the tree that needs most decides. So a
tree pays only for stages beyond what some query of the plan needs in any order (`unavoidable`), and a group for its
deepest tree. That is exact where one group is deeper than the rest has to be; several such groups pay each as if it
were alone. The price is per epoch, so statistics say how many there are a second.

`fixed` is what every index, exchange and join costs whatever its size: a kernel call, a bucket, a task's bookkeeping.
The paper has no such term; with many small groups it is what keeps them from being too small.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from optimizer.cost.cardinality import ARRAY, SCALAR, Cardinalities, Number, Operations
from optimizer.cost.shapes import Shape, Side

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Weights:
    """The price of one indexed tuple, one intersected key, one expanded combination, one exchanged tuple, what an
    index, a join, an exchange or a fold costs whatever its size, and the price of one folded tuple or list item and of
    one entry that is combined when a window closes; its row costs what a combination does. `stage`: the price of a join
    stage, once an epoch; it says nothing about tuples, so it is no part of the unit the others have by default."""

    index: float = 1.0
    intersection: float = 0.5
    materialization: float = 0.5
    exchange: float = 2.0
    fixed: float = 20.0
    fold: float = 1.0
    close: float = 0.15
    stage: float = 0.0

    @property
    def values(self) -> tuple[float, ...]:
        """Those that are found from the times of kernels."""
        return self.index, self.intersection, self.materialization, self.exchange, self.fixed, self.fold, self.close


@dataclass(frozen=True, slots=True)
class Member:
    """Queries of one shape within one group, taken together: per leaf of the shape the union of their columns.
    Of windows that close, a second: `rows`, and the `entries` they are combined from."""

    shape: Shape
    bits: tuple[int, ...]
    seconds: float
    uids: tuple[str, ...]
    rows: float = 0.0
    entries: float = 0.0

    def plus(self, other: Member) -> Member:
        bits = tuple(a | b for a, b in zip(self.bits, other.bits, strict=True))
        uids = tuple(sorted((*self.uids, *other.uids)))
        rows, entries = self.rows + other.rows, self.entries + other.entries
        seconds = max(self.seconds, other.seconds)
        return replace(self, bits=bits, seconds=seconds, uids=uids, rows=rows, entries=entries)


Tree = tuple[Member, int]
"""A member and the root of its tree: the number of a join, or of a leaf if the member reads only one stream."""


class Sink(NamedTuple):
    """What queries that end together share: the root of their trees, and the fold of their shape ("": rows)."""

    root: int
    fold: str


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
        self.sinks: dict[Sink, _Use] = {}
        self.indexes: dict[int, int] = {}
        self.exchanges: dict[int, int] = {}
        self.closing = 0.0
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
        sink = Sink(root, member.shape.fold)
        self._use(self.sinks, sink, [own[leaf] for leaf in shapes.leaves(root)], member.seconds)
        self.closing += self.model.closing(member)

    def remove(self, member: Member, root: int) -> None:
        table = self.model.shapes.joins
        for number in self.model.shapes.subtree(root):
            for index in table[number].indexes:
                _decrease(self.indexes, index)
            for exchange in table[number].exchanges:
                _decrease(self.exchanges, exchange)
            self._unuse(self.joins, number)
        self._unuse(self.sinks, Sink(root, member.shape.fold))

    def absorb(self, other: Shared) -> None:
        """The other group's queries join this one."""
        self._widen(other.leaf_bits)
        for number, use in other.joins.items():
            self._use(self.joins, number, use.bits, use.seconds, use.members)
        for sink, use in other.sinks.items():
            self._use(self.sinks, sink, use.bits, use.seconds, use.members)
        for index, n in other.indexes.items():
            self.indexes[index] = self.indexes.get(index, 0) + n
        for exchange, n in other.exchanges.items():
            self.exchanges[exchange] = self.exchanges.get(exchange, 0) + n
        self.closing += other.closing

    def _widen(self, bits: Mapping[int, int]) -> None:
        for leaf, b in bits.items():
            self.leaf_bits[leaf] = self.leaf_bits.get(leaf, 0) | b
        self._fractions.clear()
        self._keys.clear()

    @staticmethod
    def _use(uses: dict[K, _Use], key: K, bits: Sequence[int], seconds: float, members: int = 1) -> None:
        use = uses.get(key)
        if use is None:
            uses[key] = _Use(list(bits), seconds, members)
        else:
            use.add(bits, seconds, members)

    @staticmethod
    def _unuse(uses: dict[K, _Use], key: K) -> None:
        uses[key].members -= 1
        if not uses[key].members:
            del uses[key]

    # -- prices ----------------------------------------------------------------------------------------------------

    def cost(self) -> float:
        return (
            sum(self.index(i) for i in self.indexes)
            + sum(self.exchange(e) for e in self.exchanges)
            + sum(self.intersection(j) for j in self.joins)
            + sum(self.made(sink) for sink in self.sinks)
            + self.closing
            + self.model.depth(self.stages)
        )

    @property
    def stages(self) -> int:
        """Of its deepest tree."""
        return max((self.model.shapes.stages(sink.root) for sink in self.sinks), default=0)

    def absorption(self, other: Shared) -> float:
        """By how much both together cost more (less, if negative) than both apart, in time proportional to the other.

        One thing is left out: keys that survive in other joins because an index got larger.
        """
        model, card, w = self.model, self.model.cardinalities, self.model.weights
        change = -model.depth(min(self.stages, other.stages))
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
        for sink, use in other.sinks.items():
            if sink in self.sinks:
                both = self._both(self.sinks[sink], use)
                together = model.made(sink, model.fractions(sink.root, both.bits), both.seconds)
                change += together - self.made(sink) - other.made(sink)
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

    def made(self, sink: Sink) -> float:
        """What is made at the end of some queries: combinations, tuples as they are, or a fold."""
        use = self.sinks[sink]
        return float(self.model.made(sink, self._wanted(sink.root, use), use.seconds))

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
    """Weights and cardinalities; the prices of single things. Pure apart from its memo tables. `unavoidable`: stages
    that the plan has in any case."""

    def __init__(self, cardinalities: Cardinalities, weights: Weights, unavoidable: int = 1) -> None:
        self.cardinalities = cardinalities
        self.shapes = cardinalities.shapes
        self.weights = weights
        self.unavoidable = unavoidable
        self.stage = weights.stage * cardinalities.stats.epochs_a_second
        """The price of a join stage, a second."""

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

    def made(self, sink: Sink, fractions: Sequence[Number], seconds: Number, ops: Operations = SCALAR) -> Number:
        results = self.cardinalities.combinations(sink.root, fractions, seconds)
        wanted = list(zip(self.shapes.leaves(sink.root), fractions, strict=True))
        return self.made_of(sink.fold, wanted, results, ops)

    def made_of(self, fold: str, wanted: Sequence[tuple[int, Number]], results: Number, ops: Operations) -> Number:
        """The price of a sink with so many results; `wanted`: per leaf the fraction of its tuples that are wanted.

        Where lists hardly multiply, rows are made even for a fold; tasks decide so match by match.
        """
        w = self.weights
        if len(wanted) == 1:
            return (w.fold if fold else w.index + w.materialization) * results + w.fixed
        rows = w.materialization * results
        if not fold:
            return rows
        items = sum(self.cardinalities.partners(leaf, f, results, ops) for leaf, f in wanted)
        return ops.minimum(rows, w.fold * items) + w.fixed

    def depth(self, stages: int) -> float:
        """The price of stages that nobody needs but who has them."""
        return self.stage * max(0, stages - self.unavoidable)

    def closing(self, member: Member) -> float:
        """Windows that close, of the queries of a member."""
        return self.weights.materialization * member.rows + self.weights.close * member.entries

    def tree_cost(self, sink: Sink, fractions: Mapping[int, Number], seconds: Number) -> Number:
        """COST of one tree as a group of its own, for many sets of queries at once: fractions may be arrays.

        The same sum as `Shared.cost` for a single member, without windows that close; a test holds them together.
        """
        w, card, joins = self.weights, self.cardinalities, self.shapes.joins
        ops = SCALAR if isinstance(seconds, float) else ARRAY
        total: Number = 0.0
        keys: dict[int, Number] = {}
        for number in self.shapes.subtree(sink.root):
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
        leaves = self.shapes.leaves(sink.root)
        total = total + self.depth(self.shapes.stages(sink.root))
        return total + self.made(sink, [fractions[leaf] for leaf in leaves], seconds, ops)
