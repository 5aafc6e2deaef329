"""What happened, as frozen values: the records of the log and the only things that change the coordinator's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from optimizer.model.changelog import Changelog
from optimizer.model.pins import Pins
from optimizer.model.plan import RunningQuery
from optimizer.model.types import StreamSchema
from runtime.api import NO_BUDGET, AtLimit, Budget, Cursor
from runtime.buckets.refs import Ahead, Block, JoinedRef, Origin, PartialRef, Skip, SourceRef, ViewRef
from runtime.connectors.base import ConnectorSpec, DeadLetter, Offset
from runtime.connectors.position import Position
from runtime.control.postponed import AliveSlots, Pin, Postponed, Resumed
from runtime.log.codec import register, register_converted
from runtime.operators.join import InputBucket
from runtime.operators.pace import Rest
from runtime.results.segment import Segment

FOREVER = 1 << 62
"""The watermark of a stream that will bring nothing more."""


# -- parts of events ----------------------------------------------------------------------------------------------


class StreamEnd(NamedTuple):
    """Up to where an epoch reads a stream."""

    stream: str
    position: Position


class RaisedWatermark(NamedTuple):
    stream: str
    time: int


class SkippedTuples(NamedTuple):
    """Of the read with this number, of all that an epoch reads of the stream."""

    stream: str
    read: int
    what: Skip


class StreamLetter(NamedTuple):
    stream: str
    letter: DeadLetter


class ReplacedViews(NamedTuple):
    """All views of a bucket from now on."""

    bucket: int
    views: tuple[ViewRef, ...]


class ReplacedBucket(NamedTuple):
    """The bucket that replaces a damaged source bucket; None: no query needs it any more."""

    bucket: int
    by: SourceRef | None


class QueryRows(NamedTuple):
    """What a query got in an epoch: rows, in so many batches, of so many bytes; its share of the tasks' time, and of
    their work, if that was measured (`QueryRecord.work`)."""

    uid: str
    rows: int
    batches: int
    bytes: int = 0
    seconds: float = 0.0
    work: int = 0


class QueryOverflows(NamedTuple):
    """Integer sums of a query that did not fit."""

    uid: str
    sums: int


class StageSeconds(NamedTuple):
    stage: str
    seconds: float


class LostResults(NamedTuple):
    """The last place in a query's result log that has left the retention, and the bytes of its rows that went now."""

    uid: str
    last: Cursor
    bytes: int = 0


class Saving(NamedTuple):
    """Which part of its own cost a query was estimated to be spared by sharing, when its batch was decided."""

    uid: str
    part: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAdded:
    query: RunningQuery
    sinks: tuple[ConnectorSpec, ...]
    budget: Budget = NO_BUDGET
    request: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryEnded:
    """Deleted, or with a reason, suspended."""

    uid: str
    active_until: int | None
    suspended: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamProgress:
    """What an epoch brought of one stream; `max_time`: the latest event time accepted. `jumped`: how many of the dead
    ones were refused for their jump."""

    stream: str
    tuples: int
    late: int
    dead: int
    max_time: int | None
    jumped: int = 0


