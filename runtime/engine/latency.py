"""Latency as a user sees it: how old a row is when it can be read, counted from the arrival of its last tuple.

Sources read in order, so the first tuple of an epoch's range has waited longest: its age when the epoch is committed is
the worst age of a row of that epoch, and whatever waited before it was read is part of it. Where a source cannot say
when a tuple arrived (`Loaded.arrived_ms`), its age begins when the range was chosen; and nobody waits for a stream
before it exists, so what lay in a topic or directory then counts from the stream's creation.

Of a stream it is that of the last epoch that read some of it. Of a query it is the worst of its streams, since it runs.
A query that folds gets a window's rows in the epoch whose tuples moved the watermark past the window's end; those
tuples arrived with the epoch too, so the time from the watermark's passing until the rows can be read is at most as
long. A query of which work was put off gets rows of old tuples: they count from the epoch of the oldest of that work.

Nothing of it is kept on disk: after a start it is known again with the next epoch. Clocks of brokers and of machines
that files come from are believed, except about the future.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from optimizer.model.plan import RunningQuery
from runtime.control.events import EpochPlanned
from runtime.control.state import State
from runtime.operators.source import SourceReport


class _Seen(NamedTuple):
    """The last epoch that read a stream, and how old its first tuple was at the commit."""

    epoch: int
    age_ms: int


class Latencies:
    """Written by the engine's thread; values are replaced, so any thread may ask."""

    def __init__(self) -> None:
        self._streams: Mapping[str, _Seen] = {}
        self._behind: Mapping[str, int] = {}
        self._arrived: dict[int, dict[str, int]] = {}

    def committed(self, state: State, planned: EpochPlanned, sources: Iterable[SourceReport], now_ms: int) -> float:
        """After the commit; the worst age of this epoch's tuples, in seconds (0: it had none)."""
        arrived: dict[str, int] = {}
        for report in sources:
            if report.tuples:
                at = planned.at_ms if report.arrived_ms is None else report.arrived_ms
                at = max(at, state.streams[report.stream].since_ms)
                arrived[report.stream] = min(at, arrived.get(report.stream, at), now_ms)
        self._arrived[planned.epoch] = arrived
        oldest = min(state.behind.values(), default=planned.epoch)
        self._arrived = {epoch: known for epoch, known in self._arrived.items() if epoch >= oldest}
        fresh = {stream: _Seen(planned.epoch, now_ms - at) for stream, at in arrived.items()}
        self._streams = {name: seen for name, seen in {**self._streams, **fresh}.items() if name in state.streams}
        self._behind = {uid: self._waited(state.running[uid], since, now_ms) for uid, since in state.behind.items()}
        return max((seen.age_ms for seen in fresh.values()), default=0) / 1000

    def _waited(self, rq: RunningQuery, since: int, now_ms: int) -> int:
        known = self._arrived.get(since, {})
        return max((now_ms - known[s] for s in rq.query.streams if s in known), default=0)

    def of_stream(self, name: str) -> int | None:
        """In milliseconds; None: none of it was read yet."""
        seen = self._streams.get(name)
        return None if seen is None else seen.age_ms

    def of_query(self, rq: RunningQuery, first_epoch: int) -> int | None:
        """`first_epoch`: the first that the query takes part in."""
        ages = [self._behind[rq.uid]] if rq.uid in self._behind else []
        seen = (self._streams.get(name) for name in rq.query.streams)
        ages += [s.age_ms for s in seen if s is not None and s.epoch >= first_epoch]
        return max(ages, default=None)
