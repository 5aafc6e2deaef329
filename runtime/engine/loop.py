"""From one epoch to the next: plan it, run it, commit it, clean up after it; and repair what it finds damaged.

The part of the engine that repeats. An epoch is planned on disk before it runs and counts when its commit is on disk;
whatever happens in between is done again from the plan. Cleaning up comes after the commit and may be cut off
anywhere: what is left over is removed at the next opening.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from optimizer.errors import InternalError, Unavailable
from optimizer.model.plan import Plan
from runtime.buckets.store import BucketStore
from runtime.connectors.base import Offset
from runtime.connectors.push import PushSource
from runtime.control.coordinator import advanced
from runtime.control.events import EpochCommitted, Event
from runtime.control.state import State, StreamState
from runtime.crashpoints import reach
from runtime.durable.keeper import made
from runtime.engine.config import EngineConfig
from runtime.engine.epoch_run import EpochRun
from runtime.engine.read_ahead import Ahead
from runtime.engine.reads import EngineReader
from runtime.engine.repair import ATTEMPTS, DAMAGE, repair
from runtime.execution.compile import compile_plan
from runtime.execution.executor import Executor
from runtime.execution.physical import Physical
from runtime.log.codec import encode
from runtime.log.log import Log
from runtime.operators.source import SourceReport
from runtime.results.retention import expired, expiring

logger = logging.getLogger("ajoin.engine")


@dataclass(frozen=True, slots=True)
class EpochReport:
    epoch: int
    version: int
    tuples: int
    rows: int
    seconds: Mapping[str, float]
    latency_seconds: float
    throttled: tuple[str, ...]


class EpochLoop(EngineReader):
    """Owned by the engine, whose attributes these are."""

    config: EngineConfig
    executor: Executor
    _ahead: Ahead
    _compiled: dict[int, Physical]
    _instance: str
    _log: Log
    _raised: dict[str, int]
    _store: BucketStore

    def has_input(self) -> bool:
        """Would an epoch now have something to read, or a watermark to raise?"""
        now = self.clock()
        return (
            self.state.planned is not None
            or bool(self._raised)
            or any(self._latest(name, st, now) != st.offset for name, st in self.state.streams.items())
        )

    def run_epoch(self) -> EpochReport:
        """One micro-batch over all streams: planned on disk, run, committed on disk, then cleaned up."""
        if self.state.planned is not None:
            return self._run_planned(None)
        now = self.clock()
        offsets = {name: st.offset for name, st in self.state.streams.items()}
        ahead = self._ahead.take(self.epoch + 1, self.plan.version, offsets)
        if ahead is None:
            ends: Mapping[str, str] = self._choose(self.epoch + 1, self.state.streams, now)
        else:
            ends = ahead[0].ends
        self._record(self.coordinator.decide_epoch(ends, self._raised, now))
        reach("epoch.planned")
        self._raised = {}
        return self._run_planned(None if ahead is None else ahead[1])

    def _choose(self, epoch: int, streams: Mapping[str, StreamState], now: int) -> dict[str, str]:
        """How far the epoch reads, and what it leaves for later."""
        at = time.perf_counter()
        ends = {name: self._latest(name, st, now) for name, st in streams.items()}
        left = {name: self._sources[name].backlog(json.loads(st.offset), now) for name, st in streams.items()}
        self._pressure.planned(epoch, at, left)
        return ends

    def _look_ahead(self, run: EpochRun) -> None:
        """Begin to read the next epoch while this one joins, if nothing speaks against it."""
        s = self.state
        settled = s.executed.version == s.plan.version
        if not (self.config.pipelined and self.executor.cores > 1 and settled):
            return
        if any(st.schema.idle_timeout_ms is not None for st in s.streams.values()):
            return
        if any(isinstance(source, PushSource) for source in self._sources.values()):
            return  # what is pushed from now on belongs to the next epoch too
        progress, _ = run.progress()
        streams = {p.stream: advanced(s.streams[p.stream], run.planned, p) for p in progress}
        now = self.clock()
        ends = self._choose(run.planned.epoch + 1, streams, now)
        if any(ends[name] != st.offset for name, st in streams.items()):
            stage = replace(
                run.source_stage(), epoch=run.planned.epoch + 1, streams=streams, ends=ends, first=run.next_source
            )
            self._ahead.start(stage, lambda stage: stage.run(self.executor, self._sources))

    def _run_planned(self, ahead: list[SourceReport] | None) -> EpochReport:
        s = self.state
        began = time.perf_counter()
        running = s.running()
        run, event, gone = self._run_whole(ahead)
        reach("epoch.committed")
        committed = time.perf_counter()
        taken = committed - began
        gauges = self._pressure.committed(event.epoch, began, committed)
        self.planner.observe(s.plan, running, run.reports, run.joins, time.monotonic(), taken)
        for name in gone:
            self._drop(name)
            reach("bucket.dropped")
        for stream, st in s.streams.items():
            source = self._sources[stream]
            if isinstance(source, PushSource):
                starts = [json.loads(r.origin.start) for r in s.sources.values() if r.stream == stream]
                source.trim(min([json.loads(st.offset), *starts]))  # the rest may be needed to repair a bucket
        reach("epoch.cleaned")
        self._deliveries.announce(s)  # before results go: in step, sinks get them now
        self._expire()
        if self._keeper is not None:
            self._keeper.sweep()
        if self._log.since_snapshot >= self.config.snapshot_every:
            self._snapshot()
        reach("epoch.done")
        self._last_epoch_seconds = time.perf_counter() - began
        rows = sum(x.rows for x in event.segments)
        return EpochReport(
            event.epoch,
            s.plan.version,
            sum(p.tuples for p in event.progress),
            rows,
            dict(event.seconds),
            gauges.latency_seconds,
            gauges.throttled,
        )

    def _run_whole(self, ahead: list[SourceReport] | None) -> tuple[EpochRun, EpochCommitted, tuple[str, ...]]:
        """Run the planned epoch and commit it; if it meets damaged files, repair them and run it again, from its
        beginning. The names are those of files nobody needs any more."""
        for attempt in range(ATTEMPTS + 1):
            try:
                if attempt > 0:
                    self._repair()
                run = self._epoch_run(self.state, ahead if attempt == 0 else None)
                event = run.run()
                reach("epoch.commit")
                return run, event, self._record(event)
            except InternalError as damage:
                if damage.reason not in DAMAGE or attempt == ATTEMPTS:
                    raise
                logger.warning("epoch %d met damage: %s", self.epoch + 1, damage.message)
        raise AssertionError("unreachable")

    def _repair(self) -> None:
        self._ahead.discard()  # it writes under ids that the repair hands out
        repaired = repair(self._epoch_run(replace(self.state, plan=self.state.executed), None))
        for name in self._record(repaired) if repaired else ():
            self._drop(name)

    def _epoch_run(self, s: State, ahead: list[SourceReport] | None) -> EpochRun:
        """The planned epoch, from what was executed last to the plan of `s`."""
        assert s.planned is not None
        return EpochRun(
            s,
            s.planned,
            self._physical(s.executed),
            self._physical(s.plan),
            self._store,
            self._results.directory,
            self.executor,
            self._sources,
            self._instance,
            self.config.sharing,
            ahead,
            self._look_ahead,
        )

    # -- the log and what it lists ---------------------------------------------------------------------------------

    def _record(self, event: Event) -> tuple[str, ...]:
        """In the log, and with a durable tier all files that it lists there, before anybody acts upon it."""
        if self._keeper is None:
            self._log.append(encode(event))
            return self.coordinator.handle(event)
        placed = self._keeper.upload(made(event))
        if isinstance(event, EpochCommitted):
            event = replace(event, seconds=(*event.seconds, ("upload", round(self._keeper.upload_seconds, 6))))
        self._log.append(encode(event))
        gone = self.coordinator.handle(event)
        self._keeper.hold(placed)
        return gone

    def _drop(self, name: str) -> None:
        if self._keeper is not None:
            self._keeper.discard("buckets", [name])
        self._store.drop(name)

    def _snapshot(self) -> None:
        """Only saves work at the next start, so an outage is no reason to fail."""
        try:
            self._log.snapshot(self.state.to_json())
        except Unavailable as outage:
            logger.warning("the snapshot waits: %s", outage)

    def _physical(self, plan: Plan) -> Physical:
        found = self._compiled.get(plan.version)
        if found is None:
            queries = {uid: r.query for uid, r in self.state.queries.items()}
            found = compile_plan(plan, queries, self.schemas(), eager=self.config.sharing == "astream")
            self._compiled = {v: p for v, p in self._compiled.items() if v == self.state.executed.version}
            self._compiled[plan.version] = found
        return found

    def _latest(self, stream: str, st: StreamState, now: int) -> str:
        return offset_text(self._sources[stream].latest(json.loads(st.offset), now))

    def _expire(self) -> None:
        """Results beyond the retention go. That only makes room, so an outage is no reason to fail: the epoch is
        committed, and the next one tries again."""
        s, config = self.state, self.config
        epochs = expiring(s.segments, s.epoch, config.retention_epochs, config.retention_bytes)
        if not epochs:
            return
        files = [x.file for epoch in epochs for x in s.segments[epoch]]
        try:
            self._record(expired(epochs, lambda e: self._results.indexes(e, s.segments[e]), s.queries))
        except Unavailable as outage:
            logger.warning("results that have expired stay for now: %s", outage)
            return
        self._deliveries.announce(s)
        reach("result.forgotten")
        self._results.drop(files)


def offset_text(offset: Offset) -> str:
    """One text per offset, so that equal offsets are equal texts."""
    return json.dumps(offset, sort_keys=True, separators=(",", ":"))
