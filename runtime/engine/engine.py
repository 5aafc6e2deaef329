"""The engine: a facade around three objects that share its parts (parts.py).

    control    what users ask for between two epochs: streams, query batches, pushed rows
    epochs     from one epoch to the next
    reads      what may be asked, from any thread

One thread owns it and calls everything that changes state, always between two epochs. Each change is decided (pure),
written to the log (on disk), handled (state), and only then acted upon; so at any moment the directory says
everything, and `Engine.open` on it continues where the last process stopped, whether it stopped or was killed:

    state/log/       changelogs, planned and committed epochs, snapshots, how far the sinks have come
    state/buckets/   bucket files; what no committed epoch lists is debris of a crash and is removed on opening
    state/results/   result segments, the same
    state/sources/   what sources keep (pushed batches, lists of files)

With a store (runtime.store) all of it is there, and "on disk" means: in the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from optimizer.model.plan import Plan
from runtime.control.state import State
from runtime.engine.config import EngineConfig
from runtime.engine.control import EngineControl
from runtime.engine.loop import EpochLoop
from runtime.engine.opening import Opened, open_parts, recover
from runtime.engine.reads import EngineReads
from runtime.execution.executor import Executor


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Engine:
    """Open with `Engine.open`."""

    def __init__(self, opened: Opened) -> None:
        self.parts = opened.parts
        self.config, self.directory = opened.parts.config, opened.parts.directory
        epochs = EpochLoop(self.parts)
        self.parts.closing.callback(epochs.close)
        reads = EngineReads(self.parts, epochs, recover(opened, epochs), opened.began)
        control = EngineControl(self.parts, reads, epochs)
        # only from the owning thread
        self.create_stream, self.delete_stream = control.create_stream, control.delete_stream
        self.reset_watermark, self.restart_stream = control.reset_watermark, control.restart_stream
        self.apply, self.optimize = control.apply, control.optimize
        self.situation, self.change_setting, self.change_to = (
            control.situation,
            control.change_setting,
            control.change_to,
        )
        self.push, self.push_file = control.push, control.push_file
        self.raise_watermark = epochs.raise_watermark
        self.has_input, self.run_epoch = epochs.has_input, epochs.run_epoch
        # from any thread
        self.schemas, self.streams, self.stream = reads.schemas, reads.streams, reads.stream
        self.queries, self.query, self.result_schema = reads.queries, reads.query, reads.result_schema
        self.queries_behind = reads.queries_behind
        self.queries_with_gaps = reads.queries_with_gaps
        self.plan_events, self.explain, self.propose = reads.plan_events, reads.explain, reads.propose
        self.read_results, self.delivered = reads.read_results, reads.delivered
        self.has_results = reads.has_results
        self.dead_letters, self.status = reads.dead_letters, reads.status
        self.steering = reads.steering

    @classmethod
    def open(
        cls,
        state_dir: Path,
        executor: Executor,
        config: EngineConfig | None = None,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> Self:
        """Recover what the directory holds, finish a planned epoch, or start empty."""
        opened = open_parts(state_dir, executor, config or EngineConfig(), clock)
        try:
            return cls(opened)
        except BaseException:
            opened.parts.closing.close()
            raise

    @property
    def state(self) -> State:
        """As the last event left it: a frozen value."""
        return self.parts.coordinator.state

    @property
    def plan(self) -> Plan:
        return self.state.plan

    @property
    def epoch(self) -> int:
        """The last committed epoch; 0 before the first."""
        return self.state.epoch

    def close(self) -> None:
        """Graceful end: everything is on disk already; a snapshot makes the next start quick. Who stands by is told."""
        if self.state.planned is None:
            self.parts.journal.snapshot()
        self.parts.deliveries.close()
        self.parts.heart.close()
        self.abandon()

    def fall_silent(self) -> None:
        """This engine is of no use any more: no more signs of life, so that another platform may take its place."""
        self.parts.heart.stop()

    def abandon(self) -> None:
        """End like a killed process: no snapshot, no waiting for sinks; only locks, files and threads are released."""
        self.parts.closing.close()
