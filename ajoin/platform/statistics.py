"""Recent history of a running platform: what the last epochs did, and rates from it.

Counters only grow, so a rate is the difference of two snapshots divided by the time between them. A snapshot
is taken at most once a second and `KEPT` of them are held: rates cover up to a minute, and are computed only
on request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runtime.api import QueryInfo, QueryState, StreamInfo

KEPT = 60


@dataclass(frozen=True, slots=True)
class EpochSummary:
    epoch: int
    committed_at_ms: int
    tuples: int
    rows: int
    stage_seconds: Mapping[str, float] = field(default_factory=dict)
    latency_seconds: float = 0.0
    throttled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    name: str
    tuples: int
    tuples_per_second: float
    late_dropped: int
    dead_letters: int
    backlog: int = 0
    backlog_unit: str = ""
    throttled: bool = False
    lag_ms: int | None = None


@dataclass(frozen=True, slots=True)
class QueryStatistics:
    """`watermark_lag_ms`: how far the query's watermark trails the greatest event time of its streams."""

    id: str
    rows: int
    rows_per_second: float
    watermark_lag_ms: int | None


@dataclass(frozen=True, slots=True)
class Statistics:
    epochs: tuple[EpochSummary, ...]
    streams: tuple[StreamStatistics, ...]
    queries: tuple[QueryStatistics, ...]


@dataclass(frozen=True, slots=True)
class _Snapshot:
    at_ms: int
    tuples: Mapping[str, int]
    rows: Mapping[str, int]


class History:
    """Written by the engine thread; reading takes copies, so any thread may ask."""

    def __init__(self) -> None:
        self._epochs: deque[EpochSummary] = deque(maxlen=KEPT)
        self._snapshots: deque[_Snapshot] = deque(maxlen=KEPT)

    def wants_snapshot(self, now_ms: int) -> bool:
        return not self._snapshots or now_ms - self._snapshots[-1].at_ms >= 1000

    def record(self, epoch: EpochSummary) -> None:
        self._epochs.append(epoch)

    def snapshot(self, now_ms: int, streams: Sequence[StreamInfo], queries: Sequence[QueryInfo]) -> None:
        tuples = {s.schema.name: s.tuples for s in streams}
        self._snapshots.append(_Snapshot(now_ms, tuples, {q.uid: q.rows for q in queries}))

    def statistics(
        self, now_ms: int, streams: Sequence[StreamInfo], queries: Sequence[QueryInfo], epochs: int = KEPT
    ) -> Statistics:
        past = next(iter(self._snapshots.copy()), _Snapshot(now_ms, {}, {}))
        seconds = max(now_ms - past.at_ms, 1) / 1000
        newest: dict[str, int] = {}
        for s in streams:
            for id in s.queries:
                newest[id] = max(newest.get(id, s.max_event_time or 0), s.max_event_time or 0)
        recent = tuple(self._epochs.copy())
        return Statistics(
            recent[-epochs:] if epochs > 0 else (),
            tuple(
                StreamStatistics(
                    s.schema.name,
                    s.tuples,
                    (s.tuples - past.tuples.get(s.schema.name, 0)) / seconds,
                    s.late_dropped,
                    s.dead_letter,
                    s.backlog,
                    s.backlog_unit,
                    s.throttled,
                    s.lag_ms,
                )
                for s in sorted(streams, key=lambda s: s.schema.name)
            ),
            tuple(
                QueryStatistics(
                    q.id,
                    q.rows,
                    (q.rows - past.rows.get(q.uid, 0)) / seconds,
                    None if q.watermark is None else max(0, newest.get(q.id, q.watermark) - q.watermark),
                )
                for q in sorted(queries, key=lambda q: q.id)
                if q.state == QueryState.RUNNING
            ),
        )
