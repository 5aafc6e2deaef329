"""The mailbox between the threads that ask and the one thread that owns the engine.

Two kinds of letters. A *command* (create a stream, push rows) is done at the next moment between two epochs.
*Controls* (create a query, scale, ...) are collected into a query batch, because one batch costs one
changelog whatever its size: the batch is ripe when `batch_interval` seconds have passed since its first
control arrived, or when an epoch has ended since, whichever comes first.

`wait` is the engine thread's only place to sleep. It wakes for a letter, a ripe batch, the next epoch or the
end, and for nothing else. Every letter that was put in is answered exactly once: by the engine thread, or by
`close`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from optimizer.errors import AJoinError
from optimizer.model.types import StreamSchema
from runtime.api import Control


@dataclass(frozen=True, slots=True)
class Item:
    """A control, or why it was refused at the door.

    `schemas`: what a new query's SQL was compiled against. `quota`: how many queries its tenant may have.
    """

    control: Control | AJoinError
    schemas: Mapping[str, StreamSchema] = field(default_factory=dict)
    quota: int | None = None


@dataclass(frozen=True, slots=True)
class Controls:
    """Answered with one outcome per item, in order."""

    items: tuple[Item, ...]
    arrived_ms: int
    future: Future[Any]


@dataclass(frozen=True, slots=True)
class Command:
    """Answered with what `run` returns or raises."""

    run: Callable[[], Any]
    future: Future[Any]


class Mailbox:
    """Every method may be called from any thread; `wait` and `take` belong to the engine thread."""

    def __init__(self, batch_interval: float, monotonic: Callable[[], float]) -> None:
        self._batch_interval = batch_interval
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._commands: list[Command] = []
        self._controls: list[Controls] = []
        self._ripe_at = 0.0
        self._closed: AJoinError | None = None

    def put(self, letter: Command | Controls) -> None:
        """Raises the error the mailbox was closed with."""
        with self._changed:
            if self._closed is not None:
                raise self._closed
            if isinstance(letter, Command):
                self._commands.append(letter)
            else:
                if not self._controls:
                    self._ripe_at = self._monotonic() + self._batch_interval
                self._controls.append(letter)
            self._changed.notify_all()

    def wait(self, until: float) -> bool:
        """Sleep until there is something to take, the time `until` has come, or the end; False at the end."""
        with self._changed:
            while self._closed is None:
                now = self._monotonic()
                due = min(until, self._ripe_at) if self._controls else until
                if self._commands or now >= due:
                    return True
                self._changed.wait(due - now)
            return False

    def take(self) -> tuple[list[Command], list[Controls]]:
        """All commands and, when the batch is ripe, its controls.

        Requests whose caller gave up are left out.
        """
        with self._changed:
            commands, self._commands = self._commands, []
            controls: list[Controls] = []
            if self._controls and self._monotonic() >= self._ripe_at:
                controls, self._controls = self._controls, []
        return (
            [c for c in commands if c.future.set_running_or_notify_cancel()],
            [c for c in controls if c.future.set_running_or_notify_cancel()],
        )

    def epoch_ended(self) -> None:
        """What was collected until now is a batch."""
        with self._changed:
            self._ripe_at = self._monotonic()

    def close(self, error: AJoinError) -> None:
        """Answer everything that waits, and everything that comes, with `error`; wake the engine thread."""
        with self._changed:
            self._closed = self._closed or error
            waiting = [c.future for c in self._commands] + [c.future for c in self._controls]
            self._commands, self._controls = [], []
            self._changed.notify_all()
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
