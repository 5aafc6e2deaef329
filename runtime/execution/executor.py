"""Where tasks run: the seam between the engine and Spark.

A stage is a function of (what all tasks share, one task). The local executor calls it in this process, one task after
the other: the same kernels, operators, files and logs, without a JVM. Thousands of random lives are tested that way;
the Spark executor must then only prove that it runs the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from runtime.api import ExecutorStatus
from runtime.execution.outage import as_outage

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


class Executor(Protocol):
    @property
    def here(self) -> bool:
        """Do all tasks see the files of this machine?"""
        ...

    @property
    def cores(self) -> int:
        """Tasks that can run at the same time, now: executors come and go."""
        ...

    def run(self, name: str, stage: Callable[[S, T], R], shared: S, tasks: Sequence[T]) -> list[R]:
        """Results in task order; a task's exception is raised here. `name` is what a person sees in the Spark UI."""
        ...

    def executors(self, partitions: int) -> tuple[ExecutorStatus, ...]:
        """Those that are there, and which of so many partitions they work on."""
        ...

    def stop(self) -> None: ...


class LocalExecutor:
    """Everything in this process."""

    cores = 1
    here = True

    def run(self, name: str, stage: Callable[[S, T], R], shared: S, tasks: Sequence[T]) -> list[R]:
        try:
            return [stage(shared, task) for task in tasks]
        except OSError as e:
            raise as_outage(e) or e from e

    def executors(self, partitions: int) -> tuple[ExecutorStatus, ...]:
        return ()  # the driver's own: it is the same process

    def stop(self) -> None:
        return None
