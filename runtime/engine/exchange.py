"""How buckets and results pass between tasks: by name, through a place that all tasks see.

A task writes a file into the state directory or the store and answers with a reference; a later task opens it by that
reference. The bytes never pass through the driver. Stages ask for what their tasks open and write with right before
they run (`for_tasks`, `segments`), so every run of a stage has its own (runtime.buckets.runs).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from optimizer.errors import FailedPrecondition
from runtime.api import ExecutorStatus
from runtime.buckets.file import Buckets
from runtime.buckets.refs import JoinedRef, SourceRef
from runtime.buckets.runs import BucketFiles
from runtime.execution.executor import Executor
from runtime.operators.references import Carried, Pieces
from runtime.results.segment import SegmentTarget
from runtime.store.interface import Files

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


class Exchange:
    """Owned by the engine; stages of two epochs may run side by side. `failed` is told of runs that did not end
    well. `sources` and `joined` make what travels out of references."""

    def __init__(self, executor: Executor, files: Files, failed: Callable[[], None]) -> None:
        self._executor, self._files, self._failed = executor, files, failed
        self.sources: Carried[SourceRef] = dict if executor.here else Pieces[SourceRef]().of
        self.joined: Carried[JoinedRef] = dict if executor.here else Pieces[JoinedRef]().of

    @property
    def files(self) -> BucketFiles:
        return self._files.buckets

    @property
    def cores(self) -> int:
        """Tasks that can run at the same time, now."""
        return self._executor.cores

    def executors(self, partitions: int) -> tuple[ExecutorStatus, ...]:
        return self._executor.executors(partitions)

    def run(self, name: str, stage: Callable[[S, T], R], shared: S, tasks: Sequence[T]) -> list[R]:
        """Reports in task order; what the tasks wrote is then there."""
        try:
            return self._executor.run(name, stage, shared, tasks)
        except BaseException:
            self._failed()
            raise

    def for_tasks(self) -> Buckets:
        """What the tasks of one run of a stage open and write buckets with."""
        return self._files.for_tasks()

    def segments(self) -> SegmentTarget:
        """Where the tasks of one run of a stage put result segments."""
        return self._files.segments()

    def forget(self, name: str) -> None:
        """Trust no copy of this file that is open or cached; the file itself stays."""
        self._files.buckets.forget(name)

    def drop(self, name: str) -> None:
        """Delete a file that is not needed any more."""
        self._files.drop(name)

    def close(self) -> None:
        self._files.buckets.close()


def check_place(executor: Executor, store: str | None) -> None:
    if store is None and not executor.here:
        raise store_required()


def store_required() -> FailedPrecondition:
    return FailedPrecondition(
        "tasks run on executors that need not see this machine's state directory, and there is no store",
        reason="STORE_REQUIRED",
        hint="say where all of them can read and write: --store s3://bucket/folder, hdfs://host/folder, or a path that "
        "is mounted on all of them",
    )
