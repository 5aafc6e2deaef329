"""The source stage as a value: what to read, under which plan, into which buckets; so that it can run ahead.

Everything the stage needs is fixed before it starts: offset ranges, plan version, the watermark that decides lateness,
the clock that decides what is too far ahead, bucket ids. Hence the source stage of epoch e+1 can run while epoch e
still joins (pipeline parallelism): it needs nothing from the joins of epoch e. If the plan changes before epoch e+1
begins, what ran ahead is thrown away and read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from runtime.buckets.refs import Origin
from runtime.connectors.base import Read
from runtime.connectors.position import Position
from runtime.control.budgets import samples
from runtime.control.events import EpochPlanned, SkippedTuples, StreamProgress
from runtime.control.state import StreamState
from runtime.engine.open_buckets import source_id
from runtime.engine.stage_context import StageContext
from runtime.operators.source import SourceReport, SourceShared, SourceTask, run_source


@dataclass(frozen=True)
class SourceStage:
    """`at_ms`: the epoch's wall-clock time. `streams`: where the streams stand. `ends`: up to where each is read.
    `first`: number of the first bucket. `skipped`: tuples that are to be left out."""

    context: StageContext
    epoch: int
    at_ms: int
    streams: Mapping[str, StreamState]
    ends: Mapping[str, Position]
    first: int
    skipped: Sequence[SkippedTuples] = ()

    @staticmethod
    def of(context: StageContext, planned: EpochPlanned) -> SourceStage:
        """Of the planned epoch, over the state as it is."""
        s = context.state
        return SourceStage(
            context, planned.epoch, planned.at_ms, s.streams, dict(planned.ends), s.next_source, planned.skipped
        )

    def run(self) -> list[SourceReport]:
        return run_source_tasks(self.context, self.epoch, "source", self.tasks(), run_source)

    def tasks(self) -> list[SourceTask]:
        tasks: list[SourceTask] = []
        for stream, number, read in self.reads():
            st = self.streams[stream]
            skipped = tuple(skip.what for skip in self.skipped if (skip.stream, skip.read) == (stream, number))
            origin = Origin(
                st.position, self.ends[stream], number, st.accept_from, ahead=st.ahead(self.at_ms), skipped=skipped
            )
            tasks += self._of_read(stream, read, origin, len(tasks))
        return tasks

    def reads(self) -> Iterator[tuple[str, int, Read]]:
        """What is read: stream, number within the stream's range, and the read."""
        for stream, end in sorted(self.ends.items()):
            at = self.streams[stream].position
            if end != at:
                for number, read in enumerate(self.context.sources[stream].reads(at.offset, end.offset)):
                    yield stream, number, read

    def _of_read(self, stream: str, read: Read, origin: Origin, number: int) -> list[SourceTask]:
        """One task; if every group has buckets of its own, one per group, of which the first counts what was read."""
        spec = self.context.physical.sources.get(stream)
        if not self.context.sharing.own_buckets or spec is None or not spec.views:
            return [SourceTask(stream, source_id(self.first + number), read, origin)]
        plan = self.context.plan
        return [
            SourceTask(
                stream,
                source_id(self.first + number + i),
                read,
                replace(origin, queries=tuple(plan.slots(group).values())),
                group,
                counts=i == 0,
            )
            for i, group in enumerate(sorted({v.group for v in spec.views}))
        ]


def run_source_tasks(
    context: StageContext,
    epoch: int,
    what: str,
    tasks: Sequence[SourceTask],
    run: Callable[[SourceShared, SourceTask], SourceReport],
) -> list[SourceReport]:
    if not tasks:
        return []
    shared = SourceShared(
        context.exchange.for_tasks(),
        context.physical.version,
        epoch,
        context.physical.shipped_sources,
        {t.stream: context.schemas[t.stream] for t in tasks},
        context.key,
        context.exchange.segments(),
        context.source_floors,
        _per_task(context, tasks),
    )
    return context.exchange.run(f"epoch {epoch}: {what}", run, shared, tasks)


def _per_task(context: StageContext, tasks: Sequence[SourceTask]) -> dict[str, int]:
    """Rows that queries over one stream may make in each task that reads it."""
    reads = Counter(task.stream for task in tasks)
    mine = {uid: (context.state.running[uid].query.streams, rows) for uid, rows in samples(context.state).items()}
    return {uid: -(-rows // max(1, reads[min(streams)])) for uid, (streams, rows) in mine.items()}


def progress_of(streams: Iterable[str], reports: Sequence[SourceReport]) -> tuple[StreamProgress, ...]:
    """What the reports of a source stage say of each stream."""
    progress = []
    for stream in streams:
        mine = [r for r in reports if r.stream == stream]
        progress.append(
            StreamProgress(
                stream=stream,
                tuples=sum(r.tuples for r in mine),
                late=sum(r.late for r in mine),
                dead=sum(r.dead for r in mine),
                max_time=max((r.max_time for r in mine if r.max_time is not None), default=None),
                jumped=sum(r.jumped for r in mine),
            )
        )
    return tuple(progress)
