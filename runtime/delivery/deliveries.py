"""All sinks of all queries: which rows each gets, from which epoch on, until when.

The engine's thread only announces: after a commit, and before results are removed, it hands over what the state says
now, as frozen values (`Wanted`). Deliveries read those and nothing else of the engine.

After a restart every sink goes on after the epoch that log/delivered has for it, or with its query's first epoch. The
entry of a deleted query stays as long as the query is remembered, or its rows would be handed over once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from runtime.api import SinkStatus
from runtime.connectors.base import ConnectorSpec, Sink
from runtime.control.state import QueryRecord, State
from runtime.delivery.delivery import Delivery, Wanted
from runtime.delivery.progress import Progress, ProgressFile, SinkId
from runtime.delivery.schedule import Schedule
from runtime.results.log import ResultLog

SHOWN = 100
"""Sinks in trouble that `behind` tells of, at most."""


class Deliveries:
    """Owned by the engine's thread; `count`, `of` and `behind` may be asked from any."""

    def __init__(
        self,
        progress: ProgressFile,
        results: ResultLog,
        open_sink: Callable[[ConnectorSpec], Sink],
        schedule: Schedule,
        now: Callable[[], int],
    ) -> None:
        self._progress, self._results, self._open_sink = progress, results, open_sink
        self._schedule, self._now = schedule, now
        self._deliveries: Mapping[SinkId, Delivery] = {}

    def announce(self, state: State) -> None:
        """Tell every delivery what is committed and what is kept. Returns at once (`InStep`: when they are done)."""
        records = {uid: r for uid, r in state.queries.items() if r.sinks}
        if not records and not self._deliveries:
            return
        self._progress.keep(records)
        deliveries: dict[SinkId, Delivery] = {}
        for uid, record in records.items():
            gone = state.expired.get(uid)
            wanted = Wanted(
                state.epoch,
                0 if record.last is None else record.last.epoch,
                record.rows,
                0 if gone is None else gone.epoch,
                not record.running,
                state.segments,
            )
            for number, spec in enumerate(record.sinks):
                id = SinkId(uid, number)
                delivery = self._deliveries.get(id) or self._begin(id, spec, record, wanted)
                delivery.tell(wanted)
                if not delivery.over:
                    deliveries[id] = delivery
        self._deliveries = deliveries
        self._schedule.work(deliveries)

    def _begin(self, id: SinkId, spec: ConnectorSpec, record: QueryRecord, wanted: Wanted) -> Delivery:
        begin = self._progress.get(id) or Progress(record.epoch - 1, 0)
        delivery = Delivery(id, spec, self._open_sink, self._results, self._progress, begin, wanted, self._now)
        delivery.over = wanted.ended and begin.epoch >= wanted.last
        return delivery

    def close(self) -> None:
        """Graceful: sinks that work get what was announced, for a few seconds at most."""
        try:
            self._schedule.finish()
        finally:
            self._progress.close()

    def abandon(self) -> None:
        """As if the process were killed: nothing is waited for."""
        self._progress.close()
        self._schedule.abandon()

    # -- any thread -----------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        return sum(not d.over for d in self._deliveries.values())

    def of(self, uid: str, sinks: int) -> tuple[SinkStatus, ...]:
        """How a query's sinks are doing; of those that have ended, or have not begun, there is nothing to tell."""
        deliveries = self._deliveries
        mine = [deliveries.get(SinkId(uid, number)) for number in range(sinks)]
        return tuple(d.status() for d in mine if d is not None and not d.over)

    def behind(self) -> tuple[SinkStatus, ...]:
        """Sinks that fail or lack more than the newest epoch, those that lack most first."""
        all = [d.status() for d in self._deliveries.values() if not d.over]
        late = [s for s in all if s.failing_since_ms is not None or s.epochs_behind > 1]
        return tuple(sorted(late, key=lambda s: (-s.epochs_behind, s.uid, s.number))[:SHOWN])
