"""Pipeline parallelism: the next epoch's source stage, running beside this epoch's joins.

A speculation, not a commitment: nothing of it is in the log until the next epoch is planned with exactly its ranges,
its wall-clock time (which decides what is too far ahead) and under its plan version. It is not tried while the plan
keeps changing, and not when a stream may become idle (then lateness depends on the clock). If it is discarded, what it
wrote is debris.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from runtime.connectors.position import Position
from runtime.control.state import StreamState
from runtime.engine.source_stage import SourceStage
from runtime.operators.source import SourceReport

logger = logging.getLogger("ajoin.engine")


class ReadAhead(NamedTuple):
    """What ran ahead: its wall-clock time, the range it read, and its reports."""

    at_ms: int
    ends: Mapping[str, Position]
    reports: list[SourceReport]


class ReadAheads:
    """Owned by the engine's thread; one speculation at a time. `discarded` is told when one was for nothing."""

    def __init__(self, discarded: Callable[[], None]) -> None:
        self._discarded = discarded
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="ajoin-ahead")
        self._running: tuple[SourceStage, Future[list[SourceReport]]] | None = None

    def start(self, stage: SourceStage) -> None:
        self.discard()
        self._running = (stage, self._pool.submit(stage.run))

    def take(self, epoch: int, version: int, streams: Mapping[str, StreamState]) -> ReadAhead | None:
        """What ran ahead, if it is for this epoch and plan and begins where the streams stand; else nothing."""
        if self._running is None:
            return None
        stage, future = self._running
        if (stage.epoch, stage.context.plan.version, stage.streams) != (epoch, version, streams):
            self.discard()
            return None
        self._running = None
        failure = future.exception()
        if failure is not None:  # nothing is planned with it: the epoch itself will meet the reason, and say so
            logger.warning("reading ahead for epoch %d failed: %s", epoch, failure)
            return None
        return ReadAhead(stage.at_ms, stage.ends, future.result())

    def discard(self) -> None:
        """Wait for it to end (it must not write any more), and forget it, failed or not."""
        if self._running is not None:
            _, future = self._running
            future.exception()
            self._running = None
            self._discarded()

    def close(self) -> None:
        self.discard()
        self._pool.shutdown()
