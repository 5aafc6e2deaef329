"""What operators may ask of any kind of window about many times at once.

Joined rows are known by the slices [lo, hi] their tuples lie in (runtime.kernels.slices): a slice lies in a window as a
whole or not at all, so the starts of slices stand for the tuples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[Any]


class Shape(NamedTuple):
    """How the join decides that two slices share a window: one of [k*advance, k*advance + size) holds both."""

    size: int
    advance: int


class Holding(Protocol):
    """The windows that hold each of some rows, still as ranges: the number of (row, window) pairs may be far larger
    than the number of rows, so they are laid out in pieces."""

    @property
    def counts(self) -> I64:
        """In how many windows each row is; 0 where there is none."""
        ...

    def take(self, rows: Rows | slice) -> Self:
        """The same for some of the rows."""
        ...

    def pieces(self, most: int) -> Iterator[tuple[Rows, I64]]:
        """(row, start of window), once per row and window that holds it, in this order; at most `most` at a time, even
        if one row alone is in more windows."""
        ...


class WindowLogic(Protocol):
    """One query's windows, built from the value the query holds."""

    def __init__(self, window: Any) -> None: ...

    @property
    def gaps(self) -> bool:
        """Can a time be outside every window?"""
        ...

    @property
    def overlapping(self) -> bool:
        """Can a row be in several windows?"""
        ...

    @property
    def shape(self) -> Shape | None:
        """None: no such arithmetic decides it, and the windows are for queries over one stream."""
        ...

    @staticmethod
    def slice_starts(windows: Sequence[Any], times: I64) -> I64:
        """The latest edge of any of these windows (all of this kind) at or before each time."""
        ...

    def outside(self, times: I64) -> Mask:
        """Times that are in no window."""
        ...

    def starts(self, lo: I64) -> I64:
        """If windows do not overlap: the start of the one window that holds a row whose first slice is `lo`. That it is
        in one was already decided: by `outside` for its tuples, by `shape` for the combination."""
        ...

    def holding(self, lo: I64, hi: I64, active_from: int | None) -> Holding:
        """The windows that hold rows with slices from `lo` to `hi` and start at or after `active_from`."""
        ...

    def ends(self, starts: I64) -> I64:
        """The ends of the windows that start there."""
        ...

    # Windows in order have consecutive numbers, so that those which close in an epoch are a range of numbers.

    def numbers(self, lo: I64, hi: I64, active_from: int | None) -> tuple[I64, I64]:
        """The windows that `holding` gives, as ranges of numbers: from the first on, before the second."""
        ...

    def starts_of(self, numbers: I64) -> I64: ...

    def last_closed(self, watermark: int) -> int:
        """The number of the last window that is closed with this watermark; all before it are closed too."""
        ...
