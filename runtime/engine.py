"""The engine: a thin shell that does what the coordinator decides.

One thread owns it and calls everything that changes state, always between two epochs. Each change is decided (pure),
written to the log (on disk), handled (state), and only then acted upon; so at any moment the directory says
everything, and `Engine.open` on it continues where the last process stopped, whether it stopped or was killed:

    state/log/       changelogs, planned and committed epochs, snapshots
    state/buckets/   bucket files; what no committed epoch lists is debris of a crash and is removed on opening
    state/results/   result segments, the same
    state/sources/   what sources keep (pushed segments)

With a durable tier (runtime.durable) this directory is only the fast one of two, and "on disk" means: in both.

An epoch that was planned but not committed is run again from its logged offsets and plan version, and writes the same
files. Read-only methods may be called from any thread: they look at values that are replaced, never changed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from optimizer.cost import Weights
from optimizer.errors import AJoinError, InternalError, InvalidRequest, Unavailable
from optimizer.optimize import OptimizerConfig
from optimizer.plan import Plan
from optimizer.types import StreamSchema
from runtime.ahead import Ahead
from runtime.api import (
    Control,
    CreateQuery,
    Cursor,
    DeleteQuery,
    Optimization,
    Optimize,
    QueryInfo,
    ScaleTo,
    StreamInfo,
)
from runtime.buckets.file import BucketStore
from runtime.codec import decode, encode
from runtime.connectors.base import ConnectorSpec, Mirrored, Offset, Source
from runtime.connectors.push import PushSource
from runtime.connectors.registry import check_sink, check_source, make_source
from runtime.coordinator import Coordinator, advanced
from runtime.crashpoints import reach
from runtime.delivery import Delivery
from runtime.durable.keeper import DELIVERED, Keeper, listed, made
from runtime.durable.restore import check_alone, mark, recover
from runtime.durable.results import TieredResults
from runtime.epoch import EpochRun
from runtime.events import FOREVER, EpochCommitted, Event
from runtime.exchange import ByValue, Exchange, ValueStore
from runtime.executor import Executor
from runtime.log import Log, StateLock
from runtime.operators.source import SourceReport
from runtime.physical import Physical, compile_plan
from runtime.planner import Planner, Sharing
from runtime.pressure import Pressure
from runtime.reader import EngineReader, Recovery
from runtime.repair import ATTEMPTS, DAMAGE, repair
from runtime.results import ResultLog
from runtime.state import State, StreamState

logger = logging.getLogger("ajoin.engine")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """`partitions` counts for a new state directory; later it is part of the plan. `snapshot_every`: log records."""

    partitions: int = 2
    retention_epochs: int = 10_000
    retention_bytes: int = 1 << 30
    snapshot_every: int = 500
    allowed_roots: tuple[Path, ...] = ()
    sharing: Sharing = "cost"
    pipelined: bool = True
    exchange: Exchange = "reference"
    """How buckets and results pass between tasks: files that all tasks see, or by value through Spark."""
    weights: Weights | None = None
    """Of the cost model; measured once per machine with `runtime.calibrate`, or the defaults."""
    durable: str | None = None
    """URI or path of the durable tier; None: the state directory is all there is."""
    fast_bytes: int | None = None
    """With a durable tier: bytes of buckets, and of results, that the state directory keeps."""
    max_cost: float | None = None
    """Estimated cost a second (as `explain` tells it) above which new queries are refused."""


@dataclass(frozen=True, slots=True)
class EpochReport:
    epoch: int
    version: int
    tuples: int
    rows: int
    seconds: Mapping[str, float]
    latency_seconds: float
    throttled: tuple[str, ...]


class Engine(EngineReader):
    """Open with `Engine.open`."""

    def __init__(
        self,
        directory: Path,
        executor: Executor,
        config: EngineConfig,
        clock: Callable[[], int],
        lock: StateLock,
    ) -> None:
        self.config, self.executor, self.clock = config, executor, clock
        self.directory = directory
        self._lock = lock
        self._opened, self._recovery = time.monotonic(), Recovery()
        self._instance = uuid.uuid4().hex
        self._keeper = self._tiers(directory)
        self._log = Log(directory / "log")
        snapshot, records = self._log.read()
        if self._keeper is not None:
            number, (snapshot, records) = recover(self._keeper, (snapshot, records))
            self._log.follow(self._keeper.log, number)
        self._store = BucketStore(directory / "buckets") if self._keeper is None else self._keeper.store()
        self._results = ResultLog(directory / "results") if self._keeper is None else TieredResults(self._keeper)
        if config.exchange == "value":
            make = partial(ValueStore, directory / "buckets") if self._keeper is None else self._keeper.value_store
            self._store = values = make(executor.broadcast)
            self.executor = ByValue(executor, values, self._results.directory)
        self._sources: dict[str, Source] = {}
        save = None if self._keeper is None else partial(self._keeper.tier.put, DELIVERED)
        self._delivery = Delivery(directory / "log" / "delivered", self._results, config.allowed_roots, save)
        self._raised: dict[str, int] = {}
        self._ahead = Ahead()
        self._pressure = Pressure()
        self._compiled: dict[int, Physical] = {}
        self._last_epoch_seconds = 0.0
        state = State.from_json(snapshot) if snapshot is not None else State()
        costs = OptimizerConfig() if config.weights is None else OptimizerConfig(weights=config.weights)
        self.planner = Planner(config.sharing, costs)
        self.coordinator = Coordinator(
            state,
            planner=self.planner,
            cores=executor.cores,
            retention_epochs=config.retention_epochs,
            max_cost=config.max_cost,
        )
        for record in records:
            self._replay(decode(record))
        self._recovery = replace(self._recovery, records=len(records) + (snapshot is not None))

    def _tiers(self, directory: Path) -> Keeper | None:
        if self.config.durable is None:
            check_alone(directory)
            return None
        return Keeper(self.config.durable, directory, self.config.fast_bytes, self._instance[:8])

    @classmethod
    def open(
        cls,
        state_dir: Path,
        executor: Executor,
        config: EngineConfig | None = None,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> Engine:
        """Recover what the directory holds, finish a planned epoch, or start empty."""
        config = config or EngineConfig()
        lock = StateLock(state_dir)
        try:
            engine = cls(state_dir, executor, config, clock, lock)
            engine._recover()
        except BaseException:
            lock.release()
            raise
        return engine

    def _replay(self, event: Event) -> None:
        if isinstance(event, EpochCommitted):
            self._compiled.clear()
        self.coordinator.handle(event)

    def _recover(self) -> None:
        s = self.state
        reach("recover.read")
        for name, st in s.streams.items():
            self._sources[name] = self._make_source(st)
        if self._keeper is not None:
            self._keeper.hold(self._keeper.upload(listed(s)) if self._keeper.claim.truth is None else {})
            self._log.snapshot(s.to_json())  # in this owner's term: from here on no other one's writes count
            mark(self._keeper)
        if s.epoch == 0 and s.plan.version == 0 and s.plan.partitioning.count != self.config.partitions:
            self.apply([ScaleTo(self.config.partitions)])
        self._expire()  # the log tells what was delivered, not what has been dropped since
        self._remove_debris()
        reach("recover.cleaned")
        self._delivery.catch_up(s)
        reach("recover.delivered")
        if s.planned is not None:
            try:
                self._run_planned(None)
            except Unavailable as outage:
                logger.warning("epoch %d waits: %s", s.planned.epoch, outage)
        self._recovery = self._recovery.ended(s, time.monotonic() - self._opened)
        logger.info("opened: %s", self._recovery, extra={"epoch": s.epoch})

    def _remove_debris(self) -> None:
        """Files that no committed epoch lists: left by a crash, or dropped just before one."""
        s = self.state
        for epoch in sorted(s.segments):  # retention is not in the log: the oldest may be gone since the last snapshot
            if self._results.has(s.segments[epoch]) or self._delivery.owes(s, epoch):
                break
            logger.warning("the results of epoch %d are gone; readers are told that they have expired", epoch)
            self._forget(epoch)
        keep = {r.file for r in s.sources.values()} | {r.file for r in s.joined.values()}
        keep |= {v.file for r in s.sources.values() for v in r.views}
        for path in self._store.directory.glob("*") if self._store.directory.exists() else ():
            if path.name not in keep:
                path.unlink(missing_ok=True)
        self._results.keep_only({x.file for segments in s.segments.values() for x in segments})
        if self._keeper is not None:
            self._keeper.keep_only(listed(s), [self._source_dir(name).name for name in s.streams])

    # -- changes: only from the owning thread, only between two epochs ----------------------------------------------

    def create_stream(self, schema: StreamSchema, source: ConnectorSpec) -> StreamInfo:
        check_source(source, schema, allowed_roots=self.config.allowed_roots)
        now = self.clock()
        self.coordinator.decide_stream(schema, source, "", now)  # refuses a taken name before anything is made
        shutil.rmtree(self._source_dir(schema.name), ignore_errors=True)  # of a deletion that was cut short
        if self._keeper is not None:
            self._keeper.folder(self._source_dir(schema.name).name).clear()
        made = self._make_source(StreamState(schema, source, "", now))
        reach("stream.made")
        self._record(self.coordinator.decide_stream(schema, source, offset_text(made.initial()), now))
        reach("stream.recorded")
        self._sources[schema.name] = made
        return self.stream(schema.name)

    def delete_stream(self, name: str) -> None:
        self._record(self.coordinator.decide_stream_deletion(name))
        reach("stream.deleted")
        self._sources.pop(name)
        shutil.rmtree(self._source_dir(name), ignore_errors=True)
        if self._keeper is not None:
            folder = self._keeper.folder(self._source_dir(name).name)
            folder.discard(folder.names())

    def apply(self, batch: Sequence[Control]) -> list[QueryInfo | AJoinError | None]:
        """One query batch, at most one changelog. Each control gets its own outcome; a refused one changes nothing.

        QueryInfo for create and delete, None for the others, or the error. When this returns, the changelog is on disk
        and the next epoch runs with it.
        """
        refused: dict[int, AJoinError] = {}
        for i, control in enumerate(batch):
            try:
                self._check(control)
            except AJoinError as e:
                refused[i] = e
        rest = [c for i, c in enumerate(batch) if i not in refused]
        self.coordinator.cores = self.executor.cores
        event, outcomes = self.coordinator.decide_batch(rest, self.clock())
        if event is not None:
            self._record(event)
            reach("apply.recorded")
        decided = iter(outcomes)
        out: list[QueryInfo | AJoinError | None] = []
        for i, control in enumerate(batch):
            outcome = refused[i] if i in refused else next(decided)
            if isinstance(control, CreateQuery | DeleteQuery) and isinstance(outcome, str):
                out.append(self._query_info(self.state.queries[outcome]))
            else:
                out.append(outcome if isinstance(outcome, AJoinError) else None)
        return out

    def push(self, stream: str, rows: Sequence[Any]) -> None:
        """Append rows (JSON-like) to a stream whose source is 'push'; the next epoch reads them."""
        self._push_source(stream).append_rows(rows)

    def push_file(self, stream: str, path: Path) -> None:
        self._push_source(stream).append_file(path)

    def raise_watermark(self, stream: str, ts: int | None) -> None:
        """Explicit watermark, effective when the next epoch ends; None: infinity."""
        self.coordinator.stream(stream)
        mark = FOREVER if ts is None else ts
        self._raised[stream] = max(mark, self._raised.get(stream, mark))

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
        self._delivery.catch_up(s)
        self._expire()
        if self._keeper is not None:
            self._keeper.sweep()
        if self._log.since_snapshot >= self.config.snapshot_every:
            self._snapshot()
        reach("epoch.done")
        self._last_epoch_seconds = time.perf_counter() - began
        rows = sum(e.rows for x in event.segments for e in x.entries)
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

    def close(self) -> None:
        """Graceful end: everything is on disk already; a snapshot makes the next start quick."""
        if self.state.planned is None:
            self._snapshot()
        self.abandon()

    def abandon(self) -> None:
        """What a killed process leaves: nothing is flushed or tidied; the operating system drops the lock."""
        self._ahead.close()
        self._store.close()
        self._delivery.close()
        self._log.close()
        if self._keeper is not None:
            self._keeper.close()
        self._lock.release()

    def optimize(self, mode: str, *, dry_run: bool = False) -> Optimization:
        """Optimize because somebody asks: whatever is better is applied. Only from the owning thread.

        A dry run shows the same plan and changes nothing, not even what hysteresis remembers.
        """
        if dry_run:
            proposal, changes = self.propose(mode)
        else:
            before = self.plan.version
            (outcome,) = self.apply([Optimize(mode)])
            if isinstance(outcome, AJoinError):
                raise outcome
            done = self.planner.proposed
            assert done is not None
            proposal, changes = done, tuple(c for e in self.plan_events(before) for c in e.changes)
        return Optimization(
            self.plan.version,
            changes,
            proposal.cost_before,
            proposal.cost_after,
            proposal.gain,
            proposal.reasons,
            proposal.mode,
            proposal.applied,
            proposal.would_apply,
        )

    # -- inside ---------------------------------------------------------------------------------------------------

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

    def _check(self, control: Control) -> None:
        if isinstance(control, CreateQuery):
            for sink in control.sinks:
                check_sink(sink, allowed_roots=self.config.allowed_roots)

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

    def _source_dir(self, stream: str) -> Path:
        return self.directory / "sources" / hashlib.blake2b(stream.encode(), digest_size=8).hexdigest()

    def _make_source(self, st: StreamState) -> Source:
        where = self._source_dir(st.schema.name)
        where.mkdir(parents=True, exist_ok=True)
        source = make_source(st.source, st.schema, where, allowed_roots=self.config.allowed_roots)
        if self._keeper is not None and isinstance(source, Mirrored):
            source.mirror(self._keeper.folder(where.name), json.loads(st.offset) if st.offset else 0)
        return source

    def _push_source(self, stream: str) -> PushSource:
        self.coordinator.stream(stream)
        source = self._sources[stream]
        if not isinstance(source, PushSource):
            raise InvalidRequest(
                f"stream {stream!r} reads from its own source, tuples cannot be pushed to it",
                reason="NOT_A_PUSH_STREAM",
            )
        return source

    def _expire(self) -> None:
        """Results beyond the retention go; those of the newest epoch stay, or nobody could ever read them."""
        s = self.state
        old = set(self.coordinator.expired_segments())
        total = sum(x.bytes for segments in s.segments.values() for x in segments)
        for epoch in sorted(s.segments):
            if epoch in old or (total > self.config.retention_bytes and epoch < s.epoch):
                total -= sum(x.bytes for x in s.segments[epoch])
                self._forget(epoch)

    def _forget(self, epoch: int) -> None:
        """Remove an epoch's results. Readers look in the opposite order, so they never miss that it happened."""
        s = self.state
        last: dict[str, int] = {}
        for segment in s.segments[epoch]:
            for entry in segment.entries:
                last[entry.uid] = last.get(entry.uid, -1) + 1
        for uid, sequence in last.items():
            if uid in s.queries:  # nobody can ask for the results of a query that is forgotten
                s.expired[uid] = max(Cursor(epoch, sequence), s.expired.get(uid, Cursor(0, 0)))
        gone = s.segments.pop(epoch)
        reach("result.forgotten")
        self._results.drop(x.file for x in gone)


def offset_text(offset: Offset) -> str:
    """One text per offset, so that equal offsets are equal texts."""
    return json.dumps(offset, sort_keys=True, separators=(",", ":"))
