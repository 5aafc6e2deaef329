"""The coordinator's state: everything that must survive a crash, and nothing else.

It is the fold of the event log (fold.py), a frozen value: every event leads to a new one, and what did not change is
the same object in both. So a reader on any thread that takes a reference holds one consistent state for as long as
it likes. It holds facts; texts for people are made from it on request (optimizer.explain).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from optimizer.model.changelog import Changelog
from optimizer.model.pins import NO_PINS, Pins
from optimizer.model.plan import Plan, RunningQuery
from optimizer.model.types import StreamSchema
from runtime.api import NO_BUDGET, NOTHING_USED, Budget, Cursor, Incomplete, QueryState, Usage
from runtime.buckets.refs import Ahead, Block, BucketRef, JoinedRef, PartialRef, SourceRef
from runtime.connectors.base import ConnectorSpec, DeadLetter
from runtime.connectors.position import Position
from runtime.control import postponed
from runtime.control.events import EpochPlanned, Saving
from runtime.control.postponed import Postponed
from runtime.log.codec import decode, encode, register
from runtime.operators.closing import Mark
from runtime.results.segment import Segment

LATEST = 1 << 60
"""Every event time is less than that (runtime.operators.source)."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """`accept_from` follows from the watermark that the last epoch left. `jumped`: tuples refused for their jump since
    the last epoch that accepted any. `since_ms`: when it was created, or read anew from another place on."""

    schema: StreamSchema
    source: ConnectorSpec
    position: Position
    last_data_ms: int
    tuples: int = 0
    late: int = 0
    dead: int = 0
    max_time: int | None = None
    watermark: int | None = None
    idle: bool = False
    jumped: int = 0
    since_ms: int = 0

    @property
    def accept_from(self) -> int | None:
        """Earliest event time still accepted."""
        return None if self.watermark is None else self.watermark - self.schema.allowed_lateness_ms

    def ahead(self, at_ms: int) -> Ahead:
        """What decides in an epoch of that wall-clock time whether a tuple is too far ahead."""
        bound = self.schema.max_ahead_ms
        until = None if bound is None else min(at_ms + bound, LATEST)
        if self.schema.max_jump_ms is None:
            return Ahead(until)
        return Ahead(until, self.max_time, self.jumped)


class Suspension(NamedTuple):
    """Why a query was stopped, and the first epoch without it."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """`version` and `epoch`: the first plan that has it, the first epoch it takes part in. `last`: the place of its
    latest rows in its result log. `work`: rows that were counted for it before they were made, while it or somebody
    else had a budget that needs it. `incomplete`: where rows were left out because it chose a sample. `fold`: under
    which name its partials are, if it folds; `overflows`: sums that did not fit BIGINT and are NULL. `debt`: how
    many epochs of its budget it has used beyond it. `request`: who asked for it, if that was said."""

    query: RunningQuery
    sinks: tuple[ConnectorSpec, ...]
    at_ms: int
    version: int
    epoch: int
    group: int
    running: bool = True
    active_until: int | None = None
    rows: int = 0
    last: Cursor | None = None
    suspended: Suspension | None = None
    budget: Budget = NO_BUDGET
    usage: Usage = NOTHING_USED
    work: int = 0
    incomplete: Incomplete | None = None
    fold: str = ""
    overflows: int = 0
    debt: float = 0.0
    request: str = ""

    @property
    def state(self) -> QueryState:
        if self.running:
            return QueryState.RUNNING
        return QueryState.DELETED if self.suspended is None else QueryState.SUSPENDED


@dataclass(frozen=True, slots=True)
class PlanChange:
    """One changelog as it happened; `epoch` is the first that runs with it."""

    epoch: int
    changelog: Changelog
    savings: tuple[Saving, ...]

    @property
    def version(self) -> int:
        return self.changelog.to_version


class LetterRecord(NamedTuple):
    stream: str
    epoch: int
    letter: DeadLetter


SlotTable = Mapping[int, str]


@dataclass(frozen=True)
class State:
    """`platform`: a random id, chosen when the state was new, which every file of it carries: a file of another
    platform is not mistaken for one of this.

    `slots[version][group]`: slot tables of all plan versions that open buckets refer to.

    `floors[uid]`: start of the query's first window still alive; older state is gone. It never moves back, even when
    a stream that was idle comes back and lowers the watermark. `expired[uid]`: the last place in the query's result log
    that retention has removed. `postponed`: work for later epochs, by number, oldest first, and `pins`: the buckets it
    needs (runtime.control.postponed). `partials`: what queries that fold have open, by file name; `marks`: how far each
    of them has come (runtime.control.marks); `blocks`: partials combined ahead for long windows, by name, which may be
    lost at any time. `plans`: the latest changelogs, which lead from `oldest_plan` to `plan`. `plan_pins`: what of the
    plan somebody has forced; `settings`: those that were changed while the platform ran.
    """

    platform: str = ""
    epoch: int = 0
    next_bucket: int = 1
    next_source: int = 1
    serial: int = 0
    plan: Plan = field(default_factory=Plan)
    executed: Plan = field(default_factory=Plan)
    streams: Mapping[str, StreamState] = field(default_factory=dict)
    queries: Mapping[str, QueryRecord] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    slots: Mapping[int, Mapping[int, SlotTable]] = field(default_factory=dict)
    sources: Mapping[int, SourceRef] = field(default_factory=dict)
    joined: Mapping[int, JoinedRef] = field(default_factory=dict)
    segments: Mapping[int, tuple[Segment, ...]] = field(default_factory=dict)
    letters: tuple[LetterRecord, ...] = ()
    plans: tuple[PlanChange, ...] = ()
    oldest_plan: Plan = field(default_factory=Plan)
    plan_pins: Pins = NO_PINS
    settings: Mapping[str, float] = field(default_factory=dict)
    planned: EpochPlanned | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    floors: Mapping[str, int] = field(default_factory=dict)
    expired: Mapping[str, Cursor] = field(default_factory=dict)
    partials: Mapping[str, PartialRef] = field(default_factory=dict)
    marks: Mapping[str, tuple[Mark, ...]] = field(default_factory=dict)
    blocks: Mapping[str, Block] = field(default_factory=dict)
    postponed: Mapping[int, Postponed] = field(default_factory=dict)
    pins: Mapping[int, BucketRef] = field(default_factory=dict)

    @cached_property
    def running(self) -> Mapping[str, RunningQuery]:
        """Running queries by uid."""
        return {uid: r.query for uid, r in self.queries.items() if r.running}

    @cached_property
    def behind(self) -> Mapping[str, int]:
        """Per query that has postponed work: since which epoch."""
        return {uid: epoch for uid, epoch in postponed.behind(self.postponed).items() if uid in self.running}

    @cached_property
    def epochs_behind(self) -> Mapping[str, int]:
        """Per query that has postponed work: of how many epochs."""
        return {uid: max(self.epoch - since + 1, 1) for uid, since in self.behind.items() if uid in self.running}

    @cached_property
    def bucket_files(self) -> frozenset[str]:
        """The names of all bucket files that belong to it."""
        open_ones = {f for r in self.sources.values() for f in r.files} | {r.file for r in self.joined.values()}
        blocks = {f for b in self.blocks.values() for f in b.files}
        return postponed.pinned_files(self.pins.values()) | open_ones | self.partials.keys() | blocks

    def watermark(self, query: RunningQuery) -> int | None:
        """Up to where a running query's windows are complete."""
        return postponed.held_back(self.postponed, query.uid, query_watermark(self.streams, query))

    @cached_property
    def segment_files(self) -> frozenset[str]:
        return frozenset(s.file for segments in self.segments.values() for s in segments)

    def to_json(self) -> Any:
        return encode(self)

    @staticmethod
    def from_json(value: Any) -> State:
        state = decode(value)
        assert isinstance(state, State)
        return state


