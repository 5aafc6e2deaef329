"""How buckets and results pass between tasks: the one interface that stages see.

A kind of exchange decides four things: what a stage is given to open and write buckets with, where its result segments
go, how a read of the driver's files reaches a task, and what has to happen to what tasks wrote before a stage counts
as done. Everything else (epochs, commits, recovery) is the same for all kinds. A new kind is a module here and a line
in registry.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol, TypeVar

from runtime.buckets.file import Buckets
from runtime.buckets.store import BucketStore
from runtime.connectors.base import Read
from runtime.results.segment import SegmentTarget

ExchangeKind = Literal["reference", "value"]

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


class Exchange(Protocol):
    """Owned by the engine; stages of two epochs may run side by side."""

    @property
    def files(self) -> BucketStore:
        """The bucket files as the driver has them."""
        ...

    @property
    def segments(self) -> SegmentTarget:
        """Where tasks put result segments."""
        ...

    @property
    def cores(self) -> int:
        """Tasks that can run at the same time, now."""
        ...

    def run(self, name: str, stage: Callable[[S, T], R], shared: S, tasks: Sequence[T]) -> list[R]:
        """Reports in task order; what the tasks wrote is then in `files` and in the result log's directory."""
        ...

    def for_tasks(self, names: Iterable[str]) -> Buckets:
        """What the tasks of a stage open and write buckets with; they will open only these."""
        ...

    def carry(self, read: Read) -> Read:
        """The read as a task can load it, wherever it runs."""
        ...

    def forget(self, name: str) -> None:
        """Trust no copy of this file that is open or was sent somewhere; the file itself stays."""
        ...

    def drop(self, name: str) -> None:
        """Delete a file that is not needed any more."""
        ...

    def close(self) -> None:
        """Take back what was sent; the files stay."""
        ...
