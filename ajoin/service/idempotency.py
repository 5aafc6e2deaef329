"""Repeated calls get the first answer.

A client that loses its connection does not know whether its create or delete took effect. It sends the call
again with the same `request_id`: the answer is the one the first call got, even while that one is still being
worked on. A call that was given up by its client goes on to its end, because the client may come back for the
answer.

Refusals are answers too and are kept. What may go away by itself (Unavailable, InternalError) is not: then
the repetition is a new try. The latest `kept` answers are held; they do not survive a restart of the server.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from optimizer.errors import AJoinError, InternalError, InvalidRequest, Unavailable

LONGEST_ID = 128
R = TypeVar("R")


class Answers:
    """Owned by the server's event loop."""

    def __init__(self, kept: int = 10_000) -> None:
        self._kept = kept
        self._tasks: OrderedDict[tuple[str, str, str], tuple[bytes, asyncio.Task[Any]]] = OrderedDict()

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
        key = (owner, type(request).__name__, id)
        digest = hashlib.sha256(request.SerializeToString(deterministic=True)).digest()
        known = self._tasks.get(key)
        if known is not None and known[0] != digest:
            raise InvalidRequest(
                f"request_id {id!r} was used for a different request",
                reason="REQUEST_ID_REUSED",
                hint="give every request an id of its own; repeat an id only to repeat the request",
            )
        if known is not None:
            self._tasks.move_to_end(key)
            return await asyncio.shield(known[1])
        task = asyncio.ensure_future(run())
        self._tasks[key] = (digest, task)
        task.add_done_callback(lambda done: self._forget_transient(key, done))
        if len(self._tasks) > self._kept:
            self._tasks.popitem(last=False)
        return await asyncio.shield(task)

    def _forget_transient(self, key: tuple[str, str, str], task: asyncio.Task[Any]) -> None:
        failure = None if task.cancelled() else task.exception()
        lasting = failure is None or (
            isinstance(failure, AJoinError) and not isinstance(failure, Unavailable | InternalError)
        )
        if (task.cancelled() or not lasting) and self._tasks.get(key, (b"", None))[1] is task:
            del self._tasks[key]