register(StreamState, Suspension, Usage, Incomplete, QueryRecord, PlanChange, LetterRecord, Mark, State)


def query_watermark(streams: Mapping[str, StreamState], query: RunningQuery) -> int | None:
    """Of a query's streams: the minimum over those that are not idle; None (minus infinity) when one has none."""
    marks = _watermarks(streams, query)
    known = [m for m in marks if m is not None]
    return min(known) if known and len(known) == len(marks) else None


def query_lag(streams: Mapping[str, StreamState], query: RunningQuery, watermark: int | None) -> int | None:
    """How late the query's results are, in event time: from its own watermark to the highest one of its streams.

    0 for a query that keeps up with streams which run side by side. Otherwise it waits for a slow stream, or for work
    of its own that was put off. The delay that a stream was declared with is not in it: that is no work anybody could
    catch up with. None: the query has no watermark yet.
    """
    known = [m for m in _watermarks(streams, query) if m is not None]
    return max(0, max(known) - watermark) if known and watermark is not None else None


def _watermarks(streams: Mapping[str, StreamState], query: RunningQuery) -> list[int | None]:
    """Of the query's streams; of idle ones only if all are idle."""
    mine = [streams[s] for s in query.query.streams if s in streams]
    return [s.watermark for s in mine if not s.idle] or [s.watermark for s in mine]
