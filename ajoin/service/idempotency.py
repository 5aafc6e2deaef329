"""Repeated calls get the first answer.

A client that loses its connection does not know whether its create or delete took effect. It sends the call
again with the same `request_id`: the answer is the one the first call got, even while that one is still being
worked on. A call that was given up by its client goes on to its end, because the client may come back for the
answer.

Refusals are answers too and are kept. What may go away by itself (Unavailable, InternalError) is not: then
the repetition is a new try. Answers are held for `seconds`, and the latest `kept` and `bytes` at most; they do not
survive a restart of the server. What was created can be found again all the same: a query remembers its request
(runtime.api.CreateQuery), so at the next server a repeated create is answered with it. Of a call that has ended only
its answer is held, not the task that made it with its frames.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from optimizer.errors import AJoinError, InternalError, InvalidRequest, Unavailable

LONGEST_ID = 128
R = TypeVar("R")


@dataclass(slots=True)
class _Call:
    """`task` while it runs; then `value`, a message of so many `bytes`, or `refusal`."""

    digest: bytes
    at: float
    task: asyncio.Task[Any] | None = None
    value: Any = None
    refusal: BaseException | None = None
    bytes: int = 0


class IdempotencyCache:
    """Owned by the server's event loop."""

    def __init__(
        self,
        kept: int = 10_000,
        seconds: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
        bytes: int = 64 << 20,
    ) -> None:
        self._kept = kept
        self._seconds = seconds
        self._most_bytes = bytes
        self._bytes = 0
        self._clock = clock
        self._calls: OrderedDict[tuple[str, str, str], _Call] = OrderedDict()

    async def once(self, request: Any, run: Callable[[], Coroutine[Any, Any, R]], owner: str = "") -> R:
        """`run()`, or what it gave the first time; the key is `owner`, the type of the message and its id."""
        id = request.request_id
        if not id:
            return await run()
        if len(id) > LONGEST_ID:
            raise InvalidRequest(
                f"request_id has {len(id)} characters",
                reason="BAD_REQUEST_ID",
                hint=f"use at most {LONGEST_ID}, for example a UUID",
            )
        self._forget_old()
        key = (owner, type(request).__name__, id)
        digest = hashlib.sha256(request.SerializeToString(deterministic=True)).digest()
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = _Call(digest, self._clock())
            call.task = asyncio.ensure_future(run())
            call.task.add_done_callback(lambda done: self._ended(key, call, done))
        elif call.digest != digest:
            raise InvalidRequest(
                f"request_id {id!r} was used for a different request",
                reason="REQUEST_ID_REUSED",
                hint="give every request an id of its own; repeat an id only to repeat the request",
            )
        if call.task is not None:
            return cast(R, await asyncio.shield(call.task))
        if call.refusal is not None:
            raise copy(call.refusal)  # what is raised collects frames, and would keep them
        return cast(R, call.value)

    def _forget_old(self) -> None:
        """The oldest come first. A call that still runs goes on, whether it is known or not."""
        old = self._clock() - self._seconds
        while self._calls:
            key, first = next(iter(self._calls.items()))
            if first.at > old and len(self._calls) < self._kept and self._bytes <= self._most_bytes:
                break
            self._bytes -= first.bytes
            del self._calls[key]

    def _ended(self, key: tuple[str, str, str], call: _Call, task: asyncio.Task[Any]) -> None:
        failure = asyncio.CancelledError() if task.cancelled() else task.exception()
        lasting = failure is None or (
            isinstance(failure, AJoinError) and not isinstance(failure, Unavailable | InternalError)
        )
        if not lasting and self._calls.get(key) is call:
            del self._calls[key]
        elif lasting:
            call.value, call.refusal = (task.result(), None) if failure is None else (None, copy(failure))
            call.task = None
            if failure is None and self._calls.get(key) is call:
                call.bytes = call.value.ByteSize() if isinstance(call.value, Message) else 0
                self._bytes += call.bytes
