"""How far queries that fold have come: the watermarks that tell when their windows closed.

A window's row is delivered when the query's watermark reaches its end, and again when a late tuple changes it. Which
revision that is follows from the epochs its tuples came in and the epoch in which the window closed, and that is all
the state has to remember: per query, the watermarks that epochs left, where they rose. It forgets those that cannot
matter any more: for aligned windows, when the windows they closed cannot change (so without allowed lateness it is one
number); for the others, when all partials of that time have been carried into a new bucket, with what stands of them.

A watermark that goes back, because an idle stream has come back, closes nothing again: only new highs are marks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from optimizer.model.plan import RunningQuery
from optimizer.model.windows import is_aligned
from runtime.control.postponed import Work, held_back
from runtime.control.state import State, StreamState, query_watermark
from runtime.operators.closing import Mark


class Advance(NamedTuple):
    """Of a query, by one epoch: its highest watermark before and after, the marks that can matter, and the time before
    which no tuple will be accepted any more."""

    before: int | None
    now: int | None
    marks: tuple[Mark, ...]
    horizon: int | None


class Advances:
    """By an epoch that leaves the streams as in `streams` and postponed work as in `waiting`. What follows from streams
    alone is looked up once for all queries over the same ones."""

    def __init__(self, state: State, streams: Mapping[str, StreamState], waiting: Work, epoch: int) -> None:
        self._state, self._streams, self._waiting, self._epoch = state, streams, waiting, epoch
        self._known: dict[frozenset[str], tuple[int | None, int | None]] = {}

    def of(self, query: RunningQuery) -> Advance:
        marks = self._state.marks.get(query.uid, ())
        before = marks[-1].watermark if marks else None
        watermark, horizon = self._bounds(query)
        reached = held_back(self._waiting, query.uid, watermark)
        if reached is None or (before is not None and reached <= before):
            return Advance(before, before, marks, horizon)
        return Advance(before, reached, (*marks, Mark(self._epoch, reached)), horizon)

    def _bounds(self, query: RunningQuery) -> tuple[int | None, int | None]:
        """The watermark of its streams, and the time before which none of them accepts anything."""
        streams = query.query.streams
        if streams not in self._known:
            bounds = [self._streams[s].accept_from for s in streams]
            horizon = min((b for b in bounds if b is not None), default=None) if None not in bounds else None
            self._known[streams] = query_watermark(self._streams, query), horizon
        return self._known[streams]


def kept(query: RunningQuery, advanced: Advance, oldest: int | None) -> tuple[Mark, ...]:
    """The marks that later epochs may need, and always the last one. Of aligned windows: those from the horizon on. Of
    others: those since the `oldest` epoch whose bucket is open (None: there is none), and how it was then; what was
    delivered before is written in that bucket."""
    horizon, marks = advanced.horizon, advanced.marks
    if is_aligned(query.query.window):
        needed = marks[:-1] if horizon is None else tuple(m for m in marks[:-1] if m.watermark >= horizon)
        return needed + marks[-1:]
    if oldest is None:
        return marks[-1:]
    known = [i for i, m in enumerate(marks) if m.epoch <= oldest]
    return marks[known[-1] :] if known else marks
