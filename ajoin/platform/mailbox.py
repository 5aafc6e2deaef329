"""The mailbox between the threads that ask and the one thread that owns the engine.

There are two kinds of requests. An `EngineCall` (create a stream, push rows) is made at the next moment between two
epochs. A `BatchRequest` (create queries, scale, ...) waits until its query batch is due, because one batch costs one
changelog whatever its size: `batch_interval` seconds after the first request of the batch arrived, or when an epoch has
ended since, whichever comes first.

`wait` is the engine thread's only place to sleep. It wakes for a request, a batch that is due, the next epoch or the
end, and for nothing else. Every request that was put in is answered exactly once: by the engine thread, or by `close`.

What waits is bounded, in number and in bytes of SQL, because an epoch may take long and callers do not: beyond that,
requests are refused with MAILBOX_FULL. Requests that create nothing (delete, suspend, ...) may fill as much again, so
that those who want to make room are not shut out by those who want more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from optimizer.errors import AJoinError, ResourceExhausted
from optimizer.model.types import StreamSchema
from runtime.api import Control, CreateQuery


@dataclass(frozen=True, slots=True)
class BatchItem:
    """A control, or why it was refused before it got here.

    `schemas`: what a new query's SQL was compiled against. `quota`: how many queries its tenant may have.
    """

    control: Control | AJoinError
    schemas: Mapping[str, StreamSchema] = field(default_factory=dict)
    quota: int | None = None


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """Answered with one outcome per item, in order."""

    items: tuple[BatchItem, ...]
    arrived_ms: int
    future: Future[Any]

    @property
    def count(self) -> int:
        return len(self.items)

    @property
    def creates(self) -> bool:
        return any(isinstance(item.control, CreateQuery) for item in self.items)

    @property
    def bytes(self) -> int:
        return sum(len(i.control.query.sql.encode()) for i in self.items if isinstance(i.control, CreateQuery))


@dataclass(frozen=True, slots=True)
class EngineCall:
    """Answered with what `run` returns or raises."""

    run: Callable[[], Any]
    future: Future[Any]
    creates: bool = True

    count = 1
    bytes = 0


class Mailbox:
    """Every method may be called from any thread; `wait` and `take` belong to the engine thread."""

    def __init__(
        self,
        batch_interval: float,
        monotonic: Callable[[], float],
        most_requests: int = 20_000,
        most_bytes: int = 32 << 20,
    ) -> None:
        self._batch_interval = batch_interval
        self._monotonic = monotonic
        self._most_requests, self._most_bytes = most_requests, most_bytes
        self._waiting = self._bytes = 0
        self._changed = threading.Condition()
        self._calls: list[EngineCall] = []
        self._batch: list[BatchRequest] = []
        self._batch_due = 0.0
        self._closed: AJoinError | None = None

    def put(self, request: EngineCall | BatchRequest) -> None:
        """Raises the error the mailbox was closed with, or MAILBOX_FULL."""
        with self._changed:
            if self._closed is not None:
                raise self._closed
            self._check_room(request)
            self._waiting += request.count
            self._bytes += request.bytes
            if isinstance(request, EngineCall):
                self._calls.append(request)
            else:
                if not self._batch:
                    self._batch_due = self._monotonic() + self._batch_interval
                self._batch.append(request)
            self._changed.notify_all()

    def _check_room(self, request: EngineCall | BatchRequest) -> None:
        room = 1 if request.creates else 2
        waiting, size = self._waiting + request.count, self._bytes + request.bytes
        if waiting > room * self._most_requests or size > room * self._most_bytes:
            raise ResourceExhausted(
                "too many requests wait for the epoch to end",
                reason="MAILBOX_FULL",
                hint="try again in a moment, with smaller batches, or raise the settings max_mailbox_requests and "
                "max_mailbox_bytes",
            )

    def wait(self, until: float) -> bool:
        """Sleep until there is something to take, the time `until` has come, or the end; False at the end."""
        with self._changed:
            while self._closed is None:
                now = self._monotonic()
                due = min(until, self._batch_due) if self._batch else until
                if self._calls or now >= due:
                    return True
                self._changed.wait(due - now)
            return False

    def take(self) -> tuple[list[EngineCall], list[BatchRequest]]:
        """All calls and, when it is due, the batch.

        Requests whose caller gave up are left out.
        """
        with self._changed:
            calls, self._calls = self._calls, []
            batch: list[BatchRequest] = []
            if self._batch and self._monotonic() >= self._batch_due:
                batch, self._batch = self._batch, []
            self._waiting, self._bytes = sum(r.count for r in self._batch), sum(r.bytes for r in self._batch)
        return (
            [c for c in calls if c.future.set_running_or_notify_cancel()],
            [r for r in batch if r.future.set_running_or_notify_cancel()],
        )

    def epoch_ended(self) -> None:
        """What was collected until now is a batch."""
        with self._changed:
            self._batch_due = self._monotonic()

    def close(self, error: AJoinError) -> None:
        """Answer everything that waits, and everything that comes, with `error`; wake the engine thread."""
        with self._changed:
            self._closed = self._closed or error
            waiting = [c.future for c in self._calls] + [r.future for r in self._batch]
            self._calls, self._batch = [], []
            self._changed.notify_all()
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
