"""How many tuples, keys and combinations: Crd of the paper for leaves, indexes and joins.

Everything is per second. With f(l) the fraction of leaf l's tuples that at least one of the queries in question wants
(a union, see `samples`):

- a leaf gives rate(l) * f(l) tuples;
- an index holds D * (1 - (1 - f)^m) keys, where D keys were counted over all tuples and m tuples share a key: a key
  survives unless all its tuples are filtered;
- a join gives prod(rate * f) * prod(1 / max(D)) * W^(n-1) combinations for windows of W seconds, corrected by what was
  observed for its keys, one by one and together. Predicates implied by others (the third side of a triangle over one
  attribute) count once;
- of leaf l, n * (1 - exp(-combinations / n)) tuples take part in a join, n being the leaf's tuples: nearly all
  of them when each has many partners, one per combination when partners are rare.

Estimates of joins do not depend on the join order, so comparing orders never compares estimation errors.

Functions take floats or numpy arrays: `Operations` is the pair of operations that differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from networkx.utils import UnionFind

from optimizer.cost.shapes import Shapes
from optimizer.model.plan import Attribute, KeyPart, Leaf
from optimizer.statistics.model import StatisticsModel

Number = Any  # a float, or an array of floats when many candidates are priced at once


@dataclass(frozen=True, slots=True)
class Operations:
    minimum: Callable[[Number, Number], Number]
    exp: Callable[[Number], Number]


SCALAR = Operations(min, math.exp)
ARRAY = Operations(np.minimum, np.exp)


class Cardinalities:
    """A reading of one StatisticsModel, memoized; make a new one when the model has changed."""

    def __init__(self, shapes: Shapes, stats: StatisticsModel) -> None:
        self.shapes = shapes
        self.stats = stats
        self._rows: dict[int, int] = {}
        self._rates: dict[int, float] = {}
        self._keys: dict[int, tuple[float, float]] = {}
        self._bases: dict[int, float] = {}
        self._pairs: dict[str, float] = {}

    def rows(self, leaf: int) -> int:
        rows = self._rows.get(leaf)
        if rows is None:
            rows = self._rows[leaf] = self.stats.rows(self.shapes.leaf_of(leaf))
        return rows

    def fraction(self, leaf: int, bits: int) -> float:
        return bits.bit_count() / self.rows(leaf)

    def rate(self, leaf: int) -> float:
        rate = self._rates.get(leaf)
        if rate is None:
            rate = self._rates[leaf] = self.stats.rate(self.shapes.leaf_of(leaf).stream)
        return rate

    def keys(self, index: int, fraction: Number) -> Number:
        """Distinct keys of an index over this fraction of its leaf's tuples."""
        known = self._keys.get(index)
        if known is None:
            about = self.shapes.indexes[index]
            at = self.shapes.leaf_of(about.leaf)
            distinct = self.stats.distinct_keys(at, tuple(c for c, _ in about.columns))
            per_key = max(self.stats.tuples(at.stream) / distinct, 1.0)
            known = self._keys[index] = (distinct, per_key)
        distinct, per_key = known
        rest = 1.0 - fraction
        rest = rest * (rest > 0)  # in floating point a union can come out slightly above 1
        return distinct * (1.0 - rest**per_key)

    def combinations(self, join: int, fractions: Sequence[Number], seconds: Number) -> Number:
        """Results per second of a join (or a leaf); `fractions` in the order of its leaves."""
        result = self._base(join)
        for f in fractions:
            result = result * f
        return result * seconds ** (len(fractions) - 1)

    def participants(self, exchange: int, fractions: Sequence[Number], seconds: Number, ops: Operations) -> Number:
        """Entries that a re-indexing walks: tuples of the one leaf that has the key.

        When the key takes attributes from several leaves, their combinations have to be laid out.
        """
        about = self.shapes.exchanges[exchange]
        results = self.combinations(about.join, fractions, seconds)
        if about.holder < 0:
            return results
        return self.partners(self.shapes.indexes[about.holder].leaf, fractions[about.position], results, ops)

    def partners(self, leaf: int, fraction: Number, results: Number, ops: Operations) -> Number:
        """Tuples of a leaf that are in at least one of so many results."""
        tuples = self.rate(leaf) * fraction + 1e-12
        return tuples * (1.0 - ops.exp(-results / tuples))

    def exchanged_keys(self, exchange: int, fractions: Sequence[Number], seconds: Number, ops: Operations) -> Number:
        """Distinct keys after re-indexing: those of the part of the leaf that took part in the join."""
        moved = self.participants(exchange, fractions, seconds, ops)
        holder = self.shapes.exchanges[exchange].holder
        if holder < 0:
            return moved
        rate = self.rate(self.shapes.indexes[holder].leaf)
        return self.keys(holder, ops.minimum(moved / rate, 1.0) if rate else moved)

    def _base(self, join: int) -> float:
        base = self._bases.get(join)
        if base is None:
            rates = math.prod(self.rate(leaf) for leaf in self.shapes.leaves(join))
            known = self.shapes.joins.get(join)
            base = self._bases[join] = rates * (1.0 if known is None else self.selectivity(known.edges))
        return base

    def selectivity(self, edges: frozenset[KeyPart]) -> float:
        """The probability that a combination of tuples satisfies all the equalities."""
        result = self.stats.joint(causes(edges))
        for name, parts in independent(edges):
            known = self._pairs.get(name)
            if known is None:
                known = self._pairs[name] = self._pair(parts) * self.stats.ratio((name,))
            result *= known
        return result

    def _pair(self, parts: tuple[KeyPart, ...]) -> float:
        left = self.stats.distinct_keys(parts[0].left.leaf, tuple(p.left.column for p in parts))
        right = self.stats.distinct_keys(parts[0].right.leaf, tuple(p.right.column for p in parts))
        return 1.0 / max(left, right)


@lru_cache(maxsize=16384)
def independent(edges: frozenset[KeyPart]) -> tuple[tuple[str, tuple[KeyPart, ...]], ...]:
    """Per pair of leaves the equalities that say something new, with a name; what others imply is left out."""
    by_pair: dict[tuple[Leaf, Leaf], list[KeyPart]] = {}
    for e in sorted(edges):
        by_pair.setdefault((e.left.leaf, e.right.leaf), []).append(e)
    equal: UnionFind[Attribute] = UnionFind()

    def says_something_new(part: KeyPart) -> bool:
        if equal[part.left] == equal[part.right]:
            return False
        equal.union(part.left, part.right)
        return True

    told = (tuple(p for p in parts if says_something_new(p)) for parts in by_pair.values())
    return tuple((ratio_key(parts), parts) for parts in told if parts)


@lru_cache(maxsize=16384)
def causes(edges: frozenset[KeyPart]) -> tuple[str, ...]:
    """The names of the keys that a join depends on, in a fixed order."""
    return tuple(sorted(name for name, _ in independent(edges)))


def ratio_key(parts: Iterable[KeyPart]) -> str:
    """The name of a key, by which the observed selectivity of a join of two leaves is remembered."""
    return "&".join(f"{p.left}={p.right}" for p in sorted(parts))
