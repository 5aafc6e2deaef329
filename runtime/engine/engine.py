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
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from optimizer.errors import AJoinError, InvalidRequest, Unavailable
from optimizer.model.types import StreamSchema
from optimizer.optimize import OptimizerConfig
from runtime.api import (
    Control,
    CreateQuery,
    Optimization,
    Optimize,
    QueryInfo,
    ScaleTo,
    StreamInfo,
)
from runtime.buckets.store import BucketStore
from runtime.connectors.base import ConnectorSpec, Mirrored, Source
from runtime.connectors.push import PushSource
from runtime.connectors.registry import check_sink, check_source, make_source
from runtime.control.batch import BatchDecision
from runtime.control.coordinator import Coordinator
from runtime.control.events import FOREVER, EpochCommitted, Event
from runtime.control.planner import Planner
from runtime.control.state import State, StreamState
from runtime.crashpoints import reach
from runtime.durable.keeper import DELIVERED, Keeper, listed
from runtime.durable.restore import check_alone, mark, recover
from runtime.durable.results import TieredResults
from runtime.engine.config import EngineConfig
from runtime.engine.loop import EpochLoop, offset_text
from runtime.engine.pressure import Pressure
from runtime.engine.read_ahead import Ahead
from runtime.engine.reads import Recovery
from runtime.exchange.by_value import ByValue, ValueStore
from runtime.execution.executor import Executor
from runtime.execution.physical import Physical
from runtime.log.codec import decode
from runtime.log.log import Log, StateLock
from runtime.results.delivery import Delivery
from runtime.results.log import ResultLog

logger = logging.getLogger("ajoin.engine")


class Engine(EpochLoop):
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

    def apply(self, batch: Sequence[Control | AJoinError]) -> list[QueryInfo | AJoinError | None]:
        """One query batch, at most one changelog. One outcome per item, at its place; a refused one changes nothing.

        QueryInfo for create and delete, None for other controls, or the error; what the caller has refused already
        comes back as it is. When this returns, the changelog is on disk and the next epoch runs with it.
        """
        outcomes = self._decide_and_record(batch).outcomes
        return [self._query_info(self.state.queries[o]) if isinstance(o, str) else o for o in outcomes]

    def _decide_and_record(self, batch: Sequence[Control | AJoinError]) -> BatchDecision:
        """Nothing that a decision says is true before its record is in the log, what the planner remembers included."""
        self.coordinator.cores = self.executor.cores
        decision = self.coordinator.decide_batch([self._checked(item) for item in batch], self.clock())
        if decision.event is not None:
            self._record(decision.event)
            reach("apply.recorded")
        self.planner.memory = decision.memory
        return decision

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
            decision = self._decide_and_record([Optimize(mode)])
            (outcome,) = decision.outcomes
            if isinstance(outcome, AJoinError):
                raise outcome
            assert decision.proposal is not None, "an accepted Optimize has a proposal"
            proposal, changes = decision.proposal, tuple(c for e in self.plan_events(before) for c in e.changes)
        return Optimization(
            self.plan.version,
            changes,
            proposal.cost_before,
            proposal.cost_after,
            proposal.gain,
            proposal.reasons,
            proposal.mode,
            applied=proposal.applied and not dry_run,
            would_apply=proposal.applied and dry_run,
        )

    # -- inside ---------------------------------------------------------------------------------------------------

    def _checked(self, item: Control | AJoinError) -> Control | AJoinError:
        """The item, or why its sinks cannot be."""
        if isinstance(item, CreateQuery):
            try:
                for sink in item.sinks:
                    check_sink(sink, allowed_roots=self.config.allowed_roots)
            except AJoinError as refused:
                return refused
        return item

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
