"""From one epoch to the next: plan it, run it, commit it, clean up after it; and repair what it finds damaged.

An epoch is planned on disk before it runs and counts when its commit is on disk; whatever happens in between is done
again from the plan. Cleaning up comes after the commit and may be cut off anywhere: what is left over is removed at
the next opening.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from optimizer.errors import InternalError, InvalidRequest, Unavailable
from optimizer.model.plan import Plan
from optimizer.policy.moves import Moves
from runtime.api import Control, EpochReport, MoveQueries, SuspendQuery
from runtime.connectors.position import Position
from runtime.control.budgets import can_go_on, over_budget
from runtime.control.events import FOREVER, EpochPlanned, StreamProgress
from runtime.control.expiry import expired, expiring
from runtime.control.fold import advanced
from runtime.control.killers import ReadName
from runtime.control.state import State, StreamState
from runtime.crashpoints import reach
from runtime.engine import quarantine
from runtime.engine.compiled import CompiledPlans
from runtime.engine.epoch_run import EpochResult, EpochRun
from runtime.engine.latency import Latencies
from runtime.engine.parts import Parts
from runtime.engine.preparing import Preparing
from runtime.engine.pressure import Pressure
from runtime.engine.quarantine import Investigation
from runtime.engine.read_ahead import ReadAheads
from runtime.engine.repair import ATTEMPTS, DAMAGE, beyond_repair, damaged_files, repair
from runtime.engine.source_stage import SourceStage
from runtime.engine.stage_context import StageContext
from runtime.execution.physical import Physical
from runtime.operators.ahead import clock_reason
from runtime.operators.source import SourceReport

logger = logging.getLogger("ajoin.engine")

ROUNDS = 3
"""Reasons for which one epoch fails, one behind the other, that are looked for before the failure stands."""


class EpochLoop:
    """Owned by the engine's thread. `last_seconds`: how long the last epoch took, with its cleaning up."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._compiled = CompiledPlans(parts.sharing)
        self._ahead = ReadAheads(parts.store.failed)
        self._raised: dict[str, int] = {}
        self.pressure = Pressure()
        self.preparing = Preparing(parts, self._compiled, self._move)
        self.latencies = Latencies()
        self.last_seconds = 0.0

    @property
    def _state(self) -> State:
        return self._parts.coordinator.state

    def raise_watermark(self, stream: str, ts: int | None) -> None:
        """Explicit watermark, effective when the next epoch ends; None: infinity, nothing more will come.

        One beyond the stream's bound on event times is refused like a tuple.
        """
        schema = self._parts.coordinator.stream(stream).schema
        if ts is not None and schema.max_ahead_ms is not None:
            until = self._parts.clock() + schema.max_ahead_ms
            if ts > until:
                raise InvalidRequest(clock_reason(schema, until, ts, "watermark"), reason="WATERMARK_AHEAD")
        mark = FOREVER if ts is None else ts
        self._raised[stream] = max(mark, self._raised.get(stream, mark))

    def forget_raised(self, stream: str) -> None:
        """The stream was moved back: what was to be raised no longer is."""
        self._raised.pop(stream, None)

    def has_input(self) -> bool:
        """Would an epoch now have something to read, a watermark to raise, or postponed work to do? STATE_TAKEN if
        another platform has taken the store meanwhile, which nobody would notice who has nothing to write."""
        self._parts.heart.check()
        s = self._state
        if s.planned is not None or self._raised or can_go_on(s):
            return True
        ends = self._parts.sources.latest(s.streams, self._parts.clock())
        return any(ends[name] != st.position for name, st in s.streams.items())

    def run_epoch(self) -> EpochReport:
        """One micro-batch over all streams: planned on disk, run, committed on disk, then cleaned up."""
        s, now, decide = self._state, self._parts.clock(), self._parts.coordinator.decide_epoch
        if s.planned is not None:
            return self.run_planned(s.planned)
        ahead = self._ahead.take(s.epoch + 1, s.plan.version, s.streams)
        if ahead is None:
            planned = decide(self._choose(s.epoch + 1, s.streams, now), self._raised, now)
        else:
            planned = decide(ahead.ends, self._raised, ahead.at_ms)
        self._parts.journal.record(planned)
        reach("epoch.planned")
        self._raised = {}
        return self.run_planned(planned, None if ahead is None else ahead.reports)

    def _choose(self, epoch: int, streams: Mapping[str, StreamState], now: int) -> dict[str, Position]:
        """How far the epoch reads, and what it leaves for later."""
        ends = self._parts.sources.latest(streams, now)
        self.pressure.planned(epoch, self._parts.sources.backlog(streams, now))
        return ends

    def run_planned(self, planned: EpochPlanned, ahead: list[SourceReport] | None = None) -> EpochReport:
        began = time.perf_counter()
        try:
            result, unneeded = self._run_and_commit(planned, ahead)
        except Exception as failure:
            if not quarantine.may_be_a_query(failure):
                raise
            result, unneeded = self._without_culprits(planned, failure)
        event = result.event
        plan, queries = self._state.plan, self._state.running  # now: culprits may have been suspended
        reach("epoch.committed")
        committed = time.perf_counter()
        now = self._parts.clock()
        gauges = self.pressure.committed(
            event.epoch, self.latencies.committed(self._state, planned, result.sources, now)
        )
        known = {uid: self.latencies.of_query(rq, event.epoch) for uid, rq in queries.items()}
        ages = {uid: age / 1000 for uid, age in known.items() if age is not None}
        at, took = time.monotonic(), committed - began
        self._parts.planner.observe(plan, queries, result.sources, result.joins, at, took, ages, now / 1000)
        self._drop(unneeded)
        self._enforce_budgets()
        self._parts.sources.trim(self._state)
        reach("epoch.cleaned")
        self._parts.deliveries.announce(self._state)  # before results expire: with InStep, sinks take them now
        self.expire()
        self.preparing.after_epoch(self._state, time.perf_counter() - began)
        self._parts.store.sweep(self._state, self.preparing.files)
        self._parts.journal.snapshot_if_due()
        reach("epoch.done")
        self.last_seconds = time.perf_counter() - began
        return EpochReport(
            event.epoch,
            plan.version,
            sum(p.tuples for p in event.progress),
            sum(x.rows for x in event.segments),
            dict(event.seconds),
            gauges.latency_seconds,
            gauges.throttled,
        )

    def _run_and_commit(
        self, planned: EpochPlanned, ahead: list[SourceReport] | None
    ) -> tuple[EpochResult, tuple[str, ...]]:
        """Run the planned epoch and commit it; if it meets damaged files, repair them and run it again, from its
        beginning. The names are those of files that are not needed any more."""
        for attempt in range(ATTEMPTS + 1):
            try:
                if attempt > 0:
                    self._repair(planned)
                    ahead = None
                result = self._run(planned, ahead)
                reach("epoch.commit")
                return result, self._parts.journal.record(result.event)
            except InternalError as damage:
                if damage.reason not in DAMAGE or attempt == ATTEMPTS:
                    raise
                logger.warning("epoch %d met damage: %s", planned.epoch, damage.message)
        raise AssertionError("unreachable")

    def _without_culprits(self, planned: EpochPlanned, failure: Exception) -> tuple[EpochResult, tuple[str, ...]]:
        """The epoch without the queries and tuples that keep it from ending; or the failure, if it is not theirs. There
        can be several reasons, one behind the other (runtime.engine.quarantine)."""
        self._ahead.discard()
        self.preparing.discard()
        for _ in range(ROUNDS):
            logger.error("epoch %d failed, looking for the reason: %s", planned.epoch, failure, exc_info=failure)
            planned = self._record_reason(planned, failure)
            try:
                result, unneeded = self._run_and_commit(planned, None)
            except Exception as again:
                if not quarantine.may_be_a_query(again):
                    raise
                failure = again
                continue
            self._ahead.discard()  # what it reads for the next epoch is not listed yet
            self._keep_only_listed()  # probes have written files too
            return result, unneeded
        raise failure

    def _record_reason(self, planned: EpochPlanned, failure: Exception) -> EpochPlanned:
        """What is planned without the reason of the failure, which is in the log now; or the failure."""
        parts, context = self._parts, self._context(self._state, self._state.plan, self._compiled)
        reads = [ReadName(stream, number) for stream, number, _ in SourceStage.of(context, planned).reads()]
        if not quarantine.workers_run(parts.exchange, planned.epoch):
            raise failure
        search = Investigation(parts.coordinator, planned, reads, failure, self._probe, parts.clock())
        verdict = search.verdict()
        if verdict is None:
            raise failure
        if verdict.suspension is not None and verdict.suspension.event is not None:
            parts.journal.record(verdict.suspension.event)
            reach("apply.recorded")
            parts.planner.memory = verdict.suspension.memory
        if verdict.skipped is not None:
            parts.journal.record(verdict.skipped)
        now = self._state.planned
        assert now is not None, "what failed is still planned"
        return now

    def _probe(self, state: State, planned: EpochPlanned) -> list[SourceReport]:
        """The epoch over a state that may never be. What it compiles must not be taken for a real plan version."""
        compiled = CompiledPlans(self._parts.sharing)
        context = replace(self._context(state, state.plan, compiled), instance=f"probe-{uuid.uuid4().hex}")
        before = compiled.of(state.executed, state)
        return self._epoch_run(context, planned, before, None, lambda progress, next_source: None).run().sources

    def _run(self, planned: EpochPlanned, ahead: list[SourceReport] | None) -> EpochResult:
        context = self._context(self._state, self._state.plan, self._compiled)

        def sources_done(progress: tuple[StreamProgress, ...], next_source: int) -> None:
            self._look_ahead(context, planned, progress, next_source)

        before = self._compiled.of(self._state.executed, self._state)
        return self._epoch_run(context, planned, before, ahead, sources_done).run()

    def _epoch_run(
        self,
        context: StageContext,
        planned: EpochPlanned,
        before: Physical,
        ahead: list[SourceReport] | None,
        sources_done: Callable[[tuple[StreamProgress, ...], int], None],
    ) -> EpochRun:
        pacing = self._parts.config.pacing
        prepared, next_bucket = self.preparing.prepared, self.preparing.next_bucket
        return EpochRun(context, planned, before, ahead, sources_done, pacing, prepared, next_bucket)

    def _enforce_budgets(self) -> None:
        """Queries that are over their budgets are suspended, from the next epoch on."""
        over = over_budget(self._state, self._parts.config.pacing)
        self._suspend([SuspendQuery(id, reason) for id, reason in over])

    def _suspend(self, queries: Sequence[SuspendQuery]) -> None:
        if not queries:
            return
        for query in queries:
            logger.warning("query %s is suspended: %s", query.id, query.reason)
        self._apply(queries)

    def _move(self, moves: Moves) -> None:
        self._apply([MoveQueries(moves)])

    def _apply(self, controls: Sequence[Control]) -> None:
        """Changes that the engine makes by itself and that can be made."""
        decision = self._parts.coordinator.decide_batch(controls, self._parts.clock())
        assert decision.event is not None, f"{controls} were refused: {decision.outcomes}"
        self._parts.journal.record(decision.event)
        reach("apply.recorded")
        self._parts.planner.memory = decision.memory

    def _repair(self, planned: EpochPlanned) -> None:
        self._ahead.discard()  # it writes under ids that the repair hands out
        self.preparing.discard()  # of buckets that may be the damaged ones
        wrong = damaged_files(self._parts.exchange, self._state.bucket_files)
        self._suspend(beyond_repair(self._state, wrong))
        repaired = repair(self._context(self._state, self._state.executed, self._compiled), planned.epoch, wrong)
        if repaired is not None:
            self._drop(self._parts.journal.record(repaired))
            self._keep_only_listed()  # the epoch that failed has written files too

    def _context(self, state: State, plan: Plan, compiled: CompiledPlans) -> StageContext:
        parts, physical = self._parts, compiled.of(plan, state)
        return StageContext(state, plan, physical, parts.exchange, parts.sources.opened, parts.sharing, parts.instance)

    def _look_ahead(
        self, context: StageContext, planned: EpochPlanned, progress: tuple[StreamProgress, ...], next_source: int
    ) -> None:
        """Begin to read the next epoch while this one joins, where that is allowed and of use."""
        s, parts = context.state, self._parts
        settled = s.executed.version == s.plan.version
        may_idle = any(st.schema.idle_timeout_ms is not None for st in s.streams.values())
        if not (parts.config.pipelined and settled and parts.sources.may_read_ahead) or may_idle:
            return
        if parts.exchange.cores <= 1:
            return
        streams = {p.stream: advanced(s.streams[p.stream], planned, p) for p in progress}
        now = parts.clock()
        ends = self._choose(planned.epoch + 1, streams, now)
        if any(ends[name] != st.position for name, st in streams.items()):
            self._ahead.start(SourceStage(context, planned.epoch + 1, now, streams, ends, next_source))

    # -- making room ----------------------------------------------------------------------------------------------

    def _keep_only_listed(self) -> None:
        self._parts.store.keep_only(self._state, self._parts.sources.folders())

    def _drop(self, names: tuple[str, ...]) -> None:
        for name in names:
            self._parts.exchange.drop(name)
            reach("bucket.dropped")

    def expire(self) -> None:
        """Results beyond the retention go. That only makes room, so an outage is no reason to fail: the epoch is
        committed, and the next one tries again."""
        s, config, results = self._state, self._parts.config, self._parts.results
        epochs = expiring(s.segments, s.epoch, config.retention_epochs, config.retention_bytes)
        if not epochs:
            return
        files = [x.file for epoch in epochs for x in s.segments[epoch]]
        try:
            self._parts.journal.record(expired(epochs, lambda e: results.indexes(e, s.segments[e]), s.queries))
        except Unavailable as outage:
            logger.warning("results that have expired stay for now: %s", outage)
            return
        self._parts.deliveries.announce(self._state)  # or a file that has expired would look damaged to a sink
        reach("result.forgotten")
        results.drop(files)

    def close(self) -> None:
        self._ahead.close()
