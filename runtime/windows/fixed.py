"""One fixed window over arrays: a time is in it or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.model.windows import FixedWindow
from runtime.windows.base import I64, Mask, Rows, Shape

EVERYWHERE = Shape(1 << 62, 1 << 61)
"""Windows so long that one holds any two times: tuples outside the fixed window have lost the query's bit already, so
any two that have it share the window."""

BEFORE = -(1 << 60)
"""The slice of times before the window."""


@dataclass(frozen=True, slots=True)
class FixedHolding:
    """Row i is in the window, or not."""

    inside: Mask
    start: int

    @property
    def counts(self) -> I64:
        return self.inside.astype(np.int64)

    def take(self, rows: Rows | slice) -> FixedHolding:
        return FixedHolding(self.inside[rows], self.start)

    def pieces(self, most: int) -> Iterator[tuple[Rows, I64]]:
        rows = np.flatnonzero(self.inside)
        for first in range(0, len(rows), most):
            piece = rows[first : first + most]
            yield piece, np.full(len(piece), self.start, np.int64)


class Fixed:
    __slots__ = ("_end", "_start", "gaps", "overlapping", "shape")

    def __init__(self, window: FixedWindow) -> None:
        self._start, self._end = window.start_ms, window.end_ms
        self.shape, self.gaps, self.overlapping = EVERYWHERE, True, False

    @staticmethod
    def slice_starts(windows: Sequence[FixedWindow], times: I64) -> I64:
        edges = np.unique(np.array([BEFORE, *(e for w in windows for e in (w.start_ms, w.end_ms))], np.int64))
        starts: I64 = edges[np.searchsorted(edges, times, "right") - 1]
        return starts

    def outside(self, times: I64) -> Mask:
        mask: Mask = (times < self._start) | (times >= self._end)
        return mask

    def starts(self, lo: I64) -> I64:
        return np.full(len(lo), self._start, np.int64)

    def holding(self, lo: I64, hi: I64, active_from: int | None) -> FixedHolding:
        inside = (lo >= self._start) & (hi < self._end)
        if active_from is not None and self._start < active_from:
            inside = np.zeros(len(lo), bool)
        return FixedHolding(inside, self._start)

    def ends(self, starts: I64) -> I64:
        return np.full(len(starts), self._end, np.int64)

    def numbers(self, lo: I64, hi: I64, active_from: int | None) -> tuple[I64, I64]:
        inside = self.holding(lo, hi, active_from).inside
        return np.zeros(len(lo), np.int64), inside.astype(np.int64)

    def starts_of(self, numbers: I64) -> I64:
        return np.full(len(numbers), self._start, np.int64)

    def last_closed(self, watermark: int) -> int:
        return 0 if self._end <= watermark else -1
