"""Every kind of window, and what is asked of windows of several kinds together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from optimizer.model.windows import FixedWindow, PeriodicWindow, Window
from runtime.columns.querysets import bitset
from runtime.kernels.intersect import Shapes
from runtime.windows.base import I64, WindowLogic
from runtime.windows.fixed import Fixed
from runtime.windows.periodic import Periodic

KINDS: dict[type[Any], type[WindowLogic]] = {PeriodicWindow: Periodic, FixedWindow: Fixed}
"""Aligned windows: the value a query holds -> the logic built from it. Plug-ins add theirs (plugins.py)."""


def aligned(window: Window) -> bool:
    """Is it known from the clock alone which windows a time is in?"""
    return type(window) in KINDS


def logic_of(window: Window) -> WindowLogic:
    return KINDS[type(window)](window)


def slice_starts(windows: Iterable[Window], times: I64) -> I64:
    """The start of the slice that each time lies in: the latest edge of any window at or before it."""
    by_kind: dict[type[Any], list[Window]] = {}
    for window in windows:
        by_kind.setdefault(type(window), []).append(window)
    latest = [KINDS[kind].slice_starts(mine, times) for kind, mine in by_kind.items()]
    starts: I64 = latest[0] if len(latest) == 1 else np.maximum.reduce(latest)
    return starts


class JoinWindows:
    """The windows of all queries of a join, in the form its kernel takes."""

    __slots__ = ("_longest", "shapes")

    def __init__(self, users: Sequence[tuple[Window, Iterable[int]]], words: int) -> None:
        shapes = [shape for window, _ in users if (shape := logic_of(window).shape) is not None]
        assert len(shapes) == len(users), "SQL refuses joins in windows without a shape"
        sizes = np.array([s.size for s in shapes], np.int64)
        advances = np.array([s.advance for s in shapes], np.int64)
        self.shapes = Shapes(sizes, advances, np.stack([bitset(slots, words) for _, slots in users]))
        self._longest = int(sizes.max())

    def apart(self, first: int, last: int) -> bool:
        """Is the time from slice `first` to slice `last` longer than any window?"""
        return last > first and first + self._longest <= last
