"""How the windows of queries that fold are combined from slices, where a slice lies in several windows: every choice,
in one place.

Each follows from the query, its window and the function alone. Tasks, the driver and explain ask here, so they cannot
disagree:

    is_long   windows of many steps are put together from blocks (runtime.execution.blocks)
    is_short  windows of few steps are combined from all their slices, for many queries in one pass
              (runtime.operators.close_together)
    in_pieces count windows are put together from pieces, each of which is folded once (runtime.operators.count_pieces)
    way_of    of windows that close in one epoch and share work (runtime.operators.close_time), what is done with one
              kind of partial (runtime.aggregates.sliding)

A window of `steps` steps advances by its size / steps. `python -m experiments.closing_ways` measures where the ways
cross.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from optimizer.model.aggregates import LISTS
from optimizer.model.plan import RunningQuery
from optimizer.model.windows import CountWindow, PeriodicWindow, PunctuatedWindow, Window

Way = Literal["combine", "subtract", "stacks"]

LONG = 32
"""From how many steps per window on blocks are made. With fewer, to combine them is as fast."""

BASE = 8
"""So many blocks of one size are one of the next."""

MOST_OVERLAP = 8
"""In how many windows a time may be where all slices of each are laid out."""

SHARED = 4
"""From how many windows per entry on windows that close in one epoch share work."""

FEW = 6
"""Up to so many pieces per window, to combine them all is fastest: it writes nothing but the result."""

STEPS = 3
"""Of two stacks, per window."""

INVERTIBLE = frozenset({"count", "sum"})
"""Kinds of partials from which a part can be taken away again. Of doubles only while they are finite; tasks look."""


def is_long(rq: RunningQuery) -> bool:
    """Should the query have blocks?"""
    window = rq.query.window
    if not isinstance(window, PeriodicWindow) or window.most_per_tuple < LONG:
        return False
    return len(rq.query.sources) == 1


def entries_a_second(window: Window, sources: int, rows: float, tuples: float) -> float:
    """About how many entries are combined for so many rows a second of windows that close, of so many tuples a second
    and sources. Never more than every tuple in all its windows."""
    match window:
        case PeriodicWindow():
            steps = window.most_per_tuple
            pieces = entries_of(steps) if steps >= LONG and sources == 1 else float(steps)
            return min(rows * pieces, tuples * steps)
        case CountWindow() if window.most_per_tuple >= SHARED:
            return tuples + rows * STEPS
        case CountWindow():
            return tuples * window.most_per_tuple
        case PunctuatedWindow():
            return tuples
        case _:
            return min(rows, tuples)


def is_short(rq: RunningQuery) -> bool:
    """Are all slices of a window laid out? Never for a query that has blocks: whose entries those are is decided query
    by query."""
    return rq.query.window.most_per_tuple <= MOST_OVERLAP and not is_long(rq)


def in_pieces(window: CountWindow, kinds: Iterable[str]) -> bool:
    """Do so many windows share a tuple that pieces pay? Of kinds that keep values nothing becomes fewer by it."""
    return window.most_per_tuple >= SHARED and LISTS.isdisjoint(kinds)


def pieces_of(window: CountWindow) -> int:
    """Of one window, where all that overlap with it close together."""
    return window.most_per_tuple * (1 if window.size % window.advance == 0 else 2)


def way_of(kind: str, pieces: int, inverts: bool = False) -> Way:
    """Likely the fastest for windows of so many pieces; a piece is what the same windows hold. `inverts`: of a plug-in
    that can take a part away."""
    if pieces <= FEW:
        return "combine"
    return "subtract" if inverts or kind in INVERTIBLE else "stacks"


def entries_of(steps: int, slices_per_step: float = 1.0) -> float:
    """What a window of so many steps is put together from, on average over where it starts: blocks of BASE steps, BASE
    * BASE, and so on, and at both ends slices."""
    total, width = float(steps), BASE
    while width <= steps:
        fit = (steps - width + 1) / width
        total -= (BASE - 1) * fit  # each stands for BASE smaller ones
        width *= BASE
    loose = min(steps, BASE - 1)
    return total + loose * (slices_per_step - 1)
