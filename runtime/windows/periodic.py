"""Tumbling and hopping windows over arrays: window k is [k*advance, k*advance + size).

The windows that hold a range of time are those with consecutive numbers k, so two numbers per row say which they are.
A tumbling query takes the shortest way: its rows are in exactly one window, found by one division.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.model.windows import PeriodicWindow
from runtime.kernels import slices
from runtime.kernels.expand import cut, unroll
from runtime.windows.base import I64, Mask, Rows, Shape


@dataclass(frozen=True, slots=True)
class PeriodicHolding:
    """Windows number first[i] to end[i] - 1 hold row i."""

    first: I64
    end: I64
    advance: int

    @property
    def counts(self) -> I64:
        return self.end - self.first

    def take(self, rows: Rows | slice) -> PeriodicHolding:
        return PeriodicHolding(self.first[rows], self.end[rows], self.advance)

    def pieces(self, most: int) -> Iterator[tuple[Rows, I64]]:
        for first, begin, end in cut(self.first, self.end, most):
            which, k = unroll(begin, end)
            yield which + first, k * self.advance


class Periodic:
    __slots__ = ("gaps", "overlapping", "shape")

    def __init__(self, window: PeriodicWindow) -> None:
        self.shape = Shape(window.size_ms, window.advance_ms)
        self.gaps = window.advance_ms > window.size_ms
        self.overlapping = window.advance_ms < window.size_ms

    @staticmethod
    def slice_starts(windows: Sequence[PeriodicWindow], times: I64) -> I64:
        sizes = np.array([w.size_ms for w in windows], np.int64)
        advances = np.array([w.advance_ms for w in windows], np.int64)
        starts: I64 = slices.slice_starts(times, sizes, advances)
        return starts

    def outside(self, times: I64) -> Mask:
        mask: Mask = times % self.shape.advance >= self.shape.size
        return mask

    def starts(self, lo: I64) -> I64:
        return lo // self.shape.advance * self.shape.advance

    def holding(self, lo: I64, hi: I64, active_from: int | None) -> PeriodicHolding:
        return PeriodicHolding(*self.numbers(lo, hi, active_from), self.shape.advance)

    def numbers(self, lo: I64, hi: I64, active_from: int | None) -> tuple[I64, I64]:
        size, advance = self.shape
        first = (hi - size) // advance + 1
        if active_from is not None:
            first = np.maximum(first, -(-active_from // advance))
        return first, np.maximum(lo // advance + 1, first)

    def starts_of(self, numbers: I64) -> I64:
        return numbers * self.shape.advance

    def last_closed(self, watermark: int) -> int:
        return (watermark - self.shape.size) // self.shape.advance

    def ends(self, starts: I64) -> I64:
        return starts + self.shape.size
