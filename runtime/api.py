"""The values that go into and come out of the engine; platform, service, CLI and replay use them too.

Requests go in as `Control` values, in batches; each gets an outcome (a value, or the exception it failed with). Times
are milliseconds: event time since the Unix epoch, None for "no bound".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from optimizer.model.query import Query
from optimizer.model.types import StreamSchema
from optimizer.policy.moves import Moves
from runtime.connectors.base import ConnectorSpec

if TYPE_CHECKING:
    from optimizer.beside import Found


class QueryState(StrEnum):
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    """It kept an epoch from ending, or somebody stopped it; it can be resumed or deleted."""
    DELETED = "DELETED"


class AtLimit(StrEnum):
    """What a query wants when its budget is used up: its rows later, fewer rows, or to be stopped."""

    PAUSE = "pause"
    SAMPLE = "sample"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Budget:
    """What a query may take at most; None: any amount. `rows`, `bytes` of results and `seconds` of tasks are per epoch,
    `retained_bytes` of results in the retention, `state_bytes` of buckets (its share). `latency`: how many seconds old
    its rows may be (runtime.engine.latency). That is a goal for the platform, which scales when it is missed; the query
    does not suffer for it. None: the platform's own."""

    rows: int | None = None
    bytes: int | None = None
    retained_bytes: int | None = None
    seconds: float | None = None
    state_bytes: int | None = None
    at_limit: AtLimit = AtLimit.PAUSE
    latency: float | None = None


NO_BUDGET = Budget()


class Usage(NamedTuple):
    """What a query has taken so far: bytes of results, of which so many are still kept, and its share of the tasks'
    time."""

    bytes: int = 0
    retained_bytes: int = 0
    seconds: float = 0.0


NOTHING_USED = Usage()


class Incomplete(NamedTuple):
    """Rows may be missing in windows that end after `after` (None: in all) and start at or before `until`."""

    after: int | None
    until: int | None


# -- controls: what a user can ask for between two epochs ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateQuery:
    """`sinks` are written besides the result log. `request`: a name of the request that is like no other's; the same
    again is answered with the query that it created, also after a restart. Empty: each is a new one."""

    id: str
    query: Query
    sinks: tuple[ConnectorSpec, ...] = ()
    budget: Budget = NO_BUDGET
    request: str = ""


@dataclass(frozen=True, slots=True)
class DeleteQuery:
    id: str


@dataclass(frozen=True, slots=True)
class SuspendQuery:
    """Stop it and keep its id; `reason` is told to people."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ResumeQuery:
    """Let a suspended query run again, from the next window on, as a new query with its id, SQL and sinks."""

    id: str


@dataclass(frozen=True, slots=True)
class ForceOrder:
    """Nested tuples of aliases, e.g. (("V", "W"), "C")."""

    id: str
    order: Any


@dataclass(frozen=True, slots=True)
class ForceGroups:
    groups: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ScaleTo:
    partitions: int


@dataclass(frozen=True, slots=True)
class SplitPartition:
    partition: int
    ways: int


@dataclass(frozen=True, slots=True)
class Unpin:
    """Release what was forced (orders and groups of these queries; `scale`: the partition function), so that the
    optimizer may change it again. Neither: release everything."""

    ids: tuple[str, ...] = ()
    scale: bool = False


@dataclass(frozen=True, slots=True)
class Adopt:
    """What an optimization has found that ran beside the epochs, None if there was none; as far as it is still valid
    (optimizer.beside). Then the partition function follows the load."""

    found: Found | None


@dataclass(frozen=True, slots=True)
class Optimize:
    """mode is 'full' or 'incremental'. `force`: apply whatever is better, without hysteresis (a person asked for it).

    `rescale`: let the optimizer change the partition function too.
    """

    mode: str
    force: bool = True
    rescale: bool = False


@dataclass(frozen=True, slots=True)
class MoveQueries:
    """To the places that were prepared for them."""

    moves: Moves


Control = (
    CreateQuery
    | DeleteQuery
    | SuspendQuery
    | ResumeQuery
    | ForceOrder
    | ForceGroups
    | ScaleTo
    | SplitPartition
    | Unpin
    | Adopt
    | Optimize
    | MoveQueries
)


# -- answers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """`backlog`: what waited, beyond what the last epoch took, counted in `backlog_unit`; `throttled`: it is not 0.
    `lag_ms`: how far the watermark trails the clock, where event time is wall-clock time. `latency_ms`: the age of the
    oldest tuple of the last epoch that read some, when that was committed."""

    schema: StreamSchema
    source: ConnectorSpec
    tuples: int = 0
    late_dropped: int = 0
    dead_letter: int = 0
    watermark: int | None = None
    max_event_time: int | None = None
    queries: tuple[str, ...] = ()
    backlog: int = 0
    backlog_unit: str = ""
    throttled: bool = False
    lag_ms: int | None = None
    latency_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """How far one sink of a query has come; `number` is its place among the query's sinks.

    `epochs_behind`, `rows_behind`: what the result log has and the sink has not (if rows were lost, at most so many).
    `error`: why the latest of `attempts` in a row failed, the first of them at `failing_since_ms`; empty: it works.
    `lost_epochs`: left the result log before the sink took them, since the platform was started. Times are wall-clock
    milliseconds.
    """

    query_id: str
    uid: str
    number: int
    kind: str
    epochs_behind: int = 0
    rows_behind: int = 0
    error: str = ""
    failing_since_ms: int | None = None
    attempts: int = 0
    last_success_ms: int | None = None
    lost_epochs: int = 0


@dataclass(frozen=True, slots=True)
class QueryInfo:
    """`plan_version` and `epoch`: from which plan and epoch on the query runs. `deliveries`: of its sinks, from the
    first commit on until they have ended.

    `lag_ms`: while it runs, how late its results are in event time: how far its watermark trails the highest of its
    streams' watermarks; None: it has none yet. `epochs_behind`: epochs since the first of which work of this query was
    put off, because it made more rows than an epoch has room for; 0: it keeps up. `budget`: what it may take, and
    `usage`: what it has taken. `incomplete`: where rows were left out because it chose a sample; None: nowhere.
    `overflows`: sums of integers that did not fit BIGINT and were delivered as NULL. `latency_ms`: how old its latest
    rows were when they could be read: at most so much, since their last tuple arrived; None: nothing was read yet."""

    id: str
    uid: str
    sql: str
    state: QueryState
    active_from: int | None
    active_until: int | None
    watermark: int | None
    rows: int
    plan_version: int
    epoch: int
    group: int
    outputs: tuple[str, ...] = ()
    sinks: tuple[ConnectorSpec, ...] = ()
    created_at_ms: int = 0
    deployment_latency_ms: int = 0
    deliveries: tuple[SinkStatus, ...] = ()
    suspended: str = ""
    """Why, if it is."""
    lag_ms: int | None = None
    epochs_behind: int = 0
    budget: Budget = NO_BUDGET
    usage: Usage = NOTHING_USED
    incomplete: Incomplete | None = None
    overflows: int = 0
    pins: tuple[str, ...] = ()
    """What of it somebody has forced, and the optimizer leaves alone: its join order, its group."""
    latency_ms: int | None = None


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """A place in a query's result log: everything up to and including (epoch, sequence) has been seen."""

    epoch: int
    sequence: int


