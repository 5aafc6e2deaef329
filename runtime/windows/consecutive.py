"""Windows without gaps, of any lengths, over arrays: a row is in the one window that holds all its slices, or in none.

Joins compare slices by arithmetic that knows one length (runtime.kernels.intersect), so there is no `shape`: these
windows are for queries over one stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.model.windows.consecutive import ConsecutiveWindow
from runtime.kernels.expand import cut, unroll
from runtime.windows.base import I64, Mask, Rows


@dataclass(frozen=True, slots=True)
class ConsecutiveHolding:
    """Windows number first[i] to end[i] - 1 hold row i: one or none."""

    first: I64
    end: I64
    window: ConsecutiveWindow

    @property
    def counts(self) -> I64:
        return self.end - self.first

    def take(self, rows: Rows | slice) -> ConsecutiveHolding:
        return ConsecutiveHolding(self.first[rows], self.end[rows], self.window)

    def pieces(self, most: int) -> Iterator[tuple[Rows, I64]]:
        for first, begin, end in cut(self.first, self.end, most):
            which, numbers = unroll(begin, end)
            yield which + first, self.window.starts_of(numbers)


class Consecutive:
    __slots__ = ("_window", "gaps", "overlapping", "shape")

    def __init__(self, window: ConsecutiveWindow) -> None:
        self._window = window
        self.shape, self.gaps, self.overlapping = None, False, False

    @staticmethod
    def slice_starts(windows: Sequence[ConsecutiveWindow], times: I64) -> I64:
        latest: I64 = np.maximum.reduce([w.starts_of(w.numbers_of(times)) for w in windows])
        return latest

    def outside(self, times: I64) -> Mask:
        return np.zeros(len(times), bool)

    def starts(self, lo: I64) -> I64:
        return self._window.starts_of(self._window.numbers_of(lo))

    def holding(self, lo: I64, hi: I64, active_from: int | None) -> ConsecutiveHolding:
        return ConsecutiveHolding(*self.numbers(lo, hi, active_from), self._window)

    def numbers(self, lo: I64, hi: I64, active_from: int | None) -> tuple[I64, I64]:
        first = self._window.numbers_of(lo)
        held = self._window.numbers_of(hi) == first
        if active_from is not None:
            held &= self._window.starts_of(first) >= active_from
        return first, first + held

    def starts_of(self, numbers: I64) -> I64:
        return self._window.starts_of(numbers)

    def ends(self, starts: I64) -> I64:
        return self._window.starts_of(self._window.numbers_of(starts) + 1)

    def last_closed(self, watermark: int) -> int:
        """The one before the window that holds the watermark."""
        return int(self._window.numbers_of(np.array([watermark], np.int64))[0]) - 1
