"""Opening an engine: look, claim, read, replay, take over, clean, deliver, finish. A step that fails leaks nothing.

    look        tasks see the store that the driver sees
    claim       one process per state directory, and one platform per store, which shows that it lives
    read        the log that counts
    replay      the state is the fold of its events
    take over   sources are opened; from here on no other owner's writes count
    clean       files that no committed epoch lists are debris of a crash; results beyond the retention go
    deliver     sinks are told what they do not have yet
    finish      an epoch that was planned and not committed is run again from its logged offsets, now or, without
                `finish_on_open`, by the first `run_epoch`

`open_parts` is the first four; `recover` the rest, on a whole engine.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from optimizer.errors import AJoinError, Unavailable
from runtime.api import Control, ScaleTo, SuspendQuery, Unpin
from runtime.buckets.refs import BucketRef, PartialRef
from runtime.connectors.registry import make_sink
from runtime.control.coordinator import Coordinator
from runtime.control.expiry import lost_results
from runtime.control.planner import Planner
from runtime.control.state import State
from runtime.crashpoints import reach
from runtime.delivery.deliveries import Deliveries
from runtime.delivery.progress import ProgressFile
from runtime.engine.config import EngineConfig
from runtime.engine.exchange import Exchange, check_place
from runtime.engine.journal import Journal
from runtime.engine.loop import EpochLoop
from runtime.engine.parts import Parts
from runtime.engine.sources import Sources
from runtime.execution.executor import Executor
from runtime.execution.fleet import AsItIs
from runtime.execution.sharing import SHARING
from runtime.log.codec import decode
from runtime.log.lock import StateLock
from runtime.store.heartbeat import Heart, NoHeart, note_predecessor
from runtime.store.interface import LocalState, StateStore
from runtime.store.objects import objects_at
from runtime.store.sight import check_sight
from runtime.store.stored import StoredState

logger = logging.getLogger("ajoin.engine")


@dataclass(frozen=True, slots=True)
class Recovery:
    """How much an opening had to look at: it grows with what is open, not with what ever happened."""

    seconds: float
    records: int
    buckets: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.records} log records, {self.buckets} buckets ({self.bytes:,} bytes) in {self.seconds:.2f} s"


@dataclass(frozen=True, slots=True)
class Opened:
    """`began`: when opening began, on the monotonic clock. `records`: how many were read."""

    parts: Parts
    began: float
    records: int


def open_parts(directory: Path, executor: Executor, config: EngineConfig, clock: Callable[[], int]) -> Opened:
    began, instance = time.monotonic(), uuid.uuid4().hex
    check_place(executor, config.store)
    if config.store is not None:
        check_sight(executor, config.store)
    with ExitStack() as undo:
        lock = StateLock(directory)
        undo.callback(lock.release)
        store = _store(directory, config, instance, executor.here)
        undo.callback(store.close)
        heart = _heart(store, config)
        undo.callback(heart.stop)
        contents = store.recover()
        state = State(platform=instance) if contents.snapshot is None else State.from_json(contents.snapshot)
        planner = Planner(SHARING[config.sharing], config.steering.optimizer(config.weights))
        fleet = config.fleet or AsItIs(lambda: executor.cores)
        coordinator = Coordinator(state, planner=planner, machines=fleet.machines(), max_cost=config.max_cost)
        for record in contents.records:
            coordinator.handle(decode(record))
        planner.configure(config.steering.changed(coordinator.state.settings).optimizer(config.weights))
        files = store.files(state.platform)
        exchange = Exchange(executor, files, store.failed)
        undo.callback(exchange.close)
        deliveries = Deliveries(
            ProgressFile(store.progress, store.save_progress),
            files.results,
            partial(make_sink, allowed_roots=config.allowed_roots),
            config.delivery(),
            clock,
        )
        undo.callback(deliveries.abandon)
        parts = Parts(
            directory=directory,
            config=config,
            clock=clock,
            instance=instance,
            coordinator=coordinator,
            planner=planner,
            journal=Journal(store.log, coordinator, config.snapshot_every),
            store=store,
            heart=heart,
            exchange=exchange,
            fleet=fleet,
            results=files.results,
            sources=Sources(directory / "sources", store, config.allowed_roots),
            deliveries=deliveries,
            closing=undo.pop_all(),
        )
    return Opened(parts, began, len(contents.records) + (contents.snapshot is not None))


def _store(directory: Path, config: EngineConfig, instance: str, together: bool) -> StateStore:
    if config.store is None:
        return LocalState(directory)
    note_predecessor(objects_at(config.store))
    return StoredState(config.store, directory, config.cache_bytes, instance[:8], together)


def _heart(store: StateStore, config: EngineConfig) -> Heart | NoHeart:
    if store.claim is None or config.pulse is None:
        return NoHeart()
    return Heart(store.claim, config.pulse).start()


def recover(opened: Opened, epochs: EpochLoop) -> Recovery:
    parts, coordinator = opened.parts, opened.parts.coordinator
    reach("recover.read")
    parts.sources.open_all(coordinator.state.streams)
    parts.store.take_over(coordinator.state)
    _set_partitions(parts)
    _suspend(parts)
    epochs.expire()  # the configured retention may be shorter than before
    parts.store.keep_only(coordinator.state, parts.sources.folders())
    for loss in lost_results(coordinator.state.queries, parts.results.missing(coordinator.state.segments)):
        logger.warning("%s; its readers are told RESULTS_DAMAGED and can go on after them", loss)
    reach("recover.cleaned")
    parts.deliveries.announce(coordinator.state)
    reach("recover.delivered")
    planned = coordinator.state.planned
    if planned is not None and parts.config.finish_on_open:
        try:
            epochs.run_planned(planned)
        except Unavailable as outage:
            logger.warning("epoch %d waits: %s", planned.epoch, outage)
    state = coordinator.state
    refs: list[BucketRef | PartialRef] = [*state.sources.values(), *state.joined.values(), *state.partials.values()]
    seconds = time.monotonic() - opened.began
    recovery = Recovery(seconds, opened.records, len(refs), sum(r.bytes for r in refs))
    logger.info("opened: %s", recovery, extra={"epoch": state.epoch})
    return recovery


def _suspend(parts: Parts) -> None:
    """The last resort of an operator: these queries are to run no more, whatever they do to the platform."""
    running = {rq.id for rq in parts.coordinator.state.running.values()}
    wanted = running if "all" in parts.config.suspend else running & set(parts.config.suspend)
    if wanted:
        controls = [SuspendQuery(id, "it was suspended when the platform was started") for id in sorted(wanted)]
        decision = parts.coordinator.decide_batch(controls, parts.clock())
        assert decision.event is not None, "a running query can be suspended"
        parts.journal.record(decision.event)


def _set_partitions(parts: Parts) -> None:
    """A new state directory begins with the partitions of the configuration; later they are part of the plan."""
    state = parts.coordinator.state
    if state.epoch == 0 and state.plan.version == 0 and state.plan.partitioning.count != parts.config.partitions:
        begin: list[Control | AJoinError] = [
            ScaleTo(parts.config.partitions),
            Unpin(scale=True),
        ]  # nobody has forced it
        decision = parts.coordinator.decide_batch(begin, parts.clock())
        if decision.event is not None:
            parts.journal.record(decision.event)
