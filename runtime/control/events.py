"""What happened, as frozen values: the records of the log and the only things that change the coordinator's state.

Offsets are JSON texts: only their source can read them, everybody else compares them.
"""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.model.plan import RunningQuery
from optimizer.model.types import StreamSchema
from runtime.buckets.refs import JoinedRef, Origin, SourceRef, ViewRef
from runtime.connectors.base import ConnectorSpec, DeadLetter
from runtime.log.codec import register
from runtime.results.segment import Segment

FOREVER = 1 << 62
"""The watermark of a stream that will bring nothing more."""


@dataclass(frozen=True, slots=True)
class StreamCreated:
    schema: StreamSchema
    source: ConnectorSpec
    offset: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class StreamDeleted:
    name: str


@dataclass(frozen=True, slots=True)
class QueryAdded:
    query: RunningQuery
    sinks: tuple[ConnectorSpec, ...]


@dataclass(frozen=True, slots=True)
class QueryEnded:
    uid: str
    active_until: int | None


@dataclass(frozen=True, slots=True)
class BatchApplied:
    """One query batch: queries in and out, and the changelog (as JSON text) from the plan before to the plan after."""

    at_ms: int
    added: tuple[QueryAdded, ...]
    ended: tuple[QueryEnded, ...]
    changelog: str
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EpochPlanned:
    """Written before the epoch runs: with which plan, up to which offsets, which ids its buckets get."""

    epoch: int
    version: int
    at_ms: int
    ends: tuple[tuple[str, str], ...]
    raised: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class StreamProgress:
    stream: str
    tuples: int
    late: int
    dead: int
    max_time: int | None


@dataclass(frozen=True, slots=True)
class EpochCommitted:
    """Written when everything the epoch made is in place; from here on it counts.

    `views` replace views of older buckets (regrouping, new indexes), `stale` are joined buckets a plan change made
    useless, `delivered` what queries got: (query, rows, batches), `counts` what COUNT(*) queries found: (query,
    ((start of window, combinations), ...)).
    """

    epoch: int
    next_bucket: int
    next_source: int
    progress: tuple[StreamProgress, ...]
    letters: tuple[tuple[str, DeadLetter], ...]
    sources: tuple[SourceRef, ...]
    joined: tuple[JoinedRef, ...]
    views: tuple[tuple[int, tuple[ViewRef, ...]], ...]
    stale: tuple[int, ...]
    segments: tuple[Segment, ...]
    delivered: tuple[tuple[str, int, int], ...]
    seconds: tuple[tuple[str, float], ...]
    counts: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class BucketsRepaired:
    """Written when what was lost is in place again: damaged source buckets with what replaces them (None: nobody needs
    them any more), joined buckets that were thrown away, and those made instead.
    """

    next_bucket: int
    next_source: int
    sources: tuple[tuple[int, SourceRef | None], ...]
    stale: tuple[int, ...]
    joined: tuple[JoinedRef, ...]


@dataclass(frozen=True, slots=True)
class ResultsExpired:
    """Written before the results of these epochs are removed: `last` is the last place each query loses by that,
    (query, epoch, sequence)."""

    epochs: tuple[int, ...]
    last: tuple[tuple[str, int, int], ...]


Event = StreamCreated | StreamDeleted | BatchApplied | EpochPlanned | EpochCommitted | BucketsRepaired | ResultsExpired

register(StreamCreated, StreamDeleted, QueryAdded, QueryEnded, BatchApplied, EpochPlanned, StreamProgress)
register(EpochCommitted, ConnectorSpec, DeadLetter, SourceRef, Origin, ViewRef, JoinedRef, Segment)
register(BucketsRepaired, ResultsExpired)
