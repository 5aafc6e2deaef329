"""The read-only side of the engine: what streams, queries, plans and results look like, from any thread.

Everything here looks at values that the owning thread replaces and never changes, so a reader sees one consistent
value, perhaps an epoch old, and holds nobody up.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from optimizer.errors import FailedPrecondition, InternalError
from optimizer.explain.describe import describe
from optimizer.explain.explain import explain_plan, explain_query
from optimizer.model import changelog
from optimizer.model.plan import Plan, RunningQuery
from optimizer.model.query import JoinQuery
from optimizer.model.types import StreamSchema
from optimizer.optimize import Proposal
from optimizer.search.eager import create_delete
from runtime.api import (
    Cursor,
    DeadLetterInfo,
    PlanEvent,
    PlatformStatus,
    QueryInfo,
    QueryState,
    ResultBatch,
    StreamInfo,
)
from runtime.buckets.refs import BucketRef
from runtime.connectors.base import Source
from runtime.control.coordinator import Coordinator
from runtime.control.planner import Planner
from runtime.control.state import QueryRecord, State
from runtime.durable.keeper import Keeper
from runtime.engine.pressure import Pressure, lag_ms
from runtime.results.log import ResultLog
from runtime.results.schema import result_schema


@dataclass(frozen=True, slots=True)
class Recovery:
    """How much an opening had to look at: it grows with what is open, not with what ever happened."""

    seconds: float = 0.0
    records: int = 0
    buckets: int = 0
    bytes: int = 0

    def ended(self, s: State, seconds: float) -> Recovery:
        refs: list[BucketRef] = [*s.sources.values(), *s.joined.values()]
        return Recovery(seconds, self.records, len(refs), sum(r.bytes for r in refs))

    def __str__(self) -> str:
        return f"{self.records} log records, {self.buckets} buckets ({self.bytes:,} bytes) in {self.seconds:.2f} s"


class EngineReader:
    """What may be asked of an engine. The attributes are the engine's; this class only reads them."""

    coordinator: Coordinator
    planner: Planner
    clock: Callable[[], int]
    _opened: float
    _recovery: Recovery
    _keeper: Keeper | None
    _last_epoch_seconds: float
    _results: ResultLog
    _sources: dict[str, Source]
    _pressure: Pressure

    @property
    def state(self) -> State:
        return self.coordinator.state

    @property
    def plan(self) -> Plan:
        return self.state.plan

    @property
    def epoch(self) -> int:
        """The last committed epoch; 0 before the first."""
        return self.state.epoch

    def schemas(self) -> Mapping[str, StreamSchema]:
        return {name: st.schema for name, st in list(self.state.streams.items())}

    def streams(self) -> list[StreamInfo]:
        return [self.stream(name) for name in sorted(self.state.streams)]

    def stream(self, name: str) -> StreamInfo:
        st = self.coordinator.stream(name)
        users = sorted(
            r.query.id for r in list(self.state.queries.values()) if r.running and name in r.query.query.streams
        )
        source = self._sources.get(name)
        backlog = self._pressure.gauges.backlog.get(name, 0)
        return StreamInfo(
            st.schema,
            st.source,
            st.tuples,
            st.late,
            st.dead,
            st.watermark,
            st.max_time,
            tuple(users),
            backlog,
            source.unit if source else "",
            backlog > 0,
            lag_ms(self.clock(), st.watermark),
        )

    def queries(self) -> list[QueryInfo]:
        return [self._query_info(r) for r in list(self.state.queries.values())]

    def query(self, id: str, uid: str | None = None) -> QueryInfo:
        """The latest query of that id, or the one with that uid."""
        return self._query_info(self.coordinator.record(id, uid))

    def result_schema(self, id: str, uid: str | None = None) -> pa.Schema:
        """The columns of the query's result log."""
        return result_schema(self.coordinator.record(id, uid).query.query)

    def plan_events(self, after_version: int = 0) -> list[PlanEvent]:
        return [p for p in list(self.state.plans) if p.version > after_version]

    def dead_letters(self, stream: str | None = None) -> list[DeadLetterInfo]:
        return [
            DeadLetterInfo(name, epoch, letter.place, letter.reason, letter.text)
            for name, epoch, letter in list(self.state.letters)
            if stream in (None, name)
        ]

    def read_results(
        self, id: str, after: Cursor | None = None, limit: int = 64, uid: str | None = None
    ) -> list[ResultBatch]:
        """The next batches of the query's result log after the cursor (None: from the start of retention).

        An id can be used again after a deletion; `uid` says which of its queries is meant (None: the latest). A cursor
        with lost rows behind it is refused with CURSOR_EXPIRED: nothing is skipped in silence.
        """
        uid = self.coordinator.record(id, uid).query.uid
        while True:
            record = self.coordinator.record(id, uid)
            segments = dict(self.state.segments)  # taken before looking at what expired: it is set before they go
            gone = self.state.expired.get(uid)
            if after is not None and gone is not None and after < gone:
                raise expired(id, after, gone)
            if record.last is None or (after is not None and after >= record.last):
                return []  # it has waited for rows for long, perhaps, and need not look for them in every epoch
            first = record.epoch if after is None else max(record.epoch, after.epoch)
            epochs = list(segments)  # in order
            epochs = epochs[bisect_left(epochs, first) : bisect_right(epochs, record.last.epoch)]
            try:
                return self._results.read(id, uid, segments, epochs, after, limit)
            except FileNotFoundError as missing:
                if all(epoch in self.state.segments for epoch in segments):
                    raise InternalError(
                        f"the result log of query {id!r} has lost {missing.filename}",
                        reason="RESULTS_DAMAGED",
                        hint="put the file back from a copy of the state directory, or read on after its epoch",
                    ) from None

    def delivered(self, epoch: int) -> Iterator[ResultBatch]:
        """Everything one epoch delivered, for all queries, in delivery order."""
        ids = {uid: r.query.id for uid, r in list(self.state.queries.items())}
        yield from self._results.epoch(epoch, self.state.segments.get(epoch, ()), ids)

    def propose(self, mode: str) -> tuple[Proposal, tuple[str, ...]]:
        """A dry run of the optimizer: what it would do by itself now, and the changelog that would lead there.

        What it wants to remember is thrown away, so nothing changes.
        """
        running = self.state.running()
        proposal = self.planner.optimize(self.state.plan, running, mode, self.planner.memory, force=False)
        names = {uid: r.query.id for uid, r in self.state.queries.items()}
        log = changelog.diff(self.state.plan, proposal.candidate)
        savings = self.coordinator.savings(proposal.candidate, running)
        return proposal, describe(log, names, proposal.candidate, savings)

    def explain(
        self,
        *,
        id: str | None = None,
        candidate: JoinQuery | None = None,
        format: str = "text",
        shown: Callable[[RunningQuery], RunningQuery] | None = None,
    ) -> str:
        """A running query, a query that does not exist yet (how would it run?), or the whole plan.

        `shown` says how the running queries appear in it.
        """
        plan, queries, uid = self.state.plan, self.state.running(), None
        if candidate is not None:
            rq = RunningQuery("candidate#0", "candidate", candidate, None)
            uid, queries = rq.uid, queries | {rq.uid: rq}
            plan = create_delete(plan, [rq], ())
        elif id is not None:
            uid = self.coordinator.record(id).query.uid
        figures = self.planner.estimate(plan, queries)
        observed = self.planner.observed()
        if shown is not None:
            queries = {u: rq if u == "candidate#0" else shown(rq) for u, rq in queries.items()}
        if uid is None:
            return explain_plan(plan, queries, format, observed=observed, estimated=figures.combinations)
        cost = (figures.alone[uid], figures.shared[uid]) if uid in figures.alone else None
        return explain_query(plan, queries, uid, format, observed=observed, estimated=figures.combinations, cost=cost)

    def status(self) -> PlatformStatus:
        s = self.state
        sources, joined = list(s.sources.values()), list(s.joined.values())
        gauges, now = self._pressure.gauges, self.clock()
        lags = [lag_ms(now, st.watermark) for st in list(s.streams.values())]
        return PlatformStatus(
            state="RUNNING",
            epoch=s.epoch,
            plan_version=s.plan.version,
            streams=len(s.streams),
            queries=len(s.plan.placements),
            tuples=sum(st.tuples for st in list(s.streams.values())),
            rows=sum(r.rows for r in list(s.queries.values())),
            buckets=len(sources) + len(joined),
            bucket_bytes=sum(r.bytes for r in sources) + sum(r.bytes for r in joined),
            epoch_seconds=self._last_epoch_seconds,
            uptime_seconds=time.monotonic() - self._opened,
            stage_seconds=dict(s.seconds),
            latency_seconds=gauges.latency_seconds,
            backlog={name: gauges.backlog.get(name, 0) for name in sorted(s.streams)},
            throttled=tuple(name for name in gauges.throttled if name in s.streams),
            lag_ms=max((lag for lag in lags if lag is not None), default=None),
            recovery_seconds=self._recovery.seconds,
            recovery_records=self._recovery.records,
            **self._tier_figures(),
        )

    def _tier_figures(self) -> dict[str, Any]:
        if self._keeper is None:
            return {}
        fast = sum(sum(shelf.local().values()) for shelf in self._keeper.shelves.values())
        return {
            "fast_bytes": fast,
            "durable_bytes": self._keeper.durable_bytes(),
            "upload_seconds": self._keeper.upload_seconds,
        }

    def _query_info(self, r: QueryRecord) -> QueryInfo:
        rq = r.query
        return QueryInfo(
            rq.id,
            rq.uid,
            rq.query.sql,
            QueryState.RUNNING if r.running else QueryState.DELETED,
            rq.active_from,
            r.active_until,
            self.coordinator.watermark(rq) if r.running else r.active_until,
            r.rows,
            r.version,
            r.epoch,
            r.group,
            tuple(o.name for o in rq.query.outputs),
            r.sinks,
            r.at_ms,
        )


def expired(id: str, after: Cursor, gone: Cursor) -> FailedPrecondition:
    return FailedPrecondition(
        f"results of query {id!r} that follow the cursor {after.epoch}:{after.sequence} have left the retention",
        reason="CURSOR_EXPIRED",
        hint=f"start from the oldest that is kept, which is what follows {gone.epoch}:{gone.sequence}",
    )
