"""The control plane: a state machine without I/O.

`decide_*` looks at the state and says what should happen, as an event; `handle` (fold.py) says which state follows
from an event, and nothing else changes it. The engine writes the event to the log in between, so whatever the state
says is on disk, and recovery is handling the logged events again. No clock, no files, no Spark: thousands of lives run
in a test.

The paper's atomic consistency protocol (agree on a bucket id, ingest the changelog after it everywhere or nowhere) is
here the order of the log: a changelog stands between two epochs, and an epoch names the plan version it runs with.
The paper's non-atomic variant has no counterpart, because on micro-batches coordination is free.

Watermarks and lifetimes follow the semantics page: a query's watermark is the minimum over its streams; T is one more
than the greatest event time accepted on any of its streams when it is created, and its first window starts at or
after T.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from optimizer.errors import AJoinError, AlreadyExists, NotFound
from optimizer.model.plan import Plan, RunningQuery
from optimizer.model.types import StreamSchema
from optimizer.policy.scaling import Machines
from runtime.api import Control
from runtime.connectors.base import ConnectorSpec
from runtime.connectors.position import Position
from runtime.control import rewind
from runtime.control.batch import Batch, BatchDecision
from runtime.control.events import (
    EpochPlanned,
    Event,
    RaisedWatermark,
    StreamCreated,
    StreamDeleted,
    StreamEnd,
    StreamRestarted,
    WatermarkReset,
)
from runtime.control.fold import handle
from runtime.control.planner import Planner
from runtime.control.state import QueryRecord, State, StreamState

PRICED_QUERIES, PRICED_LEAVES = 30, 4


class Coordinator:
    """Owns the state; asks the planner for plans."""

    def __init__(
        self,
        state: State | None = None,
        *,
        planner: Planner | None = None,
        machines: Machines | None = None,
        max_cost: float | None = None,
    ) -> None:
        self.state = state or State()
        self.planner = planner or Planner()
        self.machines = machines or Machines()
        self.max_cost = max_cost

    # -- decisions ------------------------------------------------------------------------------------------------

    def decide_stream(
        self, schema: StreamSchema, source: ConnectorSpec, position: Position, now_ms: int
    ) -> StreamCreated:
        if schema.name in self.state.streams:
            raise AlreadyExists(f"stream {schema.name!r} exists already", reason="STREAM_EXISTS")
        return StreamCreated(schema=schema, source=source, position=position, at_ms=now_ms)

    def decide_stream_deletion(self, name: str) -> StreamDeleted:
        self.stream(name)
        rewind.check_unused(self.state, name, "delete these queries first")
        return StreamDeleted(name=name)

    def decide_watermark_reset(self, name: str, to: int) -> WatermarkReset:
        return rewind.reset_watermark(self.state, self.stream(name), to)

    def decide_restart(self, name: str, position: Position, now_ms: int) -> StreamRestarted:
        return rewind.restart(self.state, self.stream(name), position, now_ms)

    def decide_batch(self, batch: Sequence[Control | AJoinError], now_ms: int) -> BatchDecision:
        """At most one changelog for the whole batch. Controls act in their order; one that is refused changes nothing,
        and a refusal in the batch is its own outcome.
        """
        return Batch(self, self.state).decide(batch, now_ms)

    def decide_epoch(self, ends: Mapping[str, Position], raised: Mapping[str, int], now_ms: int) -> EpochPlanned:
        s = self.state
        return EpochPlanned(
            epoch=s.epoch + 1,
            version=s.plan.version,
            at_ms=now_ms,
            ends=tuple(StreamEnd(*end) for end in sorted(ends.items())),
            raised=tuple(RaisedWatermark(*mark) for mark in sorted(raised.items())),
        )

    # -- looking --------------------------------------------------------------------------------------------------

    def stream(self, name: str) -> StreamState:
        stream = self.state.streams.get(name)
        if stream is None:
            known = ", ".join(sorted(self.state.streams)) or "none yet"
            raise NotFound(f"there is no stream {name!r}", reason="STREAM_NOT_FOUND", hint=f"known streams: {known}")
        return stream

    def record(self, id: str, uid: str | None = None) -> QueryRecord:
        """The latest query of that id; with a uid, the one that had it."""
        record = self.state.queries.get(uid or self.state.names.get(id, ""))
        if record is None or record.query.id != id:
            which = f" with uid {uid!r}" if uid else ""
            raise NotFound(f"there is no query {id!r}{which}", reason="QUERY_NOT_FOUND")
        return record

    def savings(self, plan: Plan, running: Mapping[str, RunningQuery]) -> dict[str, float]:
        """Which part of its own cost each query is spared. Only told to people, so not asked where it takes long."""
        widest = max((len(p.root.leaves) for p in plan.placements), default=0)
        if not plan.placements or widest > PRICED_LEAVES or len(plan.placements) > PRICED_QUERIES:
            return {}
        costs = self.planner.estimate(plan, running)
        return {uid: 1 - costs.shared[uid] / alone for uid, alone in costs.alone.items() if alone > 0}

    # -- events ---------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> tuple[str, ...]:
        """Take the state after the event; returns the names of files that are not needed any more."""
        self.state, unneeded = handle(self.state, event)
        return unneeded
