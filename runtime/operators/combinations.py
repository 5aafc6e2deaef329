"""Combinations laid out, and each query's own part of them.

A flush holds the row references of many combinations, wanted by several queries. If several queries look at it, each
column is fetched from its buckets once, for all of them, and a query then picks its rows out of that in ascending
order, which is several times cheaper than reaching into the buckets again. The same goes for windows: start times are
computed once per window shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.model.plan import Leaf
from optimizer.model.types import ColumnType
from optimizer.model.windows import Window
from runtime.buckets.views import RowRefs
from runtime.columns.column import ColumnData
from runtime.columns.querysets import Words, has
from runtime.kernels import sets as sets_kernel
from runtime.kernels.fetch import fetch
from runtime.operators.inputs import Directory, LeafRows, chosen_of
from runtime.windows.registry import logic_of

MOST_MEMBERS = 1 << 24
"""(Combination, query) pairs whose rows are held at a time: 64 MB."""

WINDOWED = 1 << 20
"""(Row, window) pairs laid out at a time: a row of a hopping window is in many, a flush of rows in many more."""

Refs = dict[Leaf, RowRefs]
Rows = npt.NDArray[Any]


class _Members(NamedTuple):
    """The rows of every slot, one slot after the other: those of slot s end at ends[s]. `rows` is None if they are too
    many to hold; then each query has so many that looking through all sets for each of them is cheap."""

    ends: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int32] | None


def _members(sets: Words) -> _Members:
    """In one walk: looking through all sets once per query would cost queries times combinations."""
    counts = sets_kernel.count_members(sets)
    ends = np.cumsum(counts)
    total = int(ends[-1])
    return _Members(ends, sets_kernel.members(sets, ends - counts, total) if total <= MOST_MEMBERS else None)


class Combinations:
    """`refs`: per leaf the row of every combination; `sets` who wants it; [`lo`, `hi`] the slices it spans; `most`: of
    how many rows the columns may be fetched at a time."""

    def __init__(
        self,
        directory: Directory,
        group: int,
        refs: Refs,
        sets: Words,
        lo: npt.NDArray[np.int64],
        hi: npt.NDArray[np.int64],
        *,
        many: bool,
        most: int,
    ) -> None:
        self._directory, self._group, self._refs, self._sets = directory, group, refs, sets
        self._lo, self._hi, self._many, self.most = lo, hi, many, most
        self._leaves: dict[Leaf, LeafRows] = {}
        self._columns: dict[tuple[Leaf, str], ColumnData] = {}
        self._starts: dict[Window, npt.NDArray[np.int64]] = {}
        self._all: Rows = np.arange(len(lo))
        self._by_slot: _Members | None = None

    def of(self, slot: int) -> Rows:
        """The combinations a query wants; always the same array when it wants all, so that nothing is picked out."""
        if self._many and self._by_slot is None:
            self._by_slot = _members(self._sets)
        ends, rows = self._by_slot or (None, None)
        if ends is None or rows is None:
            wanted = has(self._sets, slot)
            return self._all if wanted.all() else np.flatnonzero(wanted)
        if slot >= len(ends):
            return rows[:0]
        mine = rows[ends[slot - 1] if slot else 0 : ends[slot]]
        return self._all if len(mine) == len(self._all) else mine

    def part(self, rows: Rows) -> Part:
        return Part(self, rows)

    def column(self, leaf: Leaf, name: str, type: ColumnType | None = None) -> ColumnData:
        """For all combinations, fetched once; with a `type`, NULL where buckets lack the column."""
        data = self._columns.get((leaf, name))
        if data is None:
            if leaf not in self._leaves:
                self._leaves[leaf] = self._directory.rows(leaf, self._group, *self._refs[leaf])
            data = self._columns[(leaf, name)] = self._leaves[leaf].column(name, type)
        return data

    def column_at(self, leaf: Leaf, name: str, rows: Rows, type: ColumnType | None = None) -> ColumnData:
        whole = self.column(leaf, name, type)
        return whole if rows is self._all else whole.take(rows)

    def rows_of(self, leaf: Leaf, rows: Rows) -> LeafRows:
        buckets, items = self._refs[leaf]
        if rows is self._all:
            return self._directory.rows(leaf, self._group, buckets, items)
        return self._directory.rows(leaf, self._group, chosen_of(buckets, rows), fetch(items, rows))

    def windows(
        self, rows: Rows, window: Window, active_from: int | None
    ) -> Iterator[tuple[Rows, npt.NDArray[np.int64]]]:
        """(rows, window starts), in pieces: every row once per window that holds it.

        Where windows do not overlap, a row is in exactly one: query sets already say that it is in one that counts.
        """
        logic = logic_of(window)
        if not logic.overlapping:
            starts = self._starts.get(window)
            if starts is None:
                starts = self._starts[window] = logic.starts(self._lo)
            yield rows, starts if rows is self._all else fetch(starts, rows)
            return
        held = logic.holding(self._lo[rows], self._hi[rows], active_from)
        for which, starts in held.pieces(min(self.most, WINDOWED)):
            yield rows[which], starts

    @property
    def sets(self) -> Words:
        return self._sets

    @property
    def spans(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The first and the last slice of every combination."""
        return self._lo, self._hi

    @property
    def shared(self) -> bool:
        return self._many


class Part:
    """Columns for some of the combinations, in their order."""

    def __init__(self, whole: Combinations, rows: Rows) -> None:
        self._whole, self.rows = whole, rows
        self._leaves: dict[Leaf, LeafRows] = {}
        self._columns: dict[tuple[Leaf, str], ColumnData] = {}

    def column(self, leaf: Leaf, name: str, type: ColumnType | None = None) -> ColumnData:
        data = self._columns.get((leaf, name))
        if data is None:
            if self._whole.shared:
                data = self._whole.column_at(leaf, name, self.rows, type)
            else:
                if leaf not in self._leaves:
                    self._leaves[leaf] = self._whole.rows_of(leaf, self.rows)
                data = self._leaves[leaf].column(name, type)
            self._columns[(leaf, name)] = data
        return data
