"""Which windows there are, given the tuples seen so far, what is in each of them, and when it closes.

    time windows   [start, end) as the clause says        close when the watermark reaches the end
    session        runs of neighbours at most a gap apart  closes when it is beyond the end (last + gap)
    count          positions [k*m, k*m + n), if full       closes when it reaches the time of the last tuple;
                                                           with a STATE_TTL, positions in each run of neighbours at most
                                                           that far apart
    punctuated     between neighbouring edges              closes when it reaches the next edge

So each of them has the smallest watermark with which it is closed (`closes`), or none at all: then it is not listed,
because a window that never closes is never delivered. Every function starts from nothing but lists of tuples; whatever
was listed an epoch earlier plays no role here (folds.py compares).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from optimizer.model.expressions import Expr
from optimizer.model.windows import (
    CountWindow,
    FixedWindow,
    PeriodicWindow,
    PunctuatedWindow,
    SessionWindow,
    Unwindowed,
    Window,
)
from tests.oracle.values import evaluate

Bounds = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Tuple:
    """An accepted tuple, the number of the epoch that brought it, and its place in the order of arrival."""

    epoch: int
    time: int
    row: Mapping[str, Any]
    arrival: int = 0

    @property
    def order(self) -> tuple[int, int]:
        """By event time, ties by arrival."""
        return self.time, self.arrival


@dataclass(frozen=True, slots=True)
class Pane:
    """A window by data with tuples in it. `closes`: the smallest watermark with which it is closed. `run`: of a count
    window, all the tuples that are counted together."""

    bounds: Bounds
    tuples: tuple[Tuple, ...]
    closes: int
    run: tuple[Tuple, ...] = ()


def time_windows(window: Window, times: Iterable[int]) -> list[tuple[Any, Any]]:
    """Every window that holds one of the times. Without windows there is one of no bounds, which holds everything."""
    if isinstance(window, Unwindowed):
        return [(None, None)]
    if isinstance(window, FixedWindow):
        return [(window.start_ms, window.end_ms)]
    assert isinstance(window, PeriodicWindow), f"{window} is no window of time"
    starts = set()
    for time in times:
        start = time // window.advance_ms * window.advance_ms
        while start + window.size_ms > time:
            starts.add(start)
            start -= window.advance_ms
    return [(start, start + window.size_ms) for start in sorted(starts)]


def panes(
    window: Window, group: Sequence[Tuple], visible: Sequence[Tuple], alias: str, ttl: int | None = None
) -> Iterator[Pane]:
    """The windows of one group by its tuples. `visible`: all that the query may see, whatever WHERE and GROUP BY say,
    which is where punctuations come from; `alias` names the stream in their condition. `ttl`: STATE_TTL."""
    ordered = sorted(group, key=lambda t: t.order)
    match window:
        case SessionWindow():
            return sessions(window.gap_ms, ordered)
        case CountWindow():
            return count_windows(window.size, window.advance, ttl, ordered)
        case PunctuatedWindow():
            return punctuated(edges(window.condition, visible, alias), ordered)
    raise TypeError(f"{window} does not follow from tuples")


def runs(apart: int | None, ordered: Sequence[Tuple]) -> list[tuple[Tuple, ...]]:
    """As long as possible, of neighbours at most so far apart; None: however far."""
    found: list[list[Tuple]] = []
    for t in ordered:
        if found and (apart is None or t.time - found[-1][-1].time <= apart):
            found[-1].append(t)
        else:
            found.append([t])
    return [tuple(run) for run in found]


def sessions(gap: int, ordered: Sequence[Tuple]) -> Iterator[Pane]:
    for run in runs(gap, ordered):
        end = run[-1].time + gap
        yield Pane((run[0].time, end), run, closes=end + 1)


def count_windows(size: int, advance: int, ttl: int | None, ordered: Sequence[Tuple]) -> Iterator[Pane]:
    for run in runs(ttl, ordered):
        start = 0
        while start + size <= len(run):
            inside = run[start : start + size]
            yield Pane((start, start + size), inside, closes=inside[-1].time, run=run)
            start += advance


def edges(condition: Expr, visible: Sequence[Tuple], alias: str) -> list[int]:
    """The event time of the first tuple and of every punctuation, each once."""
    found = {t.time for t in visible if evaluate(condition, {alias: t.row}) is True}
    if visible:
        found.add(min(t.time for t in visible))
    return sorted(found)


def punctuated(between: Sequence[int], ordered: Sequence[Tuple]) -> Iterator[Pane]:
    for start, end in pairwise(between):
        inside = tuple(t for t in ordered if start <= t.time < end)
        if inside:
            yield Pane((start, end), inside, closes=end)
