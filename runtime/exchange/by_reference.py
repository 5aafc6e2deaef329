"""Buckets by reference: all tasks see one directory, so a name is all that has to travel. For one machine, and for
machines with a shared file system."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from runtime.buckets.file import Buckets
from runtime.buckets.store import BucketStore
from runtime.connectors.base import Read
from runtime.execution.executor import Executor
from runtime.results.segment import SegmentFolder

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


class ByReference:
    def __init__(self, executor: Executor, files: BucketStore, results: Path) -> None:
        self._executor = executor
        self.files, self.segments = files, SegmentFolder(str(results), files.platform)

    @property
    def cores(self) -> int:
        return self._executor.cores

    def run(self, name: str, stage: Callable[[S, T], R], shared: S, tasks: Sequence[T]) -> list[R]:
        return self._executor.run(name, stage, shared, tasks)

    def for_tasks(self, names: Iterable[str]) -> Buckets:
        return self.files

    def carry(self, read: Read) -> Read:
        return read

    def forget(self, name: str) -> None:
        self.files.forget(name)

    def drop(self, name: str) -> None:
        self.files.drop(name)

    def close(self) -> None:
        self.files.close()
