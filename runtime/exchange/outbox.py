"""What a task publishes when there is no place that all tasks see: named bytes that go back with its answer.

The runner of a task opens an outbox around it; what the task posts is in it afterwards. An attempt that fails or comes
second never arrives, so nothing has to be undone. One outbox per running task, also when tasks run in threads.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import BinaryIO, Literal

from optimizer.errors import InternalError

Kind = Literal["bucket", "segment"]


@dataclass(frozen=True, slots=True)
class Posted:
    kind: Kind
    name: str
    data: bytes


_OUTBOX: ContextVar[list[Posted] | None] = ContextVar("outbox", default=None)


@contextmanager
def outbox() -> Iterator[list[Posted]]:
    """Collects what is posted inside."""
    posted: list[Posted] = []
    before = _OUTBOX.set(posted)
    try:
        yield posted
    finally:
        _OUTBOX.reset(before)


def post(kind: Kind, name: str, data: bytes) -> None:
    posted = _OUTBOX.get()
    if posted is None:
        raise InternalError(f"{kind} {name} has nowhere to go: no outbox is open", reason="NO_OUTBOX")
    posted.append(Posted(kind, name, data))


@dataclass(frozen=True, slots=True)
class SegmentOutbox:
    """Result segments go back with the task's answer."""

    platform: str

    def begin(self, name: str) -> BinaryIO:
        return io.BytesIO()

    def publish(self, name: str, file: BinaryIO) -> None:
        assert isinstance(file, io.BytesIO)
        post("segment", name, file.getvalue())
