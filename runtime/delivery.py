"""From the result log to the queries' own sinks: at least once per epoch, and every sink replaces what it has of an
epoch.

The result log is the truth; a sink is a copy of it. A marker on disk says up to which epoch all sinks have
everything. It moves only after all of them took an epoch, so after a crash, or when a sink fails (a full disk, a
broker that is away), the epochs after the marker are handed over again, as long as the result log keeps them. Since a
sink replaces what it wrote for an epoch, it ends up with every row exactly once. A sink that fails never holds up an
epoch.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from runtime.connectors.base import Sink
from runtime.connectors.registry import make_sink
from runtime.results import ResultLog
from runtime.state import State

logger = logging.getLogger("ajoin.delivery")


class Delivery:
    """Owned by the engine's thread."""

    def __init__(self, marker: Path, results: ResultLog, allowed_roots: tuple[Path, ...]) -> None:
        self._marker, self._results, self._roots = marker, results, allowed_roots
        self._sinks: dict[tuple[str, int], Sink] = {}
        self._done = int(marker.read_text()) if marker.exists() else 0
        self._failing = False

    def catch_up(self, state: State) -> None:
        """Hand over everything the sinks do not have yet."""
        if not any(r.sinks for r in state.queries.values()):
            self._done = state.epoch
            return
        before = self._done
        while self._done < state.epoch and self._hand_over(state, self._done + 1):
            self._done += 1
        if self._done != before or not self._marker.exists():
            temporary = self._marker.with_suffix(".tmp")
            temporary.write_text(str(self._done))
            os.replace(temporary, self._marker)

    def _hand_over(self, state: State, epoch: int) -> bool:
        for batch in self._results.by_query(epoch, state.segments.get(epoch, ())):
            record = state.queries.get(batch.uid)
            for number, spec in enumerate(record.sinks if record else ()):
                at = (batch.uid, number)
                try:
                    if at not in self._sinks:
                        self._sinks[at] = make_sink(spec, allowed_roots=self._roots)
                    self._sinks[at].write(batch.uid.rpartition("#")[0], epoch, batch.table)
                except Exception as e:
                    if not self._failing:
                        logger.warning(
                            "sink %s of %s failed in epoch %d and is tried again: %s", spec.kind, at[0], epoch, e
                        )
                    self._failing = True
                    return False
        self._failing = False
        return True

    def close(self) -> None:
        for sink in self._sinks.values():
            sink.close()
