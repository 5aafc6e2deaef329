"""What all subscribers together may hold in the service's memory.

A subscription that has rows to send holds some batches and messages until its client has taken them; one that has sent
everything holds nothing. With thousands of them that would be gigabytes. So each asks for `PLACE` bytes before it reads
rows, keeps as much of that as it turns out to need (more, if a row is larger), and gives it back when the rows are
sent. Those that ask while there is no room wait in the order in which they came.

A client that does not read keeps its place for as long as nobody else needs it. When the first of those that wait has
waited for `patience` seconds, the subscription that has been stuck in one message for longest is ended, if that is at
least as long: SUBSCRIBER_TOO_SLOW. It can come back with its last cursor and loses nothing. So readers do not wait for
ever for those who do not read, and memory stays within the bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from optimizer.errors import ResourceExhausted

PLACE = 768 << 10
"""READ_AHEAD small batches and two messages (results.py)."""


def too_slow() -> ResourceExhausted:
    return ResourceExhausted(
        "the rows that this subscription does not take fill the room that others need",
        reason="SUBSCRIBER_TOO_SLOW",
        hint="read faster and go on with the last cursor, or ask an operator for a higher max_subscriber_bytes",
    )


@dataclass(slots=True, eq=False)
class Place:
    """Held by one subscription, which is in the middle of a message since `since`. `wanted`: others need it."""

    wanted: asyncio.Future[None]
    size: int = PLACE
    since: float | None = None


class InFlight:
    """Owned by the server's event loop. `clock` gives seconds."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most, self._clock = most, clock
        self._places: set[Place] = set()
        self.held = 0
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def place(self, patience: float) -> AsyncIterator[Place]:
        async with self._turn:
            since = self._clock()
            while self._places and self.held + PLACE > self._most:
                if self._clock() - since >= patience:
                    self._end_the_slowest(patience)
                self._freed.clear()
                try:
                    await asyncio.wait_for(self._freed.wait(), patience / 4)
                except TimeoutError:
                    continue
            place = Place(asyncio.get_running_loop().create_future())
            self._places.add(place)
            self.held += place.size
        try:
            yield place
        finally:
            self._places.discard(place)
            self.held -= place.size
            self._freed.set()

    def resize(self, place: Place, size: int) -> None:
        """So much is really held there."""
        self.held += size - place.size
        place.size = size
        self._freed.set()

    @contextmanager
    def message(self, place: Place, size: int) -> Iterator[None]:
        """Its client is to take a message of so many bytes."""
        if size > place.size:
            self.resize(place, size)
        place.since = self._clock()
        try:
            yield
        finally:
            place.since = None

    def _end_the_slowest(self, patience: float) -> None:
        long_ago = self._clock() - patience
        stuck = [(p.since, n, p) for n, p in enumerate(self._places) if p.since is not None and not p.wanted.done()]
        since, _, slowest = min(stuck, default=(None, 0, None))
        if slowest is not None and since is not None and since <= long_ago:
            slowest.wanted.set_result(None)
