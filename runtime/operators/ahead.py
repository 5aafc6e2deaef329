"""Tuples too far ahead in event time: they would lift their stream's watermark, and everything after them were late.

A stream can have two bounds. A tuple beyond one of them is a dead letter, and the watermark does not see it.

`max_ahead_ms`, for streams whose event times are wall-clock times: no event time may lie more than that beyond the
clock. The clock is the one that the epoch's plan recorded (`Ahead.accept_until`), so reading again, after a crash or to
repair a bucket, refuses the same tuples.

`max_jump_ms`, for recorded data, whose times have nothing to do with the clock: no event time may lie more than that
beyond its neighbours. The event times of a read are walked upwards from where the stream stood before the epoch; a step
of more than the bound is a jump, and what lies beyond it is refused, unless

    most tuples of the read lie beyond it: then time itself has moved on (a night, a weekend), and
    they are at least WITNESSES, counting those refused for their jump since the stream last accepted anything.

So wrong times among right ones are refused however far they jump, a file that spans days is taken whole as long as
neighbouring times in it are close, and a gap in the data never blocks a stream: of a stream that brings one tuple per
read, the first WITNESSES - 1 after the gap are refused, and the next one is believed. When nothing was accepted yet
there is nowhere to start from; then it is the median of the read, which wrong times do not move while they are the
smaller part. Late tuples are neighbours too: one wrong time among late ones is not the majority.

The rule looks at one read alone, and at numbers that stand in the log (`Ahead`). It protects from mistakes. Somebody
who sends many tuples can walk a stream ahead step by step; only `max_ahead_ms` bounds that.

Cost: one comparison per tuple; for `max_jump_ms` also a sort of the event times beyond where the stream stood, and the
median.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.model.types import StreamSchema
from runtime.buckets.refs import Ahead
from runtime.times import duration, moment

WITNESSES = 3
"""So many tuples beyond a jump are believed, if they are the larger part."""

Times = npt.NDArray[np.int64]
Mask = npt.NDArray[Any]


class TooFar(NamedTuple):
    """Rows of a read that lie too far beyond the clock, and those that have jumped beyond `believed`."""

    clock: npt.NDArray[np.intp]
    jump: npt.NDArray[np.intp]
    believed: int | None

    def reason(self, schema: StreamSchema, ahead: Ahead, time: int) -> str:
        """Why the tuple of this event time is refused."""
        if ahead.accept_until is not None and time > ahead.accept_until:
            return clock_reason(schema, ahead.accept_until, time)
        assert self.believed is not None
        return jump_reason(schema, self.believed, time)


_NONE = TooFar(np.empty(0, np.intp), np.empty(0, np.intp), None)


def too_far(schema: StreamSchema, ahead: Ahead, times: Times, usable: Mask) -> TooFar:
    """Which of the `usable` tuples of a read are refused."""
    clock = _NONE.clock
    if ahead.accept_until is not None:
        clock = np.flatnonzero(usable & (times > ahead.accept_until))
    if schema.max_jump_ms is None:
        return TooFar(clock, _NONE.jump, None)
    left = usable.copy()
    left[clock] = False
    believed = last_believed(schema.max_jump_ms, ahead, times[left])
    jump = _NONE.jump if believed is None else np.flatnonzero(left & (times > believed))
    return TooFar(clock, jump, believed)


def last_believed(most: int, ahead: Ahead, times: Times) -> int | None:
    """Of the event times of a read, those after the answer have jumped by more than `most`. None: none has."""
    if not len(times):
        return None
    start = ahead.stood
    if start is None:
        middle = (len(times) - 1) // 2
        start = int(np.partition(times, middle)[middle])
    later = np.sort(times[times > start])
    walk = np.concatenate([np.array([start], np.int64), later])
    jumps = np.flatnonzero(np.diff(walk) > min(most, 1 << 62))
    needed = max(len(times) // 2 + 1, WITNESSES - ahead.refused)
    refused = jumps[len(later) - jumps < needed]
    return int(walk[refused[0]]) if len(refused) else None


def clock_reason(schema: StreamSchema, accept_until: int, time: int, what: str = "event time") -> str:
    assert schema.max_ahead_ms is not None
    beyond = time - (accept_until - schema.max_ahead_ms)
    return (
        f"{what} {moment(time)} is {duration(beyond)} ahead of the clock; "
        f"the stream allows {duration(schema.max_ahead_ms)} (max_ahead)"
    )


def jump_reason(schema: StreamSchema, believed: int, time: int) -> str:
    assert schema.max_jump_ms is not None
    return (
        f"event time {moment(time)} is {duration(time - believed)} beyond the tuples before it, which reach "
        f"{moment(believed)}; the stream allows {duration(schema.max_jump_ms)} (max_jump)"
    )
