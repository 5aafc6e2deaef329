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
from collections.abc import Callable
from pathlib import Path

from optimizer.model.plan import id_of
from runtime.connectors.base import Sink
from runtime.connectors.registry import make_sink
from runtime.control.state import State
from runtime.crashpoints import reach
from runtime.results.log import ResultLog

logger = logging.getLogger("ajoin.delivery")


class Delivery:
    """Owned by the engine's thread."""

    def __init__(
        self,
        marker: Path,
        results: ResultLog,
        allowed_roots: tuple[Path, ...],
        save: Callable[[bytes], object] = lambda data: None,
    ) -> None:
        """`save`: puts the marker somewhere else too. If that fails, more is handed over again after a crash."""
        self._marker, self._results, self._roots, self._save = marker, results, allowed_roots, save
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
        self._let_go(state)
        if self._done != before or not self._marker.exists():
            temporary = self._marker.with_suffix(".tmp")
            temporary.write_text(str(self._done))
            reach("delivery.written")
            os.replace(temporary, self._marker)
            reach("delivery.marked")
            self._save(str(self._done).encode())

    def _hand_over(self, state: State, epoch: int) -> bool:
        reach("delivery.begun")
        uids = [uid for uid, r in state.queries.items() if r.sinks]
        for batch in self._results.by_query(epoch, state.segments.get(epoch, ()), uids):
            for number, spec in enumerate(state.queries[batch.uid].sinks):
                at = (batch.uid, number)
                try:
                    if at not in self._sinks:
                        self._sinks[at] = make_sink(spec, allowed_roots=self._roots)
                    self._sinks[at].write(id_of(batch.uid), epoch, batch.table)
                    reach("delivery.sink")
                except Exception as e:
                    if not self._failing:
                        logger.warning(
                            "sink %s of %s failed in epoch %d and is tried again: %s", spec.kind, at[0], epoch, e
                        )
                    self._failing = True
                    return False
        self._failing = False
        return True

    def _let_go(self, state: State) -> None:
        """Sinks of queries that are gone; should one be needed after all, it is made again."""
        for at in [a for a in self._sinks if a[0] not in state.queries or not state.queries[a[0]].running]:
            self._sinks.pop(at).close()

    def close(self) -> None:
        for sink in self._sinks.values():
            sink.close()
