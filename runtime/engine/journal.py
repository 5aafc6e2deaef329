"""Writes events to disk before they are acted upon; the only way to change the coordinator's state.

`record` appends the event to the log, and only then lets the coordinator take the state that follows. If appending
fails, nothing has changed.
"""

from __future__ import annotations

import logging

from optimizer.errors import Unavailable
from runtime.control.coordinator import Coordinator
from runtime.control.events import Event
from runtime.log.codec import encode
from runtime.store.interface import Records

logger = logging.getLogger("ajoin.engine")


class Journal:
    """Owned by the engine's thread. `snapshot_every`: records after which the next snapshot is due."""

    def __init__(self, log: Records, coordinator: Coordinator, snapshot_every: int) -> None:
        self._log, self._coordinator, self._snapshot_every = log, coordinator, snapshot_every

    def record(self, event: Event) -> tuple[str, ...]:
        """Returns the names of bucket files that are not needed after it."""
        self._log.append(encode(event))
        return self._coordinator.handle(event)

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
