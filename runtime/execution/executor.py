"""Where tasks run: the seam between the engine and Spark.

A stage is a function of (what all tasks share, one task). The local executor calls it in this process, one task after
the other: the same kernels, operators, files and logs, without a JVM. Thousands of random lives are tested that way;
the Spark executor must then only prove that it runs the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from runtime.execution.outage import as_outage

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


class Broadcast(Protocol):
    """Bytes that tasks on all executors can see. Picklable: a stage carries it, not the bytes."""

    @property
    def data(self) -> memoryview:
        """Starts at an address that suits every type."""
        ...

    def drop(self) -> None:
        """Withdraw it; no stage that carries it may run any more. On the driver only."""
        ...


class Executor(Protocol):
    @property
    def cores(self) -> int:
        """Tasks that can run at the same time, now: executors come and go."""
        ...

    def run(self, name: str, stage: Callable[[S, T], R], shared: S, tasks: Sequence[T]) -> list[R]:
        """Results in task order; a task's exception is raised here. `name` is what a person sees in the Spark UI."""
        ...

    def broadcast(self, pieces: Sequence[bytes]) -> Broadcast:
        """The pieces, joined, for all tasks of later stages."""
        ...

    def stop(self) -> None: ...


class Held:
    """A broadcast to one process."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._bytes = b"".join(pieces)

    @property
    def data(self) -> memoryview:
        return memoryview(self._bytes)

    def drop(self) -> None:
        self._bytes = b""


class LocalExecutor:
    """Everything in this process."""

    cores = 1

    def run(self, name: str, stage: Callable[[S, T], R], shared: S, tasks: Sequence[T]) -> list[R]:
        try:
            return [stage(shared, task) for task in tasks]
        except OSError as e:
            raise as_outage(e) or e from e

    def broadcast(self, pieces: Sequence[bytes]) -> Broadcast:
        return Held(pieces)

    def stop(self) -> None:
        return None
