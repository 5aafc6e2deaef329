"""Query similarity (equation 3 of the paper) and queries of a wanted similarity (its steps 1 to 3).

    similarity(Q, PQ) = ComS * ComSJA / AllS^2

ComS counts the sources that Q shares with the pattern query PQ, ComSJA the join attributes of those sources that both
use, AllS the sources of PQ. Taken literally the formula passes 1 for identical queries of three and more streams (a
chain of n has 2n - 2 join attributes); it is cut off at 1.

ComSJA must be whole, the wanted similarity need not be reachable. So the fraction is rounded up or down at random
with the probability that keeps the mean right: a set of queries has the wanted similarity, although a single one may
not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from random import Random

from experiments.data import SPARE, SWING
from experiments.template import ATTRIBUTES, OPERATORS, Selection, TemplateQuery

ALL_ALIKE = ("disjoint", "swinging")
"""Kinds of selections for queries that all have the joins of the pattern; none of these uses the attribute SPARE."""

Place = tuple[str, int]
"""(source, 0 for the attribute it is joined by to its left, 1 to its right)"""


def similarity(query: TemplateQuery, pattern: TemplateQuery) -> float:
    common = set(query.sources) & set(pattern.sources)
    attributes = {(s, a) for s, a in query.join_attributes & pattern.join_attributes if s in common}
    return min(1.0, len(common) * len(attributes) / len(pattern.sources) ** 2)


def pattern_query(streams: Sequence[str], ways: int, rng: Random, attributes: int = ATTRIBUTES) -> TemplateQuery:
    """A chain over the first `ways` streams, joined by the first `attributes`; a stream between two joins is joined by
    two different ones."""
    links: list[tuple[int, int]] = []
    for _ in range(ways - 1):
        taken = {links[-1][1]} if links else set()
        links.append((_other(taken, rng, attributes), rng.randrange(attributes)))
    return TemplateQuery("pattern", tuple(streams[:ways]), tuple(links), (None,) * ways, 1)


class QueryGenerator:
    """An endless, seeded supply of template queries. `streams` beyond those of the pattern are for dissimilar
    queries.
    """

    def __init__(
        self,
        pattern: TemplateQuery,
        streams: Sequence[str],
        *,
        similarity: float,
        selectivity: float | str,
        windows: Sequence[int],
        keys: int,
        rng: Random,
        parts: int = 1,
    ) -> None:
        self.parts = parts
        self.pattern = pattern
        self.foreign = [s for s in streams if s not in pattern.sources]
        self.wanted, self.selectivity, self.windows, self.keys = similarity, selectivity, tuple(windows), keys
        self.rng = rng
        self._number = 0

    def __iter__(self) -> Iterator[TemplateQuery]:
        while True:
            yield self.next()

    def next(self) -> TemplateQuery:
        self._number += 1
        sources, links = self._chain()
        if self.selectivity in ALL_ALIKE:
            sources, links = self.pattern.sources, self.pattern.links
        return TemplateQuery(
            f"q{self._number}",
            sources,
            links,
            tuple(self._selection(i, len(sources)) for i in range(len(sources))),
            self.rng.choice(self.windows),
        )

    # -- steps 1 to 3 ---------------------------------------------------------------------------------------------

    def _chain(self) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
        n, rng = len(self.pattern.sources), self.rng
        common = rng.randint(max(1, n - len(self.foreign)), n)  # step 1
        while True:  # step 2
            exact = self.wanted * n * n / common
            attributes = math.floor(exact) + (rng.random() < exact - math.floor(exact))
            shapes = [s for s in self._shapes(common) if len(self._places(s)) >= attributes]
            if shapes or common == n:
                break
            common += 1
        shape = rng.choice(shapes) if shapes else self.pattern.sources  # step 3
        places = self._places(shape)
        kept = set(rng.sample(places, min(attributes, len(places))))
        return shape, self._links(shape, kept)

    def _shapes(self, common: int) -> list[tuple[str, ...]]:
        """Neighbours in the pattern, so no cross product, with foreign streams at their ends."""
        n = len(self.pattern.sources)
        foreign = self.rng.sample(self.foreign, n - common)
        return [
            (*foreign[:before], *self.pattern.sources[first : first + common], *foreign[before:])
            for first in range(n - common + 1)
            for before in range(n - common + 1)
        ]

    def _places(self, sources: Sequence[str]) -> list[Place]:
        """Where both the pattern and this chain have a join attribute."""
        mine = set(_all_places(sources))
        return [p for p in _all_places(self.pattern.sources) if p in mine]

    def _links(self, sources: tuple[str, ...], kept: set[Place]) -> tuple[tuple[int, int], ...]:
        pattern = dict(zip(_all_places(self.pattern.sources), _flat(self.pattern.links), strict=True))
        avoid: dict[str, set[int]] = {}
        for (s, _), a in pattern.items():
            avoid.setdefault(s, set()).add(a)
        chosen = [pattern[p] if p in kept else _other(avoid.get(p[0], set()), self.rng) for p in _all_places(sources)]
        return tuple(zip(chosen[::2], chosen[1::2], strict=True))

    # -- selections -----------------------------------------------------------------------------------------------

    def _selection(self, source: int, ways: int) -> Selection | None:
        """'none'; 'random' as in Figure 14; a number: a condition that this share of uniform tuples passes. 'disjoint':
        the range of one of `parts`, the same one on every source, so that queries of different parts have no tuple in
        common. 'swinging': at both ends of the chain a condition whose selectivity changes with the data's phases.
        """
        rng = self.rng
        if self.selectivity == "none":
            return None
        if self.selectivity == "disjoint":
            part = (self._number - 1) % self.parts
            return Selection(SPARE, ">=", part * self.keys // self.parts, (part + 1) * self.keys // self.parts)
        if self.selectivity == "swinging":
            return Selection(SPARE, "<", max(1, self.keys // SWING)) if source in (0, ways - 1) else None
        attribute = rng.randrange(ATTRIBUTES)
        if self.selectivity == "random":
            return Selection(attribute, rng.choice(OPERATORS), rng.randrange(self.keys))
        passing = max(1, round(float(self.selectivity) * self.keys))
        if rng.random() < 0.5:
            return Selection(attribute, "<", passing)
        return Selection(attribute, ">=", self.keys - passing)


def _all_places(sources: Sequence[str]) -> list[Place]:
    """In the order of the links: right of the first, left of the second, right of the second, ..."""
    return [p for i in range(len(sources) - 1) for p in ((sources[i], 1), (sources[i + 1], 0))]


def _flat(links: Sequence[tuple[int, int]]) -> list[int]:
    return [a for link in links for a in link]


def _other(taken: set[int], rng: Random, attributes: int = ATTRIBUTES) -> int:
    return rng.choice([a for a in range(attributes) if a not in taken])
