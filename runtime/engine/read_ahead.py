"""Pipeline parallelism: the next epoch's source stage, running beside this epoch's joins.

A speculation, not a commitment: nothing of it is in the log until the next epoch is planned with exactly its ranges
and under its plan version. It is not tried while the plan keeps changing, and not when a stream may become idle (then
lateness depends on the clock). If it is discarded, the buckets it wrote are overwritten under the same ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from runtime.connectors.position import Position
from runtime.engine.source_stage import SourceStage
from runtime.operators.source import SourceReport


class ReadAhead(NamedTuple):
    """What ran ahead: the range it read, and its reports."""

    ends: Mapping[str, Position]
    reports: list[SourceReport]


class ReadAheads:
    """Owned by the engine's thread; one speculation at a time."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="ajoin-ahead")
        self._running: tuple[SourceStage, Future[list[SourceReport]]] | None = None

    def start(self, stage: SourceStage) -> None:
        self.discard()
        self._running = (stage, self._pool.submit(stage.run))

    def take(self, epoch: int, version: int, positions: Mapping[str, Position]) -> ReadAhead | None:
        """What ran ahead, if it is for this epoch and plan and begins where the streams stand; else nothing."""
        if self._running is None:
            return None
        stage, future = self._running
        begins = {name: st.position for name, st in stage.streams.items()}
        if (stage.epoch, stage.context.plan.version, begins) != (epoch, version, positions):
            self.discard()
            return None
        self._running = None
        return ReadAhead(stage.ends, future.result())

    def discard(self) -> None:
        """Wait for it to end (it must not write any more), and forget it, failed or not."""
        if self._running is not None:
            _, future = self._running
            future.exception()
            self._running = None

    def close(self) -> None:
        self.discard()
        self._pool.shutdown()
