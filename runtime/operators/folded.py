"""Entries of folded lists: products, and equal ones put together.

A list of items, folded, is a few entries: query set, values of the group columns and partials of its side, and the
number of rows. Of two lists that are combined, every pair of entries is one entry of the product: the query sets
intersect, the numbers multiply, and a partial counts as often as there are rows on the other side (`scale`). So (count,
sum) pairs multiply as (c1 * c2, s1 * c2) and (c1 * c2, c1 * s2), and a smallest value stays what it is.

Pairs are laid out in pieces of about BLOCK numbers, and what is kept of a piece are distinct entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime.aggregates.components import Component
from runtime.aggregates.states import State, concat, fold, scale
from runtime.columns import column
from runtime.columns.coded_sets import coded
from runtime.columns.column import ColumnData, compacted
from runtime.columns.querysets import Words
from runtime.kernels.expand import cut, in_runs, unroll
from runtime.kernels.grouping import Entries
from runtime.kernels.hashing import hash_integers
from runtime.kernels.sets import nonempty
from runtime.operators.groups import entries, group_hashes

I64 = npt.NDArray[np.int64]
Ints = npt.NDArray[Any]

BLOCK = 1 << 22
"""Words of query sets of items and of pairs of entries, and values of partials, that are laid out at a time, per level
of the join tree."""

STAR = Component("count", (), None, ())
"""COUNT(*): every list knows its number of rows, whoever asks."""


@dataclass(frozen=True, slots=True)
class Folded:
    """Entries of lists: `of` which list (ascending), for whom, the values of those keys of the fold that are on this
    side (by number), and the partials of this side."""

    of: I64
    sets: Words
    keys: Mapping[int, ColumnData]
    states: Mapping[Component, State]

    def __len__(self) -> int:
        return len(self.of)

    @property
    def counts(self) -> I64:
        return self.states[STAR].parts[0].values

    def take(self, rows: Ints) -> Folded:
        keys = {i: k.take(rows) for i, k in self.keys.items()}
        return Folded(self.of[rows], self.sets[rows], keys, {c: s.take(rows) for c, s in self.states.items()})


def most_sets(words: int) -> int:
    """How many query sets may be laid out at a time."""
    return max(1, BLOCK // words)


def products(left: Folded, l_of: Ints, right: Folded, r_of: Ints, sets: Words) -> Iterator[Folded]:
    """Pair i is list l_of[i] of the left with list r_of[i] of the right, for `sets[i]`: `of` is the pair. In pieces;
    equal entries are not put together."""
    l_from, l_size = _places(left, l_of)
    r_from, r_size = _places(right, r_of)
    weights = _weights(left), _weights(right)
    for piece in cut(np.zeros(len(sets), np.int64), l_size * r_size, most_sets(sets.shape[1])):
        pair, number = unroll(piece.starts, piece.ends)
        pair += piece.first
        l, r = l_from[pair] + number // r_size[pair], r_from[pair] + number % r_size[pair]
        wanted = left.sets[l] & right.sets[r] & sets[pair]
        kept = np.flatnonzero(nonempty(wanted))
        for run in in_runs(weights[0][l[kept]] + weights[1][r[kept]], BLOCK):
            rows = kept[run]
            yield _product(left, l[rows], right, r[rows], pair[rows], wanted[rows])


def pairs_of_entries(left: Folded, l_of: Ints, right: Folded, r_of: Ints) -> I64:
    """How many each pair of lists has, at most."""
    return _places(left, l_of)[1] * _places(right, r_of)[1]


def _product(left: Folded, l: Ints, right: Folded, r: Ints, of: I64, sets: Words) -> Folded:
    l_counts, r_counts = left.counts[l], right.counts[r]
    states = {c: scale(c, s.take(l), r_counts) for c, s in left.states.items()}
    states |= {c: scale(c, s.take(r), l_counts) for c, s in right.states.items() if c != STAR}
    keys = {i: k.take(l) for i, k in left.keys.items()} | {i: k.take(r) for i, k in right.keys.items()}
    return Folded(of, sets, keys, states)


def _places(folded: Folded, of: Ints) -> tuple[I64, I64]:
    """Where the entries of lists begin, and how many each has."""
    first = np.searchsorted(folded.of, of)
    return first, np.searchsorted(folded.of, of, "right") - first


def _weights(folded: Folded) -> I64:
    """How many values an entry has; runs and sketches are as long as the data wants."""
    total = np.full(len(folded), len(folded.states), np.int64)
    for state in folded.states.values():
        if state.offsets is not None:
            total += np.diff(state.offsets)
    return total


def entries_of(keys: Mapping[int, ColumnData], of: I64, sets: Words) -> Entries:
    values = list(keys.values())
    hashes = group_hashes(values, len(of)) if values else hash_integers(of)
    return entries(values, hashes, of, np.zeros(len(of), np.int64), coded(sets))


def ordered(
    keys: Mapping[int, ColumnData], of: I64, sets: Words, found: Entries, states: Mapping[Component, State]
) -> Folded:
    """Rows that were put together, in the order of their lists."""
    first = found.order[found.offsets[:-1]]
    folded = Folded(of[first], sets[first], {i: compacted(k.take(first)) for i, k in keys.items()}, states)
    return folded if (folded.of[1:] >= folded.of[:-1]).all() else folded.take(np.argsort(folded.of, kind="stable"))


def grouped(folded: Folded) -> Folded:
    """Equal entries of a list as one."""
    found = entries_of(folded.keys, folded.of, folded.sets)
    states = {c: fold(c, s, found.order, found.offsets) for c, s in folded.states.items()}
    return ordered(folded.keys, folded.of, folded.sets, found, states)


def together(parts: Iterable[Folded]) -> Folded | None:
    """All parts as one; what is held grows with what they have different, not with what they have."""
    held: list[Folded] = []
    waiting = 0
    for part in parts:
        held.append(part)
        waiting += len(part)
        if len(held) > 1 and waiting * part.sets.shape[1] > BLOCK:
            held = [grouped(_concat(held))]
            waiting = len(held[0]) // 2
    if len(held) > 1:
        held = [grouped(_concat(held))]
    return held[0] if held else None


def _concat(parts: Sequence[Folded]) -> Folded:
    first = parts[0]
    return Folded(
        np.concatenate([p.of for p in parts]),
        np.concatenate([p.sets for p in parts]),
        {i: column.concat([p.keys[i] for p in parts]) for i in first.keys},
        {c: concat([p.states[c] for p in parts]) for c in first.states},
    )
