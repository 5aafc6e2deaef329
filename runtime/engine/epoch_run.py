"""One epoch: transition, source stage, join stages; from the planned record to the committed one.

planned ──► views and joined state the new plan lacks (only after a plan change)
        ──► source stage: one task per read
        ──► join stage per level: one task per partition and way
        ──► rows of windows that close
        ──► committed
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from runtime.control import counts
from runtime.control.events import EpochCommitted, EpochPlanned, QueryRows, StageSeconds, StreamLetter, StreamProgress
from runtime.control.fold import advanced
from runtime.crashpoints import reach
from runtime.engine.join_stage import JoinStage
from runtime.engine.open_buckets import OpenBuckets
from runtime.engine.rebuild_stage import RebuildStage
from runtime.engine.source_stage import SourceStage, progress_of
from runtime.engine.stage_context import StageContext
from runtime.execution.physical import Physical
from runtime.execution.transition import plan_transition
from runtime.operators.join import JoinReport
from runtime.operators.source import SourceReport
from runtime.results import count_rows
from runtime.results.segment import Delivered, SegmentTarget, SegmentWriter


@dataclass(frozen=True, slots=True)
class EpochResult:
    """The event that makes the epoch count, and what its tasks measured."""

    event: EpochCommitted
    sources: list[SourceReport]
    joins: list[JoinReport]


class EpochRun:
    """The working state of one running epoch. Reads the state, never changes it; the result is an event.

    `before`: the plan executed last. `closing`: where the rows of closing windows go. `ahead`: the source stage's
    reports, if it ran ahead of the epoch. `sources_done` is called when tuples are read: (progress, number of the next
    source bucket).
    """

    def __init__(
        self,
        context: StageContext,
        planned: EpochPlanned,
        before: Physical,
        closing: SegmentTarget,
        ahead: list[SourceReport] | None,
        sources_done: Callable[[tuple[StreamProgress, ...], int], None],
    ) -> None:
        self._context, self._planned, self._before, self._closing = context, planned, before, closing
        self._ahead, self._sources_done = ahead, sources_done
        self._buckets = OpenBuckets(context.state)
        self._seconds: dict[str, float] = {}

    def run(self) -> EpochResult:
        state, physical, epoch = self._context.state, self._context.physical, self._planned.epoch
        began = time.perf_counter()
        transition = plan_transition(state, self._before, physical, separate=self._context.sharing.own_buckets)
        views = RebuildStage(self._context, self._buckets, epoch).run(transition)
        if transition.views or transition.outputs:
            self._seconds["transition"] = time.perf_counter() - began
            reach("epoch.transition")
        sources = self._read()
        progress = progress_of(state.streams, sources)
        self._sources_done(progress, self._buckets.next_source)
        reach("epoch.source")
        joins: list[JoinReport] = []
        for number, level in enumerate(physical.levels):
            joins += self._join(JoinStage(self._context, self._buckets, epoch, level), f"join {number + 1}")
            reach("epoch.join")
        deltas = counts.summed(r.counts for r in joins)
        closed = self._close_windows(progress, deltas)
        reach("epoch.counted")
        delivered = [d for d in (*(r.delivered for r in joins), closed) if d is not None]
        event = EpochCommitted(
            epoch=epoch,
            next_bucket=self._buckets.next_bucket,
            next_source=self._buckets.next_source,
            progress=progress,
            letters=tuple(StreamLetter(r.stream, letter) for r in sources for letter in r.letters),
            sources=tuple(r.bucket for r in sources if r.bucket is not None),
            joined=tuple(r for r in self._buckets.joined.values() if r.id not in state.joined),
            views=views,
            stale=transition.stale,
            segments=tuple(d.segment for d in delivered),
            delivered=_rows_by_query(delivered),
            seconds=tuple(StageSeconds(stage, round(seconds, 6)) for stage, seconds in self._seconds.items()),
            counts=deltas,
        )
        return EpochResult(event, sources, joins)

    def _read(self) -> list[SourceReport]:
        began = time.perf_counter()
        reports = self._ahead
        if reports is None:
            state, ends = self._context.state, dict(self._planned.ends)
            stage = SourceStage(self._context, self._planned.epoch, state.streams, ends, state.next_source)
            reports = stage.run()
        for report in reports:
            self._buckets.next_source += 1
            if report.bucket is not None:
                self._buckets.add_source(report.bucket)
        if reports:
            self._seconds["source"] = time.perf_counter() - began
        return reports

    def _join(self, stage: JoinStage, what: str) -> list[JoinReport]:
        began = time.perf_counter()
        reports = stage.run(what)
        if reports:
            wall = time.perf_counter() - began
            sink = sum(r.sink_seconds for r in reports)
            share = sink / max(sink + sum(r.join_seconds for r in reports), 1e-9)
            self._seconds["join"] = self._seconds.get("join", 0.0) + wall * (1 - share)
            self._seconds["sink"] = self._seconds.get("sink", 0.0) + wall * share
        return reports

    def _close_windows(self, progress: Iterable[StreamProgress], deltas: counts.Deltas) -> Delivered | None:
        """Rows of COUNT(*) queries, for the windows that close with this epoch."""
        state = self._context.state
        streams = {p.stream: advanced(state.streams[p.stream], self._planned, p) for p in progress}
        _, rows = counts.settle(state, streams, deltas)
        name = f"e{self._planned.epoch:010d}-counts.segment"
        return count_rows.write(rows, state.running, SegmentWriter(self._closing, name))


def _rows_by_query(delivered: Iterable[Delivered]) -> tuple[QueryRows, ...]:
    total: dict[str, QueryRows] = {}
    for part in delivered:
        for uid, (rows, batches) in part.queries.items():
            known = total.get(uid, QueryRows(uid, 0, 0))
            total[uid] = QueryRows(uid, known.rows + rows, known.batches + batches)
    return tuple(total.values())
