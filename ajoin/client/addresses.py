"""Several addresses of one platform, of which one serves at a time: the others stand by, or are gone.

`Addresses` holds a channel to each and looks like a single channel to the generated stubs, so calls are written as if
there were one; they go to the address that answered last. `Search` is one call's way to the platform: a call that did
not reach it (nobody listens, a standby answers, the platform stops, has failed or was replaced) goes to the next
address at once, after a round without success after a pause, until it has taken as long as it may. So a client finds
the platform wherever it is, and a take-over is a call that takes longer. With a single address a call is repeated a few
times.

Repeating is safe by the rules that hold anyway: creating and deleting carry a request id, subscriptions go on after
their last cursor, everything else may be done twice.

A machine that is gone does not say so. With several addresses the connection asks for a sign whenever nothing has come
for some seconds, and a connection attempt is given up after the same time, so silence looks like an error too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ajoin.wire import status
from optimizer.errors import AJoinError, InvalidRequest

RETRY_AFTER = (0.1, 0.3, 1.0)
"""Seconds to wait before each repetition of a call that did not reach the service; with several addresses, after each
round, and the last one again and again."""

ELSEWHERE = frozenset({status.UNREACHABLE, "STANDBY", "STOPPING", "STATE_TAKEN", "PLATFORM_FAILED", "CANCELLED"})
"""Reasons after which another address may know more."""

SILENCE_MS = 5_000
ATTENTIVE = [
    ("grpc.keepalive_time_ms", SILENCE_MS),
    ("grpc.keepalive_timeout_ms", SILENCE_MS),
    ("grpc.http2.ping_timeout_ms", SILENCE_MS),  # else the answer to a ping is waited for a minute
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", SILENCE_MS),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]
"""Options of each channel when there are several."""


def parse(target: str | Sequence[str]) -> tuple[str, ...]:
    """`host:port`, several with commas, or a list of them."""
    texts = target.split(",") if isinstance(target, str) else target
    addresses = tuple(dict.fromkeys(text.strip() for text in texts))
    if not addresses or not all(addresses):
        raise InvalidRequest(
            f"{target!r} is no address of a platform", reason="BAD_ADDRESS", hint="for example host:7411, or several"
        )
    return addresses


class Addresses:
    """May be used by several threads: `current` is a number that any of them may move on."""

    def __init__(self, names: tuple[str, ...], channels: Sequence[Any]) -> None:
        self.names, self.channels = names, channels
        self.current = 0
        self.closed = False

    @property
    def several(self) -> bool:
        return len(self.names) > 1

    def leave(self, address: int) -> None:
        """The next call goes elsewhere, unless another thread has moved on already."""
        if self.current == address:
            self.current = (address + 1) % len(self.names)

    def unary_unary(self, *method: Any, **codecs: Any) -> Callable[..., Any]:
        return self._on_current([channel.unary_unary(*method, **codecs) for channel in self.channels])

    def unary_stream(self, *method: Any, **codecs: Any) -> Callable[..., Any]:
        return self._on_current([channel.unary_stream(*method, **codecs) for channel in self.channels])

    def _on_current(self, methods: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
        return lambda *request, **options: methods[self.current](*request, **options)


class Search:
    """`patience`: seconds that may pass without a platform, `limit`: seconds for everything; None: any. `repeats`: may
    the call be repeated if there is a single address?"""

    def __init__(
        self,
        addresses: Addresses,
        patience: float | None,
        limit: float | None,
        *,
        repeats: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._addresses, self._clock = addresses, clock
        self._patience, self._limit = patience, limit
        self._pauses = RETRY_AFTER if repeats or addresses.several else ()
        self._began = self._lost = clock()
        self._failures = 0
        self._at = addresses.current

    def begin(self) -> float | None:
        """Before each attempt: seconds it may take."""
        self._at = self._addresses.current
        return None if self._limit is None else max(self._limit - (self._clock() - self._began), 0.001)

    def found(self) -> None:
        """The platform answers."""
        self._failures, self._lost = 0, self._clock()

    def pause(self, failure: Any) -> float:
        """Seconds until the next attempt; raises what the attempt failed with if there is to be none."""
        error = status.from_rpc(failure, self._addresses.names[self._at])
        if not self._goes_on(error):
            raise error from None
        several = len(self._addresses.names)
        self._failures += 1
        round, rest = divmod(self._failures, several)
        pause = 0.0 if rest else self._pauses[min(round, len(self._pauses)) - 1]
        if self._over(pause):
            raise error from None
        return pause

    def _goes_on(self, error: AJoinError) -> bool:
        if not self._addresses.several:
            return error.reason == status.UNREACHABLE and self._failures < len(self._pauses)
        if self._addresses.closed:
            return False
        if error.reason in ELSEWHERE or error.reason == "DEADLINE_EXCEEDED":
            self._addresses.leave(self._at)
        return error.reason in ELSEWHERE

    def _over(self, pause: float) -> bool:
        then = self._clock() + pause
        return (self._patience is not None and then > self._lost + self._patience) or (
            self._limit is not None and then > self._began + self._limit
        )
