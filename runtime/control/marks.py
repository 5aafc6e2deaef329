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


def advance(
    state: State, streams: Mapping[str, StreamState], waiting: Work, query: RunningQuery, epoch: int
) -> Advance:
    """By an epoch that leaves the streams as in `streams` and postponed work as in `waiting`."""
    known = state.marks.get(query.uid, ())
    before = known[-1].watermark if known else None
    reached = held_back(waiting, query.uid, query_watermark(streams, query))
    if reached is None or (before is not None and reached <= before):
        return Advance(before, before, known, _horizon(state, streams, query))
    return Advance(before, reached, (*known, Mark(epoch, reached)), _horizon(state, streams, query))


def _horizon(state: State, streams: Mapping[str, StreamState], query: RunningQuery) -> int | None:
    bounds = [streams[s].accept_from for s in query.query.streams]
    return min((b for b in bounds if b is not None), default=None) if None not in bounds else None


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