LAST_SEQUENCE = (1 << 63) - 1
"""Behind every batch of an epoch."""


@dataclass(frozen=True, slots=True)
class ResultBatch:
    """Rows of one query: window_start and window_end first (timestamp[ms], positions (int64) of count windows, NULL
    without a window), of one that folds then its revision (int32), then the query's outputs."""

    query_id: str
    cursor: Cursor
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class EpochReport:
    """One epoch that was run. `latency_seconds`: the age of its oldest tuple when it was committed."""

    epoch: int
    version: int
    tuples: int
    rows: int
    seconds: Mapping[str, float]
    latency_seconds: float
    throttled: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanEvent:
    """One changelog as it happened: the plan version it led to, the first epoch that uses it, and what changed."""

    version: int
    epoch: int
    changes: tuple[str, ...]
    plan: str


@dataclass(frozen=True, slots=True)
class Optimization:
    """What the optimizer found. Costs and `gain` are estimates per second, as `explain` tells them; `gain` may be
    below 0 where heavy queries get groups of their own.

    `applied`: the plan changed, and `changes` happened; else they are what would happen. `would_apply`: in a
    dry run, whether the periodic optimizer would make this change by itself now (`reasons` say why, or why not).
    """

    plan_version: int
    changes: tuple[str, ...]
    cost_before: float
    cost_after: float
    gain: float
    reasons: tuple[str, ...]
    mode: str
    applied: bool
    would_apply: bool


@dataclass(frozen=True, slots=True)
class RunningSetting:
    """Of those that can be changed while the platform runs. `value`: now; `configured`: by file, environment or
    flag. `changed`: it was set while the platform ran."""

    name: str
    value: float
    configured: float
    description: str
    changed: bool


@dataclass(frozen=True, slots=True)
class DeadLetterInfo:
    stream: str
    epoch: int
    place: str
    reason: str
    text: str


class Traffic(NamedTuple):
    """What tasks asked of the store through the cache in this directory, as in ExecutorStatus."""

    cache: str
    requests: int
    fetched_bytes: int
    hit_bytes: int
    held_bytes: int


@dataclass(frozen=True, slots=True)
class ExecutorStatus:
    """An executor that is there. `executor`: its id in Spark. `partitions`: those it worked on when joins or folds of
    them last ran. What its tasks asked of the store: `fetched_bytes` in so many `requests`; `hit_bytes`: looked at and
    there already, once per process. `held_bytes`: in its cache, when it last ran a task; `cache`: the directory of it
    (empty: it has looked at nothing in a store that is fetched)."""

    executor: str
    host: str
    cores: int
    partitions: tuple[int, ...]
    requests: int
    fetched_bytes: int
    hit_bytes: int
    held_bytes: int
    cache: str


@dataclass(frozen=True, slots=True)
class PlatformStatus:
    """`latency_seconds`: the age of the oldest tuple of the last epoch when it was committed. `backlog` per stream and
    `throttled` streams as in StreamInfo; `lag_ms`: the greatest of any stream. `recovery_*`: the last opening. Only
    with a store: `store_bytes` there, `cache_bytes` of it on the driver's machine. `executors` of Spark; of a local
    master only with a store.
    `sinks`: how many there are; `sinks_behind`: those that fail or lack more than the newest epoch."""

    state: str
    epoch: int
    plan_version: int
    streams: int
    queries: int
    tuples: int
    rows: int
    buckets: int
    bucket_bytes: int
    epoch_seconds: float
    uptime_seconds: float
    stage_seconds: Mapping[str, float] = field(default_factory=dict)
    message: str = ""
    latency_seconds: float = 0.0
    backlog: Mapping[str, int] = field(default_factory=dict)
    throttled: tuple[str, ...] = ()
    lag_ms: int | None = None
    recovery_seconds: float = 0.0
    recovery_records: int = 0
    store_bytes: int = 0
    cache_bytes: int = 0
    overflows: int = 0
    sinks: int = 0
    sinks_behind: tuple[SinkStatus, ...] = ()
    executors: tuple[ExecutorStatus, ...] = ()
    pins: tuple[str, ...] = ()
    """What is pinned, one sentence each."""
