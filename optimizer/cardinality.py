"""How many tuples, keys and combinations: Crd of the paper for leaves, indexes and joins.

Everything is per second. With f(l) the fraction of leaf l's tuples that at least one of the queries in question wants
(a union, see `samples`):

- a leaf gives rate(l) * f(l) tuples;
- an index holds D * (1 - (1 - f)^m) keys, where D keys were counted over all tuples and m tuples share a key: a key
  survives unless all its tuples are filtered;
- a join gives prod(rate * f) * prod(1 / max(D)) * W^(n-1) combinations for windows of W seconds, corrected by what was
  observed for its keys. Predicates implied by others (the third side of a triangle over one attribute) count once;
- of leaf l, n * (1 - exp(-combinations / n)) tuples take part in a join, n being the leaf's tuples: nearly all
  of them when each has many partners, one per combination when partners are rare.

Estimates of joins do not depend on the join order, so comparing orders never compares estimation errors.

Functions take floats or numpy arrays: `Xp` is the pair of operations that differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optimizer.plan import Attribute, KeyPart, Leaf
from optimizer.shapes import Columns, Shapes, Typed
from optimizer.statistics import StatisticsModel

Number = Any  # a float, or an array of floats when many candidates are priced at once


@dataclass(frozen=True, slots=True)
class Xp:
    minimum: Callable[[Number, Number], Number]
    exp: Callable[[Number], Number]


SCALAR = Xp(min, math.exp)
ARRAY = Xp(np.minimum, np.exp)


class Cardinalities:
    """A reading of one StatisticsModel, memoized; make a new one when the model has changed."""

    def __init__(self, shapes: Shapes, stats: StatisticsModel) -> None:
        self.shapes = shapes
        self.stats = stats
        self._rows: dict[int, int] = {}
        self._rates: dict[int, float] = {}
        self._keys: dict[tuple[int, Columns], tuple[float, float]] = {}
        self._bases: dict[int, float] = {}

    def rows(self, leaf: int) -> int:
        found = self._rows.get(leaf)
        if found is None:
            found = self._rows[leaf] = self.stats.rows(self.shapes.leaf_of(leaf))
        return found

    def fraction(self, leaf: int, bits: int) -> float:
        return bits.bit_count() / self.rows(leaf)

    def rate(self, leaf: int) -> float:
        found = self._rates.get(leaf)
        if found is None:
            found = self._rates[leaf] = self.stats.rate(self.shapes.leaf_of(leaf).stream)
        return found

    def keys(self, leaf: int, columns: Columns, fraction: Number) -> Number:
        """Distinct keys of an index over this fraction of the leaf's tuples."""
        known = self._keys.get((leaf, columns))
        if known is None:
            at = self.shapes.leaf_of(leaf)
            distinct = self.stats.distinct_keys(at, tuple(c for c, _ in columns))
            per_key = max(self.stats.tuples(at.stream) / distinct, 1.0)
            known = self._keys[leaf, columns] = (distinct, per_key)
        distinct, per_key = known
        return distinct * (1.0 - (1.0 - fraction) ** per_key)

    def combinations(self, join: int, fractions: Sequence[Number], seconds: Number) -> Number:
        """Results per second of a join; `fractions` in the order of the join's leaves."""
        result = self._base(join)
        for f in fractions:
            result = result * f
        return result * seconds ** (len(fractions) - 1)

    def participants(
        self, join: int, key: tuple[Typed, ...], fractions: Sequence[Number], seconds: Number, xp: Xp
    ) -> Number:
        """Entries that a re-indexing of the join by `key` walks: tuples of the one leaf that has the key.

        When the key takes attributes from several leaves, their combinations have to be laid out.
        """
        results = self.combinations(join, fractions, seconds)
        holders = {self.shapes.leaf_id(a.leaf) for a, _ in key}
        if len(holders) > 1:
            return results
        (leaf,) = holders
        tuples = self.rate(leaf) * fractions[self.shapes.joins[join].leaves.index(leaf)] + 1e-12
        return tuples * (1.0 - xp.exp(-results / tuples))

    def _base(self, join: int) -> float:
        found = self._bases.get(join)
        if found is None:
            j = self.shapes.joins[join]
            rates = math.prod(self.rate(leaf) for leaf in j.leaves)
            found = self._bases[join] = rates * self.selectivity(j.edges)
        return found

    def selectivity(self, edges: Iterable[KeyPart], corrected: bool = True) -> float:
        """The probability that a combination of tuples satisfies all the equalities."""
        by_pair: dict[tuple[Leaf, Leaf], list[KeyPart]] = {}
        for e in sorted(edges):
            by_pair.setdefault((e.left.leaf, e.right.leaf), []).append(e)
        same = _Classes()
        result = 1.0
        for (left, right), parts in by_pair.items():
            new = [p for p in parts if same.unite(p.left, p.right)]
            if not new:
                continue
            distinct = max(
                self.stats.distinct_keys(left, tuple(p.left.column for p in new)),
                self.stats.distinct_keys(right, tuple(p.right.column for p in new)),
            )
            result /= distinct
            if corrected:
                result *= self.stats.ratio(ratio_key(new))
        return result


def ratio_key(parts: Iterable[KeyPart]) -> str:
    """The name under which the observed selectivity of a join of two leaves is remembered."""
    return "&".join(f"{p.left}={p.right}" for p in sorted(parts))


class _Classes:
    """Attributes that are equal to each other (union-find)."""

    def __init__(self) -> None:
        self._up: dict[Attribute, Attribute] = {}

    def unite(self, a: Attribute, b: Attribute) -> bool:
        """False when they were equal already."""
        a, b = self._top(a), self._top(b)
        if a == b:
            return False
        self._up[a] = b
        return True

    def _top(self, a: Attribute) -> Attribute:
        while a in self._up:
            a = self._up[a]
        return a
