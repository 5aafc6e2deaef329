"""Moving a stream back: its watermark, or the place it is read from. When that is allowed, and what it does.

**The watermark** of a stream can be too high by mistake: a tuple with a wrong time, an explicit watermark. Then all its
tuples are late. It may be moved back as long as nobody has acted on it. For every running query of the stream:

- a window that the query's watermark has closed stays closed. Readers were told that it is complete (progress markers
  carry the query's watermark), and a query that folds has delivered its rows. The query's watermark is the least of
  its streams', so one poisoned stream closes nothing while the others hold it back.
- a window below the query's floor stays dead. State that only such windows need is gone (retention.py).

Sessions, count and punctuated windows may lie anywhere, so the watermark of a query with these does not go back at all.
Windows before the query's `active_from` do not count: it never had them. If both hold for the new watermark, the query
cannot tell the difference: every tuple that is accepted from now on falls into windows that are open and whole.
Otherwise the answer is WATERMARK_IN_USE, with the query, the window, and where the watermark could go instead. An idle
stream is treated as if it were not: its queries went on without it, and it would come back behind them.

The greatest event time goes back with the watermark, to the new one plus the stream's delay, because it would lift the
watermark again with the next epoch, and because queries created later begin after it. Such a query does not get tuples
that were accepted before it and lie beyond: move the watermark to where the stream's right times have come.

**A restart** reads the stream from another place, and forgets watermark and greatest event time. Running queries would
get tuples a second time, so there must be none (STREAM_IN_USE). Suspended ones come back as new queries when they are
resumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from optimizer.errors import AJoinError, FailedPrecondition, InvalidRequest
from optimizer.model.plan import RunningQuery
from optimizer.model.windows import AlignedWindow
from runtime.connectors.position import Position
from runtime.control.events import StreamRestarted, WatermarkReset
from runtime.control.retention import first_alive_start
from runtime.control.state import LATEST, State, StreamState, query_watermark
from runtime.times import moment


class Conflict(NamedTuple):
    """A query that has acted on a later watermark, and what it has done."""

    query: str
    what: str


def reset_watermark(state: State, st: StreamState, to: int) -> WatermarkReset:
    name = st.schema.name
    if not -LATEST < to < LATEST:
        raise InvalidRequest(f"{to} is no event time", reason="BAD_WATERMARK")
    if st.watermark is None or to >= st.watermark:
        stands = "has no watermark" if st.watermark is None else f"has the watermark {moment(st.watermark)}"
        raise FailedPrecondition(
            f"stream {name!r} {stands}; it can only be moved back, not to {moment(to)}",
            reason="WATERMARK_NOT_BACK",
        )
    conflict = next(_conflicts(state, st, to), None)
    if conflict is not None:
        raise _in_use(state, st, to, conflict)
    return WatermarkReset(stream=name, watermark=to)


def restart(state: State, st: StreamState, position: Position, now_ms: int) -> StreamRestarted:
    check_unused(state, st.schema.name, "suspend or delete these queries first; a resumed query begins anew")
    return StreamRestarted(stream=st.schema.name, position=position, at_ms=now_ms)


def check_unused(state: State, stream: str, hint: str) -> None:
    users = sorted(rq.id for rq in state.running.values() if stream in rq.query.streams)
    if users:
        raise FailedPrecondition(
            f"stream {stream!r} is used by {len(users)} running queries: {', '.join(users[:5])}",
            reason="STREAM_IN_USE",
            hint=hint,
        )


def _conflicts(state: State, st: StreamState, to: int) -> Iterator[Conflict]:
    name = st.schema.name
    after = replace(state, streams={**state.streams, name: replace(st, watermark=to, idle=False)})
    for uid, query in state.running.items():
        if name not in query.query.streams:
            continue
        before, floor, window = query_watermark(state.streams, query), state.floors.get(uid), query.query.window
        mark = query_watermark(after.streams, query)
        if not isinstance(window, AlignedWindow):
            if state.marks.get(uid) and mark is not None and mark < state.marks[uid][-1].watermark:
                last = moment(state.marks[uid][-1].watermark)
                why = "where its windows lie follows from its tuples, so any of them could open again"
                yield Conflict(query.id, f"has closed windows up to {last}; {why}")
            continue
        if before is not None and mark is not None:
            start = _own(query, window.first_alive(mark))
            if window.closed(start, before):
                yield Conflict(query.id, _closed(start, window.end(start), "has told its readers that it is complete"))
        alive = first_alive_start(after, query)
        if floor is not None and alive is not None and _own(query, alive) < floor:
            start = _own(query, alive)
            yield Conflict(query.id, _closed(start, window.end(start), "does not have the tuples for it any more"))


def _closed(start: int, end: int, why: str) -> str:
    return f"has closed its window from {moment(start)} to {moment(end)} and {why}"


def _own(query: RunningQuery, start: int) -> int:
    """The first of the query's own windows from there on."""
    return start if query.active_from is None else max(start, query.active_from)


def _in_use(state: State, st: StreamState, to: int, conflict: Conflict) -> AJoinError:
    marks = [query_watermark(state.streams, q) for q in state.running.values() if st.schema.name in q.query.streams]
    least = max((m for m in marks if m is not None), default=to) + st.schema.allowed_lateness_ms
    possible = st.watermark is not None and least < st.watermark and next(_conflicts(state, st, least), None) is None
    hint = f"suspend or delete query {conflict.query!r}, or restart the stream"
    return FailedPrecondition(
        f"the watermark of stream {st.schema.name!r} cannot go back to {moment(to)}: query {conflict.query!r} "
        f"{conflict.what}",
        reason="WATERMARK_IN_USE",
        hint=f"{moment(least)} ({least}) is possible; to go further back, {hint}" if possible else hint,
    )
