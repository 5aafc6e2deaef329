"""How coroutines wait for the engine thread.

The platform calls its listeners from the engine thread; a ChangeSignal carries that call into one event loop. To
miss nothing, take the event *before* looking at the platform, and wait for it after:

    event = changes.next()
    ... look ...
    await event.wait()
"""

from __future__ import annotations

import asyncio
import contextlib

from ajoin.platform.platform import Platform


class ChangeSignal:
    """Owned by the event loop it is created on."""

    def __init__(self, platform: Platform) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._remove = platform.add_listener(self._from_engine_thread)

    def next(self) -> asyncio.Event:
        """Set at the next change."""
        return self._event

    def close(self) -> None:
        self._remove()
        self._fire()

    def _from_engine_thread(self) -> None:
        # A loop that is already closed has no coroutine left to wake.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._fire)

    def _fire(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()
