"""Buckets by value: for executors that share no file system with the driver or with each other.

The files exist on the driver only, as the durable copy, and everything else travels:

    task ── answer and outbox (what it wrote) ──► driver: files ──► parcel ── broadcast ──► executors of later stages

What a stage wrote is received before the stage counts as done, file by file and atomically, so the protocol of epochs,
commits and recovery is the same as by reference. How buckets go out again: parcels.py.

Costs compared with references: every bucket goes through the driver, and every executor holds all open buckets (on
its disk, memory-mapped by its Python workers). Result segments pass through the memory of task and driver.
docs/decisions/0008-exchange-by-value.md has the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from runtime.buckets.file import Buckets, put
from runtime.buckets.store import BucketStore
from runtime.connectors.base import Read, carried
from runtime.exchange.outbox import Posted, SegmentOutbox, outbox
from runtime.exchange.parcels import Parcels
from runtime.execution.executor import Executor

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


class ByValue:
    """Tasks publish into outboxes; what comes back with their answers is received here."""

    def __init__(self, executor: Executor, files: BucketStore, results: Path) -> None:
        self._executor, self._results = executor, results
        self.files, self.segments = files, SegmentOutbox(files.platform)
        self._parcels = Parcels(files, executor.broadcast)

    @property
    def cores(self) -> int:
        return self._executor.cores

    def run(self, name: str, stage: Callable[[S, T], R], shared: S, tasks: Sequence[T]) -> list[R]:
        answers = self._executor.run(name, _posting, (stage, shared), tasks)
        for _, posted in answers:
            for one in posted:
                self._receive(one)
        return [answer for answer, _ in answers]

    def _receive(self, posted: Posted) -> None:
        if posted.kind == "segment":
            put(self._results / posted.name, posted.data)
        else:
            put(self.files.directory / posted.name, posted.data)
            self.forget(posted.name)  # whatever had this name before was never committed

    def for_tasks(self, names: Iterable[str]) -> Buckets:
        return self._parcels.for_tasks(names)

    def carry(self, read: Read) -> Read:
        return carried(read)

    def forget(self, name: str) -> None:
        self._parcels.forget(name)
        self.files.forget(name)

    def drop(self, name: str) -> None:
        self._parcels.forget(name)
        self.files.drop(name)

    def close(self) -> None:
        self._parcels.close()
        self.files.close()


def _posting(shared: tuple[Callable[[S, T], R], S], task: T) -> tuple[R, list[Posted]]:
    stage, inner = shared
    with outbox() as posted:
        answer = stage(inner, task)
    return answer, posted
