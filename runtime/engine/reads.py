"""What may be asked of an engine, from any thread: streams, queries, plans, results.

Each call takes the coordinator's state once. That is a frozen value of one moment, perhaps an epoch old; nothing in it
changes while it is looked at, and no thread waits for another.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from optimizer.errors import FailedPrecondition
from optimizer.explain.describe import describe, first_few
from optimizer.explain.explain import explain_plan, explain_query
from optimizer.explain.folds import Folds
from optimizer.model import changelog
from optimizer.model.plan import Plan, RunningQuery
from optimizer.model.query import Query
from optimizer.model.types import StreamSchema
from optimizer.model.windows import AlignedWindow
from optimizer.optimize import Proposal
from optimizer.search.eager import create_delete
from runtime.api import (
    Cursor,
    DeadLetterInfo,
    PlanEvent,
    PlatformStatus,
    QueryInfo,
    ResultBatch,
    StreamInfo,
)
from runtime.buckets.refs import BucketRef, PartialRef
from runtime.control.state import QueryRecord, State, query_lag
from runtime.control.steering import Steering
from runtime.engine.loop import EpochLoop
from runtime.engine.opening import Recovery
from runtime.engine.parts import Parts
from runtime.engine.plan_history import PlanHistory
from runtime.engine.pressure import lag_ms
from runtime.results.log import is_past
from runtime.results.schema import result_schema


class EngineReads:
    def __init__(self, parts: Parts, epochs: EpochLoop, recovery: Recovery, opened: float) -> None:
        """`opened`: when the engine was opened, on the monotonic clock."""
        self._parts, self._epochs, self._recovery, self._opened = parts, epochs, recovery, opened
        self._history = PlanHistory()

    @property
    def state(self) -> State:
        return self._parts.coordinator.state

    @property
    def plan(self) -> Plan:
        return self.state.plan

    def steering(self) -> Steering:
        """How the optimizer behaves now: the configuration, and what was changed since."""
        return self._parts.config.steering.changed(self.state.settings)

    def schemas(self) -> Mapping[str, StreamSchema]:
        return {name: st.schema for name, st in self.state.streams.items()}

    def streams(self) -> list[StreamInfo]:
        return [self.stream(name) for name in sorted(self.state.streams)]

    def stream(self, name: str) -> StreamInfo:
        st = self._parts.coordinator.stream(name)
        users = sorted(rq.id for rq in self.state.running.values() if name in rq.query.streams)
        source = self._parts.sources.opened.get(name)
        backlog = self._epochs.pressure.gauges.backlog.get(name, 0)
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
            lag_ms(self._parts.clock(), st.watermark),
            self._epochs.latencies.of_stream(name),
        )

    def queries(self) -> list[QueryInfo]:
        state = self.state
        return [self.query_info(state, r) for r in state.queries.values()]

    def queries_behind(self) -> list[QueryInfo]:
        """Those of which work was put off."""
        state = self.state
        return [self.query_info(state, state.queries[uid]) for uid in sorted(state.epochs_behind)]

    def queries_with_gaps(self) -> list[QueryInfo]:
        """Those of which rows were left out in windows that are still open."""
        state = self.state
        return [self.query_info(state, r) for r in state.queries.values() if r.running and has_open_gap(state, r)]

    def query(self, id: str, uid: str | None = None) -> QueryInfo:
        """The latest query of that id, or the one with that uid."""
        return self.query_info(self.state, self._parts.coordinator.record(id, uid))

    def result_schema(self, id: str, uid: str | None = None) -> pa.Schema:
        """The columns of the query's result log."""
        return result_schema(self._parts.coordinator.record(id, uid).query.query)

    def plan_events(self, after_version: int = 0) -> list[PlanEvent]:
        return self._history.events(self.state, after_version)

    def dead_letters(self, stream: str | None = None) -> list[DeadLetterInfo]:
        return [
            DeadLetterInfo(name, epoch, letter.place, letter.reason, letter.text)
            for name, epoch, letter in self.state.letters
            if stream in (None, name)
        ]

    def has_results(self, id: str, after: Cursor | None = None, uid: str | None = None) -> bool:
        """Would `read_results` find a batch, or refuse the cursor? Looks at no file."""
        record = self._parts.coordinator.record(id, uid)
        gone = self.state.expired.get(record.query.uid)
        if after is not None and gone is not None and after < gone:
            raise cursor_expired(id, after, gone)
        return record.last is not None and (after is None or after < record.last)

    def read_results(
        self, id: str, after: Cursor | None = None, limit: int = 64, uid: str | None = None
    ) -> list[ResultBatch]:
        """The next batches of the query's result log after the cursor (None: from the start of retention).

        An id can be used again after a deletion; `uid` says which of its queries is meant (None: the latest). A cursor
        with lost rows behind it is refused with CURSOR_EXPIRED: nothing is skipped in silence. Less than `limit` is not
        the end, an empty answer is: batches before a damaged place come first, then RESULTS_DAMAGED with the cursor to
        go on after.
        """
        uid = self._parts.coordinator.record(id, uid).query.uid
        while True:
            state = self.state
            record, gone = state.queries.get(uid), state.expired.get(uid)
            if record is None:  # forgotten since
                record = self._parts.coordinator.record(id, uid)
            if after is not None and gone is not None and after < gone:
                raise cursor_expired(id, after, gone)
            if record.last is None or (after is not None and is_past(after, record.last)):
                return []  # nothing after the cursor: known without opening a segment
            first = record.epoch if after is None else max(record.epoch, after.epoch)
            epochs = list(state.segments)  # in order
            epochs = epochs[bisect_left(epochs, first) : bisect_right(epochs, record.last.epoch)]
            try:
                return self._parts.results.read(id, uid, state.segments, epochs, after, limit)
            except FileNotFoundError as missing:
                if all(epoch in self.state.segments for epoch in state.segments):
                    raise self._parts.results.lost(id, state.segments, epochs, missing.filename) from None

    def delivered(self, epoch: int) -> Iterator[ResultBatch]:
        """Everything one epoch delivered, for all queries, in delivery order."""
        yield from self._parts.results.epoch(epoch, self.state.segments.get(epoch, ()))

    def propose(self, mode: str) -> tuple[Proposal, tuple[str, ...]]:
        """A dry run of the optimizer: what it would do by itself now, and the changelog that would lead there.

        What it wants to remember is thrown away, so nothing changes.
        """
        s, planner = self.state, self._parts.planner
        proposal = planner.optimize(s.plan, s.running, mode, planner.memory, s.epochs_behind, s.plan_pins, force=False)
        names = {uid: r.query.id for uid, r in s.queries.items()}
        log = changelog.diff(s.plan, proposal.candidate)
        savings = self._parts.coordinator.savings(proposal.candidate, s.running)
        return proposal, describe(log, names, proposal.candidate, savings)

    def explain(
        self,
        *,
        id: str | None = None,
        candidate: Query | None = None,
        format: str = "text",
        shown: Callable[[RunningQuery], RunningQuery | None] | None = None,
    ) -> str:
        """A running query, a query that does not exist yet (how would it run?), or the whole plan.

        `shown` says how a running query appears in it; None: it is only counted. Then the plan's version, which moves
        with every query, is not told either.
        """
        state, uid = self.state, None
        pins = state.plan_pins
        plan, queries = state.plan, dict(state.running)
        apart = self._parts.planner.apart(plan, state.epochs_behind)
        if candidate is not None:
            rq = RunningQuery("candidate#0", "candidate", candidate, None)
            uid, queries = rq.uid, queries | {rq.uid: rq}
            plan = create_delete(plan, [rq], (), apart, queries)
        elif id is not None:
            uid = self._parts.coordinator.record(id).query.uid
        figures = self._parts.planner.estimate(plan, queries)
        observed = self._parts.planner.observed()
        folds = Folds.of(queries, self._parts.planner.statistics.fold)
        if shown is not None:
            plan = replace(plan, version=0)
            looked = ((u, rq if u == "candidate#0" else shown(rq)) for u, rq in queries.items())
            queries = {u: rq for u, rq in looked if rq is not None}
        expected = figures.combinations
        if uid is None:
            return explain_plan(
                plan, queries, format, observed=observed, estimated=expected, apart=apart, folds=folds, pins=pins
            )
        cost = (figures.alone[uid], figures.shared[uid]) if uid in figures.alone else None
        return explain_query(
            plan,
            queries,
            uid,
            format,
            observed=observed,
            estimated=expected,
            cost=cost,
            apart=apart,
            folds=folds,
            pins=pins,
        )

    def status(self) -> PlatformStatus:
        s = self.state
        refs: list[BucketRef | PartialRef] = [*s.sources.values(), *s.joined.values(), *s.partials.values()]
        gauges, now = self._epochs.pressure.gauges, self._parts.clock()
        lags = [lag_ms(now, st.watermark) for st in s.streams.values()]
        kept = self._parts.store.figures(self.state)
        return PlatformStatus(
            state="RUNNING",
            epoch=s.epoch,
            plan_version=s.plan.version,
            streams=len(s.streams),
            queries=len(s.plan.placements),
            tuples=sum(st.tuples for st in s.streams.values()),
            rows=sum(r.rows for r in s.queries.values()),
            overflows=sum(r.overflows for r in s.queries.values()),
            buckets=len(refs),
            bucket_bytes=sum(r.bytes for r in refs),
            epoch_seconds=self._epochs.last_seconds,
            uptime_seconds=time.monotonic() - self._opened,
            stage_seconds=dict(s.seconds),
            latency_seconds=gauges.latency_seconds,
            backlog={name: gauges.backlog.get(name, 0) for name in sorted(s.streams)},
            throttled=tuple(name for name in gauges.throttled if name in s.streams),
            lag_ms=max((lag for lag in lags if lag is not None), default=None),
            recovery_seconds=self._recovery.seconds,
            recovery_records=self._recovery.records,
            sinks=self._parts.deliveries.count,
            sinks_behind=self._parts.deliveries.behind(),
            store_bytes=kept.store_bytes,
            cache_bytes=kept.cache_bytes,
            executors=self._parts.exchange.executors(s.plan.partitioning.count),
            pins=pinned_text(s),
        )

    def query_info(self, state: State, r: QueryRecord) -> QueryInfo:
        rq = r.query
        watermark = state.watermark(rq) if r.running else r.active_until
        return QueryInfo(
            rq.id,
            rq.uid,
            rq.query.sql,
            r.state,
            rq.active_from,
            r.active_until,
            watermark,
            r.rows,
            r.version,
            r.epoch,
            r.group,
            tuple(o.name for o in rq.query.outputs),
            r.sinks,
            r.at_ms,
            deliveries=self._parts.deliveries.of(rq.uid, len(r.sinks)),
            suspended="" if r.suspended is None else r.suspended.reason,
            lag_ms=query_lag(state.streams, rq, watermark) if r.running else None,
            epochs_behind=state.epochs_behind.get(rq.uid, 0),
            budget=r.budget,
            usage=r.usage,
            incomplete=r.incomplete,
            overflows=r.overflows,
            pins=state.plan_pins.of(rq.uid) if r.running else (),
            latency_ms=self._epochs.latencies.of_query(rq, r.epoch) if r.running else None,
        )


def pinned_text(state: State) -> tuple[str, ...]:
    """What is pinned, one sentence each; of many queries the first are named."""
    pins, queries = state.plan_pins, state.queries
    orders, groups = (sorted(queries[uid].query.id for uid in uids) for uids in (pins.orders, pins.groups))
    told = [f"the join order of {first_few(orders, 10)}"] if orders else []
    told += [f"the group of {first_few(groups, 10)}"] if groups else []
    return (*told, *(["the partition function"] if pins.scale else []))


def has_open_gap(state: State, record: QueryRecord) -> bool:
    gap = record.incomplete
    if gap is None:
        return False
    mark, window = state.watermark(record.query), record.query.query.window
    if gap.until is None or mark is None:
        return True
    return window.end(gap.until) > mark if isinstance(window, AlignedWindow) else gap.until > mark


def cursor_expired(id: str, after: Cursor, gone: Cursor) -> FailedPrecondition:
    return FailedPrecondition(
        f"results of query {id!r} that follow the cursor {after.epoch}:{after.sequence} have left the retention",
        reason="CURSOR_EXPIRED",
        hint=f"start from the oldest that is kept, which is what follows {gone.epoch}:{gone.sequence}",
    )
