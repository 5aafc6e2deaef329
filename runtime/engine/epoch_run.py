"""One epoch: transition, source stage, join stages; from the planned record to the committed one.

planned ──► views and joined state the new plan lacks (only after a plan change)
        ──► source stage: one task per read
        ──► join stages, one after the other: one task per partition and way
        ──► work that earlier epochs have postponed, a portion of it
        ──► rows of windows that close
        ──► committed
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from runtime.api import AtLimit
from runtime.buckets.refs import PartialRef
from runtime.control import postponed
from runtime.control.budgets import Pacing, allowances, samples
from runtime.control.events import EpochCommitted, EpochPlanned, QueryRows, StageSeconds, StreamLetter, StreamProgress
from runtime.control.fold import advanced
from runtime.control.postponed import Pin, Postponed, Resumed
from runtime.crashpoints import reach
from runtime.engine.close_stage import CloseResult, CloseStage
from runtime.engine.join_stage import JoinResult, JoinStage
from runtime.engine.open_buckets import OpenBuckets
from runtime.engine.postponing import Pins, ResumeStage, postpone, without
from runtime.engine.preparation import Preparation
from runtime.engine.rebuild_stage import RebuildStage
from runtime.engine.shares import seconds_by_query, work_by_query
from runtime.engine.source_stage import SourceStage, progress_of
from runtime.engine.stage_context import StageContext
from runtime.execution.physical import Physical
from runtime.execution.transition import plan_transition
from runtime.operators.join import JoinReport
from runtime.operators.source import SourceReport
from runtime.results.segment import Delivered


@dataclass(frozen=True, slots=True)
class EpochResult:
    """The event that makes the epoch count, and what its tasks measured."""

    event: EpochCommitted
    sources: list[SourceReport]
    joins: list[JoinReport]


@dataclass(frozen=True, slots=True)
class _Later:
    """Postponed work in an epoch: what is done of it, what is left of it, and what is new; see EpochCommitted."""

    reports: Sequence[JoinReport] = ()
    postponed: tuple[Postponed, ...] = ()
    resumed: tuple[Resumed, ...] = ()
    pins: tuple[Pin, ...] = ()
    left_out: tuple[str, ...] = ()


class EpochRun:
    """The working state of one running epoch. Reads the state, never changes it; the result is an event.

    `before`: the plan executed last. `ahead`: the source stage's reports, if it ran ahead of the epoch. `sources_done`
    is called when tuples are read: (progress, number of the next source bucket). `pacing`: how much of an epoch one
    query may take. `prepared`: what a change of the plan needs, if it was made before. `next_bucket`: numbers below it
    are given away.
    """

    def __init__(
        self,
        context: StageContext,
        planned: EpochPlanned,
        before: Physical,
        ahead: list[SourceReport] | None,
        sources_done: Callable[[tuple[StreamProgress, ...], int], None],
        pacing: Pacing,
        prepared: Preparation | None,
        next_bucket: int,
    ) -> None:
        self._context, self._planned, self._before = context, planned, before
        self._pacing, self._prepared = pacing, prepared
        self._ahead, self._sources_done = ahead, sources_done
        self._buckets = OpenBuckets(context.state, next_bucket)
        self._seconds: dict[str, float] = {}

    def run(self) -> EpochResult:
        state, physical, epoch = self._context.state, self._context.physical, self._planned.epoch
        began = time.perf_counter()
        transition = plan_transition(state, self._before, physical, separate=self._context.sharing.own_buckets)
        given = None
        if self._prepared is not None and (found := self._prepared.given(self._context, transition)) is not None:
            transition, given = found
        views = RebuildStage(self._context, self._buckets, epoch).run(transition, given)
        if transition.views or transition.outputs:
            self._seconds["transition"] = time.perf_counter() - began
            reach("epoch.transition")
        sources = self._read()
        progress = progress_of(state.streams, sources)
        self._sources_done(progress, self._buckets.next_source)
        reach("epoch.source")
        allowed = allowances(state, self._pacing)
        results: list[JoinResult] = []
        for number, together in enumerate(physical.stages):
            stage = JoinStage(self._context, self._buckets, epoch, together, allowances=allowed)
            results.append(self._join(stage, f"join {number + 1}"))
            reach("epoch.join")
        joins = [report for result in results for report in result.reports]
        later = self._later(results)
        reports = [*joins, *later.reports]
        made: list[SourceReport | JoinReport] = [*sources, *reports]
        partials = tuple(ref for r in made for ref in r.partials)
        closed = self._close_windows(progress, partials, later)
        reach("epoch.closed")
        delivered = [r.delivered for r in made if r.delivered is not None]
        delivered += [r.delivered for r in closed.reports if r.delivered is not None]
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
            delivered=_rows_by_query(
                delivered, seconds_by_query(reports, sources, closed.reports), work_by_query(reports)
            ),
            seconds=tuple(StageSeconds(stage, round(seconds, 6)) for stage, seconds in self._seconds.items()),
            partials=tuple(ref for ref in (*partials, *closed.carried) if ref.file not in closed.merged),
            merged=tuple(name for name in closed.merged if name in state.partials),
            overflows=closed.overflows,
            blocks=closed.blocks,
            lost_blocks=closed.lost,
            postponed=later.postponed,
            resumed=later.resumed,
            pins=later.pins,
            left_out=tuple(sorted({*later.left_out, *closed.left_out, *(uid for r in sources for uid in r.left_out)})),
        )
        return EpochResult(event, sources, joins)

    def _read(self) -> list[SourceReport]:
        began = time.perf_counter()
        reports = self._ahead
        if reports is None:
            reports = SourceStage.of(self._context, self._planned).run()
        for report in reports:
            self._buckets.next_source += 1
            if report.bucket is not None:
                self._buckets.add_source(report.bucket)
        if reports:
            self._seconds["source"] = time.perf_counter() - began
        return reports

    def _join(self, stage: JoinStage, what: str) -> JoinResult:
        began = time.perf_counter()
        result = stage.run(what)
        self._spent(result.reports, time.perf_counter() - began)
        return result

    def _spent(self, reports: Sequence[JoinReport], wall: float) -> None:
        if reports:
            sink = sum(r.sink_seconds for r in reports)
            share = sink / max(sink + sum(r.join_seconds for r in reports), 1e-9)
            self._seconds["join"] = self._seconds.get("join", 0.0) + wall * (1 - share)
            self._seconds["sink"] = self._seconds.get("sink", 0.0) + wall * share

    def _later(self, results: Sequence[JoinResult]) -> _Later:
        """What queries that have used up their part of the epoch leave for later, and what is done of earlier work."""
        state, epoch = self._context.state, self._planned.epoch
        pins = Pins(state.pins)
        first = max(state.postponed, default=0) + 1
        new = postpone(self._context, self._buckets, epoch, results, pins, first)
        sampled = {p.uid for p in new if state.queries[p.uid].budget.at_limit == AtLimit.SAMPLE}
        new = [p for p in new if p.uid not in sampled]
        running = state.running
        waiting = {n: p for n, p in state.postponed.items() if p.uid in running} | {p.number: p for p in new}
        if not waiting:
            return _Later(left_out=tuple(sorted(sampled)))
        began = time.perf_counter()
        had = frozenset(p.uid for p in new) - state.behind.keys()
        reports, resumed = ResumeStage(self._context, epoch, waiting, pins.refs, had, self._pacing).run()
        self._spent(reports, time.perf_counter() - began)
        reach("epoch.resumed")
        kept = without(new, resumed)
        needed = {number for p in kept for number in p.pins}
        return _Later(
            reports,
            tuple(kept),
            tuple(r for r in resumed if r.number in state.postponed),
            tuple(pin for pin in pins.new if pin.number in needed),
            tuple(sorted(sampled)),
        )

    def _close_windows(
        self, progress: Iterable[StreamProgress], partials: tuple[PartialRef, ...], later: _Later
    ) -> CloseResult:
        """Rows of queries that fold, for the windows that close with this epoch or change in it."""
        state = self._context.state
        streams = {p.stream: advanced(state.streams[p.stream], self._planned, p) for p in progress}
        waiting = postponed.after(state.postponed, later.postponed, later.resumed, state.running)
        began = time.perf_counter()
        result = CloseStage(self._context, self._planned.epoch, streams, waiting, partials, samples(state)).run()
        if result.reports:
            self._seconds["close"] = time.perf_counter() - began
        return result


def _rows_by_query(
    delivered: Iterable[Delivered], seconds: Mapping[str, float], work: Mapping[str, int]
) -> tuple[QueryRows, ...]:
    total = {uid: QueryRows(uid, 0, 0) for uid in (*seconds, *work)}
    for part in delivered:
        for uid, (rows, batches, size) in part.queries.items():
            known = total.get(uid, QueryRows(uid, 0, 0))
            total[uid] = QueryRows(uid, known.rows + rows, known.batches + batches, known.bytes + size)
    return tuple(q._replace(seconds=round(seconds.get(q.uid, 0.0), 6), work=work.get(q.uid, 0)) for q in total.values())
