"""The platform: one engine that any thread may use.

Changes return a Future that is resolved when they have taken effect (the changelog is on disk); reads answer
at once from what is committed. A Future always ends: with its outcome, with Unavailable when the platform
stops first, or with InternalError when an epoch fails. What is wrong with a request itself is found here, on
the caller's thread; the engine thread (engine_thread.py) only sees requests that can be tried.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from ajoin.platform import catalog
from ajoin.platform.batch import Applied, Outcome
from ajoin.platform.budgets import granted
from ajoin.platform.catalog import Limits
from ajoin.platform.engine_thread import EngineThread, Pace, PlatformState, is_taken
from ajoin.platform.mailbox import BatchItem, BatchRequest, EngineCall
from ajoin.platform.sink_checks import SinkChecks
from ajoin.platform.statistics import Statistics
from ajoin.platform.tenancy import NO_QUOTA, Quota, Scope, check_quota
from ajoin.sql import admit
from optimizer.beside import Situation
from optimizer.errors import AJoinError, FailedPrecondition, NotFound
from optimizer.model.plan import RunningQuery
from optimizer.model.types import StreamSchema
from runtime.api import (
    NO_BUDGET,
    Budget,
    Control,
    CreateQuery,
    Cursor,
    DeadLetterInfo,
    DeleteQuery,
    Optimization,
    PlanEvent,
    PlatformStatus,
    QueryInfo,
    QueryState,
    ResultBatch,
    ResumeQuery,
    StreamInfo,
    SuspendQuery,
)
from runtime.connectors.base import ConnectorSpec
from runtime.control.steering import Steering
from runtime.engine.engine import Engine
from runtime.plugins import vocabulary
from runtime.results.schema import result_schema

T = TypeVar("T")


class Wanted(NamedTuple):
    """A query that is asked for; an empty id: the platform chooses one. `request`: as in CreateQuery."""

    id: str
    sql: str
    sinks: Sequence[ConnectorSpec] = ()
    budget: Budget = NO_BUDGET
    request: str = ""


DEFAULT_PACE = Pace()
DEFAULT_LIMITS = Limits()


class Platform:
    """`clock` gives wall-clock milliseconds, `monotonic` seconds for pacing."""

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
        pace: Pace = DEFAULT_PACE,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self.limits = limits
        self._thread = EngineThread(engine, clock=clock, monotonic=monotonic, pace=pace, limits=limits)
        self._ids = threading.Lock()
        self._last_id: Counter[str] = Counter()

    # -- life --

    def start(self) -> Platform:
        self._thread.start()
        return self

    def stop(self, *, graceful: bool = True) -> None:
        """Finish the running epoch, answer what waits with Unavailable, close the engine. A second call does nothing.

        Not graceful: like a kill, without a snapshot and without waiting for sinks.
        """
        self._thread.stop(graceful)

    def __enter__(self) -> Platform:
        return self.start() if self.state == PlatformState.STARTING else self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def state(self) -> PlatformState:
        return self._thread.state

    @property
    def is_taken(self) -> bool:
        """Has another platform taken over? Then this one has failed."""
        return is_taken(self._thread.failure)

    def failure(self) -> AJoinError:
        """Why it has failed: what its callers are told."""
        assert self._thread.failure is not None, "only a platform that has failed has a failure"
        return copy(self._thread.failure)  # what is raised collects frames, and would keep them

    # -- changes: from any thread; the Future is resolved between two epochs --

    def create_stream(
        self, schema: StreamSchema, source: ConnectorSpec, tenant: str = "", quota: int | None = None
    ) -> Future[StreamInfo]:
        """All may read the stream; `tenant` declares it, and may have declared `quota` of those there are.

        A bound on event times that is not given is the platform's (`Limits.ahead_ms`); 0 means none.
        """
        ahead = self.limits.ahead_ms if schema.max_ahead_ms is None else schema.max_ahead_ms
        bounded = replace(schema, owner=tenant, max_ahead_ms=ahead or None, max_jump_ms=schema.max_jump_ms or None)

        def declare() -> StreamInfo:
            check_quota(tenant, "streams", sum(s.owner == tenant for s in self._engine.schemas().values()), quota)
            return self._engine.create_stream(bounded, source)

        catalog.check_stream(schema, self.limits)
        catalog.check_source(source, schema, self._engine.config.allowed_roots)
        catalog.check_room("streams", len(self._engine.streams()), 1, self.limits.streams)
        return self._call(declare)

    def delete_stream(self, name: str) -> Future[None]:
        return self._call(lambda: self._engine.delete_stream(name), creates=False)

    def reset_watermark(self, name: str, to: int) -> Future[StreamInfo]:
        """Move a stream's watermark back; WATERMARK_IN_USE if a running query has closed a window by it."""
        return self._call(lambda: self._engine.reset_watermark(name, to), creates=False)

    def restart_stream(self, name: str, at: str | None = None) -> Future[StreamInfo]:
        """Read a stream from `earliest`, `latest` or an offset on; None: from where it stands. STREAM_IN_USE while
        running queries read it."""
        return self._call(lambda: self._engine.restart_stream(name, at), creates=False)

    def create_queries(
        self,
        wanted: Sequence[Wanted],
        tenant: str = "",
        quota: Quota = NO_QUOTA,
    ) -> Future[list[Outcome]]:
        """One outcome each: a QueryInfo or the error.

        Ids are the tenant's own (tenancy.py); `quota`: how many queries it may have running, and what each of them may
        take. Asking the sinks may take some seconds, in which the caller waits (sink_checks.py).
        """
        arrived = self._clock()
        schemas = self._engine.schemas()
        sinks = SinkChecks(self._engine.config.allowed_roots)
        cap = quota.budget if tenant else self.limits.budget
        items = [self._compile(w, cap, schemas, Scope(tenant), sinks) for w in wanted]
        return self._request([replace(item, quota=quota.queries) for item in items], arrived)

    def create_query(
        self, sql: str, id: str = "", sinks: Sequence[ConnectorSpec] = (), budget: Budget = NO_BUDGET
    ) -> QueryInfo:
        """Blocks until the query runs; raises what it was refused with."""
        info: QueryInfo = only(self.create_queries([Wanted(id, sql, sinks, budget)]).result())
        return info

    def delete_queries(self, ids: Sequence[str]) -> Future[list[Outcome]]:
        return self._request([BatchItem(DeleteQuery(id)) for id in ids], self._clock())

    def suspend_query(self, id: str, reason: str = "") -> Future[list[Outcome]]:
        """Its outcome is the QueryInfo, or the error."""
        return self._request([BatchItem(SuspendQuery(id, reason or "somebody asked for it"))], self._clock())

    def resume_query(self, id: str) -> Future[list[Outcome]]:
        return self._request([BatchItem(ResumeQuery(id))], self._clock())

    def control(self, control: Control) -> Future[list[Outcome]]:
        """ForceOrder, ForceGroups, ScaleTo, SplitPartition or Unpin.

        Its outcome is an Applied or the error.
        """
        return self._request([BatchItem(control)], self._clock())

    def optimize(self, mode: str = "full", *, dry_run: bool = False) -> Future[Optimization]:
        """Optimize now, or (dry run) say what that would change; the planner belongs to the engine thread."""
        return self._call(lambda: self._engine.optimize(mode, dry_run=dry_run))

    def situation(self) -> Future[Situation | None]:
        """What an optimization beside the epochs needs; None: plans are never optimized."""
        return self._call(self._engine.situation, creates=False)

    def change_setting(self, name: str, value: float | None) -> Future[Steering]:
        """Of the optimizer, checked already; None: as it was configured."""
        return self._call(lambda: self._engine.change_setting(name, value), creates=False)

    def push(self, stream: str, rows: Sequence[Mapping[str, Any]]) -> Future[None]:
        return self._call(lambda: self._engine.push(stream, rows))

    def raise_watermark(self, stream: str, ts: int | None) -> Future[None]:
        return self._call(lambda: self._engine.raise_watermark(stream, ts))

    # -- reads: from any thread, from what is committed --

    @property
    def epoch(self) -> int:
        return self._engine.epoch

    @property
    def plan_version(self) -> int:
        return self._engine.plan.version

    @property
    def partitions(self) -> int:
        return self._engine.plan.partitioning.count

    def streams(self) -> list[StreamInfo]:
        return sorted(self._engine.streams(), key=lambda s: s.schema.name)

    def stream(self, name: str) -> StreamInfo:
        return self._engine.stream(name)

    def queries(self) -> list[QueryInfo]:
        infos = self._engine.queries()
        return sorted(map(self._thread.latencies.fill_in, infos), key=lambda q: (q.id, q.uid))

    def queries_behind(self) -> list[QueryInfo]:
        """Those of which work was put off; looks at no other."""
        return self._engine.queries_behind()

    def queries_with_gaps(self) -> list[QueryInfo]:
        """Those of which windows that are still open may lack rows."""
        return self._engine.queries_with_gaps()

    def query(self, id: str, uid: str | None = None) -> QueryInfo:
        """The latest query of that id, or the one that had this uid."""
        return self._thread.latencies.fill_in(self._engine.query(id, uid))

    def result_schema(self, id: str, uid: str | None = None) -> pa.Schema:
        """The columns of a query's rows, also while it has none."""
        return self._engine.result_schema(id, uid)

    def explain(
        self,
        *,
        id: str | None = None,
        sql: str | None = None,
        format: str = "text",
        shown: Callable[[RunningQuery], RunningQuery | None] | None = None,
    ) -> str:
        """`shown` says how the caller may see a running query; None: not at all."""
        candidate = None
        if id is not None and (state := self._engine.query(id).state) != QueryState.RUNNING:
            raise FailedPrecondition(
                f"query {id!r} was {state.lower()}", reason=f"QUERY_{state}", hint="only running queries have a plan"
            )
        if sql is not None:
            candidate = admit(sql, self._engine.schemas(), self.limits.query, vocabulary())
        return self._engine.explain(id=id, candidate=candidate, format=format, shown=shown)

    def plan_events(self, after_version: int = 0) -> list[PlanEvent]:
        return self._engine.plan_events(after_version)

    def has_results(self, id: str, after: Cursor | None = None, uid: str | None = None) -> bool:
        """Are there rows after the cursor? CURSOR_EXPIRED when some of them are gone. Looks at no file."""
        return self._engine.has_results(id, after, uid)

    def read_results(
        self, id: str, after: Cursor | None = None, limit: int = 16, uid: str | None = None
    ) -> list[ResultBatch]:
        return self._engine.read_results(id, after, limit, uid)

    def steering(self) -> Steering:
        """How the optimizer behaves now."""
        return self._engine.steering()

    def changed_settings(self) -> frozenset[str]:
        """Of the optimizer, those that were changed while the platform ran."""
        return frozenset(self._engine.state.settings)

    def configured(self) -> Steering:
        """How it would behave if nobody had changed a setting since."""
        return self._engine.config.steering

    def dead_letters(self, name: str, limit: int = 100) -> list[DeadLetterInfo]:
        self._engine.stream(name)
        return self._engine.dead_letters(name)[-limit:]

    def status(self) -> PlatformStatus:
        return replace(self._engine.status(), state=self.state.value, message=self._thread.message)

    def statistics(self, epochs: int = 60) -> Statistics:
        return self._thread.history.statistics(self._clock(), self.streams(), self.queries(), epochs)

    # -- waiting --

    def add_listener(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` (from the engine thread; it must not block) whenever something may have changed.

        Returns the function that takes it away again.
        """
        return self._thread.changes.add_listener(listener)

    def wait_until(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Block until the condition holds; it is looked at after every epoch, batch and change of state."""
        return self._thread.changes.wait_until(condition, timeout)

    # -- helpers --

    def _call(self, run: Callable[[], T], *, creates: bool = True) -> Future[T]:
        future: Future[T] = Future()
        self._thread.mailbox.put(EngineCall(run, future, creates))
        return future

    def _request(self, items: Sequence[BatchItem], arrived: int) -> Future[list[Outcome]]:
        future: Future[list[Outcome]] = Future()
        refused = [item.control for item in items if isinstance(item.control, AJoinError)]
        if len(refused) == len(items):
            future.set_result([*refused])
        else:
            self._thread.mailbox.put(BatchRequest(tuple(items), arrived, future))
        return future

    def _compile(
        self,
        wanted: Wanted,
        cap: Budget,
        schemas: Mapping[str, StreamSchema],
        scope: Scope,
        checks: SinkChecks,
    ) -> BatchItem:
        id, sql, sinks, wish, request = wanted
        try:
            if id:
                catalog.check_name("query id", id)
            budget = granted(wish, cap, scope.tenant)
            query = admit(sql, schemas, self.limits.query, vocabulary())
            checks.check(sinks, result_schema(query).names)
        except AJoinError as refused:
            return BatchItem(refused)
        used = {name: schemas[name] for name in query.streams}
        full = scope.full(id) or self._free_id(scope)
        return BatchItem(CreateQuery(full, query, tuple(sinks), budget, request), used)

    def _free_id(self, scope: Scope) -> str:
        """q-<n>, never used before by this tenant, and not given out twice in one life of the platform."""
        with self._ids:
            while True:
                self._last_id[scope.tenant] += 1
                id = scope.full(f"q-{self._last_id[scope.tenant]}")
                try:
                    self._engine.query(id)
                except NotFound:
                    return id


def only(outcomes: Sequence[Outcome]) -> Any:
    """The value of a single outcome, or its error raised."""
    (outcome,) = outcomes
    if isinstance(outcome, AJoinError):
        raise outcome
    return outcome


__all__ = ["Applied", "Limits", "Outcome", "Pace", "Platform", "PlatformState", "Wanted", "only"]
