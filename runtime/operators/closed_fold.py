"""Folds over a join that never make its rows.

For every pair of matching index entries the items of both sides are folded on their own (folded_lists.py), and each
pair of what comes out is an entry of the fold:

    query set   left set  AND  right set  AND  that of the match
    group       key values of both sides
    partials    those of one side, as often as there are rows on the other

So 80 million pairs under one key cost a pass over two lists of nine thousand items. It takes queries that need no look
at single rows: no conditions across sources, keys whose hash is a proof, and every group column, argument and FILTER on
one source each.

Lists that hardly multiply are not worth it: where there are no more rows than WORTH times items, or than WORTH times
what the lists are folded to, the pair of entries is left to the rows. Both ways feed the same folder, and whichever is
taken, a query has the same partials (sums of doubles are exact here too, but for the rarest cases). Which one it is
depends on nothing but the buckets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from runtime.aggregates.bucket import Partials
from runtime.aggregates.components import Component
from runtime.aggregates.states import State, lift
from runtime.columns.coded_sets import coded
from runtime.columns.column import nulls
from runtime.columns.querysets import Words, bitset, widen
from runtime.execution.physical import JoinSpec, SinkSpec
from runtime.kernels.sets import nonempty
from runtime.operators.behind import Behind, within
from runtime.operators.fold import RowFolder, together
from runtime.operators.folded import Folded, pairs_of_entries, products
from runtime.operators.folded_lists import ListFolder, unions
from runtime.operators.groups import group_hashes
from runtime.operators.inputs import Directory
from runtime.operators.matches import Lists, Match

WORTH = 2.0
"""Rows per item, and per entry, from which on lists are folded without making rows."""

Ints = npt.NDArray[Any]


class _Fold(NamedTuple):
    folder: RowFolder
    lists: ListFolder
    slots: Words


class ClosedFolds:
    """For the queries in `sinks`, which end at this join, fold and need no rows."""

    def __init__(
        self,
        directory: Directory,
        joins: Mapping[str, JoinSpec],
        spec: JoinSpec,
        sinks: Sequence[SinkSpec],
        folders: Sequence[RowFolder],
    ) -> None:
        self._spec = spec
        self._behind = Behind(directory, joins)
        closed = {s.slot for s in sinks}
        self._folds = [
            _Fold(f, ListFolder(directory, joins, spec, f.spec), bitset(mine, spec.words))
            for f in folders
            if (mine := [s for s in f.spec.users if s in closed])
        ]

    def add(self, match: Match) -> Match:
        """Returns what is left: the match without the queries that were served, where they were."""
        l, r = match.left_lists(), match.right_lists()
        items = np.maximum(l.end - l.first, 0) + (r.end - r.first)
        rows = self._rows(match, l, r)
        worth = rows > WORTH * items
        if not worth.any():
            return match
        sets = match.sets.copy()
        for fold in self._folds:
            slots = fold.slots[: sets.shape[1]]
            pairs = np.flatnonzero(worth & nonempty(match.sets & slots))
            if len(pairs):
                sets[self._fold(fold, match, pairs, rows[pairs])] &= ~slots
        return replace(match, sets=sets)

    def _rows(self, match: Match, l: Lists, r: Lists) -> npt.NDArray[np.float64]:
        """At most so many are behind each pair of entries."""
        left = self._behind.positions(self._spec.left, match.left.bucket)
        right = self._behind.positions(self._spec.right, match.right.bucket)
        return within(left, l.first, l.end) * within(right, r.first, r.end)

    def _fold(self, fold: _Fold, match: Match, pairs: Ints, rows: npt.NDArray[np.float64]) -> Ints:
        """Returns the pairs that were folded."""
        spec = self._spec
        sets = widen(match.sets[pairs] & fold.slots[: match.sets.shape[1]], spec.words)
        _, some, l_of = np.unique(match.l_entries[pairs], return_index=True, return_inverse=True)
        lists = match.left_lists(pairs[some])
        left = fold.lists.lists(spec.left, match.left.bucket, *lists, unions(sets, l_of))
        _, some, r_of = np.unique(match.r_entries[pairs], return_index=True, return_inverse=True)
        lists = match.right_lists(pairs[some])
        right = fold.lists.lists(spec.right, match.right.bucket, *lists, unions(sets, r_of))
        if left is None or right is None:
            return pairs
        kept = np.flatnonzero(WORTH * pairs_of_entries(left, l_of, right, r_of) <= rows)
        done = pairs[kept]
        for part in products(left, l_of[kept], right, r_of[kept], sets[kept]):
            fold.folder.put(_partials(fold.folder, part, match.lo[done[part.of]], match.hi[done[part.of]]))
        return done


def _partials(folder: RowFolder, folded: Folded, lo: Ints, hi: Ints) -> Partials:
    n, spec = len(folded), folder.spec
    keys = tuple(folded.keys[i] for i in range(len(spec.keys)))
    known = {c: folded.states[c] for c in spec.components if c in folded.states}
    made = together(
        Partials(
            group_hashes(keys, n),
            lo,
            hi,
            coded(folded.sets),
            np.full(n, folder.epoch, np.int64),
            np.zeros(n, np.int64),
            keys,
            known,
            {},
            {},
        )
    )
    return replace(made, states={c: made.states.get(c) or _nothing(c, len(made)) for c in spec.components})


def _nothing(component: Component, n: int) -> State:
    """Of a component that only queries with rows have: none of these entries has their bit."""
    arguments = tuple(nulls(type, n) for type in component.types)
    return lift(component, arguments, np.zeros(n, bool), np.zeros(n, np.int64))
