"""Writes events to disk before they are acted upon; the only way to change the coordinator's state.

`record` puts the files that an event lists where they must survive, appends the event to the log, and only then lets
the coordinator take the state that follows. If appending fails, nothing has changed.
"""

from __future__ import annotations

import logging

from optimizer.errors import Unavailable
from runtime.control.coordinator import Coordinator
from runtime.control.events import Event
from runtime.durable.interface import Durability
from runtime.log.codec import encode
from runtime.log.log import Log

logger = logging.getLogger("ajoin.engine")


class Journal:
    """Owned by the engine's thread. `snapshot_every`: records after which the next snapshot is due."""

    def __init__(self, log: Log, durability: Durability, coordinator: Coordinator, snapshot_every: int) -> None:
        self._log, self._durability, self._coordinator = log, durability, coordinator
        self._snapshot_every = snapshot_every

    def record(self, event: Event) -> tuple[str, ...]:
        """Returns the names of bucket files that are not needed after it."""
        event, objects = self._durability.secure(event)
        self._log.append(encode(event))
        unneeded = self._coordinator.handle(event)
        self._durability.hold(objects)
        return unneeded

    def snapshot_if_due(self) -> None:
        if self._log.since_snapshot >= self._snapshot_every:
            self.snapshot()

    def snapshot(self) -> None:
        """A snapshot only makes the next start faster, so an outage is no reason to fail."""
        try:
            self._log.snapshot(self._coordinator.state.to_json())
        except Unavailable as outage:
            logger.warning("the snapshot waits: %s", outage)

    def close(self) -> None:
        self._log.close()