# -- events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCreated:
    schema: StreamSchema
    source: ConnectorSpec
    position: Position
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDeleted:
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkReset:
    """An operator moved a stream's watermark back."""

    stream: str
    watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRestarted:
    """The stream is read from `position` on, as if nothing had been read before."""

    stream: str
    position: Position
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchApplied:
    """One query batch: queries in and out, and the changelog from the plan before to the plan after. `plan_pins`: all
    that is pinned from now on; None: nothing was pinned or released."""

    at_ms: int
    added: tuple[QueryAdded, ...]
    ended: tuple[QueryEnded, ...]
    changelog: Changelog
    savings: tuple[Saving, ...]
    plan_pins: Pins | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChanged:
    """A setting that an operator has changed while the platform ran; None: it is that of the configuration again."""

    name: str
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlanned:
    """Written before the epoch runs: with which plan, up to which offsets, and which watermarks it raises. `skipped` is
    empty then; `TuplesSkipped` adds to it."""

    epoch: int
    version: int
    at_ms: int
    ends: tuple[StreamEnd, ...]
    raised: tuple[RaisedWatermark, ...]
    skipped: tuple[SkippedTuples, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TuplesSkipped:
    """The planned epoch cannot end with these tuples: it is run without them, now and after every crash."""

    epoch: int
    skipped: tuple[SkippedTuples, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochCommitted:
    """Written when everything the epoch made is in place; from here on it counts.

    `views` replace views of older buckets (regrouping, new indexes), `stale` are joined buckets a plan change made
    useless. `postponed`: what the epoch left for later ones, with new `pins`; `resumed`: what it did of earlier ones'.
    `left_out`: queries that chose a sample, and of which the epoch left rows out. `blocks`: new ones; `lost_blocks`:
    names of those that are damaged, which nobody needs to repair.
    """

    epoch: int
    next_bucket: int
    next_source: int
    progress: tuple[StreamProgress, ...]
    letters: tuple[StreamLetter, ...]
    sources: tuple[SourceRef, ...]
    joined: tuple[JoinedRef, ...]
    views: tuple[ReplacedViews, ...]
    stale: tuple[int, ...]
    segments: tuple[Segment, ...]
    delivered: tuple[QueryRows, ...]
    seconds: tuple[StageSeconds, ...]
    partials: tuple[PartialRef, ...] = ()
    merged: tuple[str, ...] = ()
    overflows: tuple[QueryOverflows, ...] = ()
    postponed: tuple[Postponed, ...] = ()
    resumed: tuple[Resumed, ...] = ()
    pins: tuple[Pin, ...] = ()
    left_out: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()
    lost_blocks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketsRepaired:
    """Written when what was lost is in place again: source buckets with what replaces them, joined buckets that were
    thrown away, and those made instead; names of partial buckets that go (`unfolded`), and those folded instead."""

    next_bucket: int
    next_source: int
    sources: tuple[ReplacedBucket, ...]
    stale: tuple[int, ...]
    joined: tuple[JoinedRef, ...]
    unfolded: tuple[str, ...] = ()
    partials: tuple[PartialRef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsExpired:
    """Written before the results of these epochs are removed; `lost`: the last place each query loses by that."""

    epochs: tuple[int, ...]
    lost: tuple[LostResults, ...]


Event = (
    StreamCreated
    | StreamDeleted
    | WatermarkReset
    | StreamRestarted
    | BatchApplied
    | SettingChanged
    | EpochPlanned
    | TuplesSkipped
    | EpochCommitted
    | BucketsRepaired
    | ResultsExpired
)


def pins_to_json(pins: Pins) -> list[Any]:
    return [sorted(pins.orders), sorted(pins.groups), pins.scale]


def pins_from_json(value: Any) -> Pins:
    orders, groups, scale = value
    return Pins(frozenset(orders), frozenset(groups), scale)


register(StreamCreated, StreamDeleted, QueryAdded, QueryEnded, BatchApplied, EpochPlanned, StreamProgress)
register(EpochCommitted, ConnectorSpec, DeadLetter, SourceRef, Origin, ViewRef, JoinedRef, Segment, Cursor)
register(BucketsRepaired, ResultsExpired, WatermarkReset, StreamRestarted, Ahead)
register(BucketsRepaired, ResultsExpired, TuplesSkipped, SkippedTuples, Skip)
register(StreamEnd, RaisedWatermark, StreamLetter, ReplacedViews, ReplacedBucket)
register(Budget)
register_converted(AtLimit, str, AtLimit)
register(Postponed, Resumed, Pin, AliveSlots, InputBucket, Rest)
register(PartialRef, Block, QueryOverflows)
register(QueryRows, StageSeconds, LostResults, Saving)
register(SettingChanged)
register_converted(Pins, pins_to_json, pins_from_json)


def _offset(position: Position) -> Offset:
    return position.offset


register_converted(Position, _offset, Position.of)
