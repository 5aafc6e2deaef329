"""One epoch: transition, source stage, join stages; from the planned record to the committed one.

    planned ──► views and joined state the new plan lacks (only after a plan change)
            ──► source stage: one task per read
            ──► join stage per level: one task per partition and way; queries that end here are delivered by the same
                task (the sink operator needs no exchange, so it needs no stage of its own)
            ──► committed

Bucket ids are handed out in a fixed order, so running the same planned epoch again (after a crash) writes the same
files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from optimizer.model.plan import changelog_set
from runtime.buckets.refs import JoinedRef, OutputKey, SourceRef, ViewRef
from runtime.buckets.store import BucketStore
from runtime.columns.querysets import bitset
from runtime.connectors.base import DeadLetter, Source
from runtime.control import counts
from runtime.control.coordinator import advanced
from runtime.control.events import EpochCommitted, EpochPlanned, StreamProgress
from runtime.control.state import State
from runtime.crashpoints import reach
from runtime.engine.source_stage import SourceStage
from runtime.execution.executor import Executor
from runtime.execution.physical import JoinSpec, Physical, SideSpec
from runtime.execution.transition import Transition, plan_transition
from runtime.operators.floors import Floor
from runtime.operators.inputs import Directory
from runtime.operators.join import InputBucket, JoinInputs, JoinReport, JoinShared, JoinTask, OutputBucket, run_join
from runtime.operators.rebuild import RebuildShared, run_rebuild
from runtime.operators.source import SourceReport
from runtime.results import count_rows
from runtime.results.segment import Delivered, SegmentWriter


@dataclass
class EpochRun:
    """The working state of one running epoch. Reads `state`, never changes it; the result is an event."""

    state: State
    planned: EpochPlanned
    before: Physical
    physical: Physical
    store: BucketStore
    results: Path
    executor: Executor
    sources: Mapping[str, Source]
    instance: str
    sharing: str = "cost"
    ahead: list[SourceReport] | None = None
    """The source stage's reports, if it ran ahead of the epoch."""
    after_source: Callable[[EpochRun], None] | None = None
    reports: list[SourceReport] = field(default_factory=list)
    joins: list[JoinReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        s = self.state
        self.next_bucket, self.next_source = s.next_bucket, s.next_source
        self.open: dict[int, SourceRef] = dict(s.sources)
        self.joined: dict[int, JoinedRef] = dict(s.joined)
        self.new: set[int] = set()
        self.seconds: dict[str, float] = {}
        self._alive: dict[tuple[int, int], tuple[int, ...]] = {}

    def run(self) -> EpochCommitted:
        transition = plan_transition(self.state, self.before, self.physical, separate=self.sharing == "off")
        began = time.perf_counter()
        views = self._transition(transition)
        if transition.views or transition.outputs:
            self.seconds["transition"] = time.perf_counter() - began
            reach("epoch.transition")
        self._source_stage()
        reach("epoch.source")
        delivered: list[Delivered] = []
        for number, level in enumerate(self.physical.levels):
            for report in self._join_stage(f"join {number + 1}", level, None, emit=True):
                delivered += [report.delivered] if report.delivered else []
            reach("epoch.join")
        progress, letters = self.progress()
        deltas = counts.summed(r.counts for r in self.joins)
        closed = self._close_windows(progress, deltas)
        delivered += [closed] if closed else []
        reach("epoch.counted")
        known = self.state.joined.keys()
        return EpochCommitted(
            self.planned.epoch,
            self.next_bucket,
            self.next_source,
            progress,
            letters,
            tuple(r.bucket for r in self.reports if r.bucket is not None),
            tuple(r for r in self.joined.values() if r.id not in known),
            views,
            transition.stale,
            tuple(d.segment for d in delivered),
            _summed(delivered),
            tuple((stage, round(seconds, 6)) for stage, seconds in self.seconds.items()),
            deltas,
        )

    # -- before the data ------------------------------------------------------------------------------------------

    def _transition(self, transition: Transition) -> tuple[tuple[int, tuple[ViewRef, ...]], ...]:
        for bucket in transition.stale:
            del self.joined[bucket]
        changed: dict[int, dict[tuple[object, int], ViewRef]] = {}
        if transition.views:
            files = {f for task in transition.views for f in task.files}
            shared = RebuildShared(self.store.for_tasks(files), self.physical.version)
            for bucket, view in self.executor.run("rebuild views", run_rebuild, shared, transition.views):
                views = changed.setdefault(bucket, {(v.leaf, v.group): v for v in self.open[bucket].views})
                views[(view.leaf, view.group)] = view
            reach("epoch.views")
        for bucket, views in changed.items():
            ref = self.open[bucket]
            self.open[bucket] = replace(ref, views=tuple(views.values()))
        for level in self.physical.levels:
            if any((j.name, o.key) in transition.outputs for j in level for o in j.outputs):
                self._join_stage("rebuild joins", level, transition.outputs, emit=False)
        self.new.clear()  # what was rebuilt is old by now
        return tuple((bucket, tuple(views.values())) for bucket, views in sorted(changed.items()))

    # -- source stage ---------------------------------------------------------------------------------------------

    def _source_stage(self) -> None:
        began = time.perf_counter()
        if self.ahead is None:
            self.reports = self.source_stage().run(self.executor, self.sources)
        else:
            self.reports = self.ahead
        for report in self.reports:
            self.next_source += 1
            if report.bucket is not None:
                self.open[report.bucket.id] = report.bucket
                self.new.add(report.bucket.id)
        if self.reports:
            self.seconds["source"] = time.perf_counter() - began
        if self.after_source is not None:
            self.after_source(self)

    def source_stage(self) -> SourceStage:
        return SourceStage(
            self.planned.epoch,
            self.state.streams,
            dict(self.planned.ends),
            self.state.next_source,
            self.physical,
            self.store,
            f"{self.instance}/{self.physical.version}",
            self.source_floors(),
            self.sharing == "off",
            {g: tuple(self.state.plan.slots(g).values()) for g in self.state.plan.groups}
            if self.sharing == "off"
            else {},
        )

    def rebuild_joined(self) -> tuple[JoinedRef, ...]:
        """All joined buckets anew from the source buckets, without delivering anything (runtime.engine.repair)."""
        self._transition(Transition((), frozenset(self.physical.uses), tuple(self.joined)))
        return tuple(self.joined.values())

    def source_floors(self) -> tuple[Floor, ...]:
        """Floors that a source must heed: those of queries one of whose streams can come back from idling."""
        schemas = {name: st.schema for name, st in self.state.streams.items()}
        can_idle = {name for name, schema in schemas.items() if schema.idle_timeout_ms is not None}
        if not can_idle:
            return ()
        return self._all_floors(lambda uid: bool(self.state.queries[uid].query.query.streams & can_idle))

    def _all_floors(self, which: Callable[[str], bool] = lambda uid: True) -> tuple[Floor, ...]:
        placed = self.state.plan.by_uid
        return tuple(
            Floor(placed[uid].group, placed[uid].slot, floor)
            for uid, floor in self.state.floors.items()
            if uid in placed and which(uid)
        )

    # -- join stages ----------------------------------------------------------------------------------------------

    def _join_stage(
        self,
        name: str,
        level: tuple[JoinSpec, ...],
        rebuild: frozenset[tuple[str, OutputKey]] | None,
        *,
        emit: bool,
    ) -> list[JoinReport]:
        """`rebuild`: only these outputs, from everything that is open; None: everything, from what is new."""
        inputs: dict[str, JoinInputs] = {}
        outputs: list[tuple[str, OutputKey]] = []
        for join in level:
            wanted = [(join.name, o.key) for o in join.outputs if rebuild is None or (join.name, o.key) in rebuild]
            if rebuild is not None and not wanted:
                continue
            both = JoinInputs(
                tuple(self._inputs(join, join.left, rebuild is not None)),
                tuple(self._inputs(join, join.right, rebuild is not None)),
            )
            if both.left and both.right and any(b.new for b in (*both.left, *both.right)):
                inputs[join.name] = both
                outputs += wanted
        if not inputs:
            return []
        began = time.perf_counter()
        shared = JoinShared(
            self._directory(),
            self.physical.version,
            self.planned.epoch,
            tuple(j.name for j in level if j.name in inputs),
            self.physical.shipped_joins,
            inputs,
            emit,
            None if self.store.by_value else str(self.results),
            () if rebuild is None else self._all_floors(),
        )
        depth = level[0].depth
        reports = self.executor.run(
            f"epoch {self.planned.epoch}: {name}", run_join, shared, list(self._tasks(depth, outputs))
        )
        for report in reports:
            for ref in report.joined:
                self.joined[ref.id] = ref
                self.new.add(ref.id)
        if emit:  # the time of a rebuild is the transition's
            wall = time.perf_counter() - began
            sink = sum(r.sink_seconds for r in reports)
            share = sink / max(sink + sum(r.join_seconds for r in reports), 1e-9)
            self.seconds["join"] = self.seconds.get("join", 0.0) + wall * (1 - share)
            self.seconds["sink"] = self.seconds.get("sink", 0.0) + wall * share
            self.joins += reports
        return reports

    def _tasks(self, depth: int, outputs: list[tuple[str, OutputKey]]) -> Iterable[JoinTask]:
        partitioning = self.state.plan.partitioning
        for p in range(partitioning.count):
            ways = partitioning.ways(p)
            for way in range(ways):
                yield JoinTask(
                    p,
                    way,
                    ways,
                    partitioning.bounds[p],
                    partitioning.bounds[p + 1],
                    f"e{self.planned.epoch:010d}-{depth}-{p}-{way}.segment",
                    tuple(OutputBucket(node, key, self._bucket()) for node, key in outputs),
                )

    def _inputs(self, join: JoinSpec, side: SideSpec, all_new: bool) -> Iterable[InputBucket]:
        """Open buckets of one side that some query of this join can still find something in."""
        users = bitset(join.users, join.words)
        if side.child is not None:
            for ref in self.joined.values():
                if ref.node == side.child and ref.key == side.key:
                    yield InputBucket(ref.id, all_new or ref.id in self.new)
            return
        leaf = side.leaves[0]
        for source in self.open.values():
            if source.stream != leaf.stream:
                continue
            view = source.view(leaf, side.group)
            if view is None or side.index_key not in view.keys:
                continue
            alive = self._alive_set(side.group, view.version)
            if any(int(a) & int(b) for a, b in zip(alive, users, strict=False)):
                yield InputBucket(source.id, all_new or source.id in self.new)

    def _directory(self) -> Directory:
        files: set[str] = set()
        for ref in self.open.values():
            files.add(ref.file)
            for view in ref.views:
                files.add(view.file)
                self._alive_set(view.group, view.version)
        for joined in self.joined.values():
            files.add(joined.file)
            self._alive_set(joined.group, joined.version)
        return Directory(self.store.for_tasks(files), dict(self.open), dict(self.joined), dict(self._alive))

    def _alive_set(self, group: int, version: int) -> tuple[int, ...]:
        found = self._alive.get((group, version))
        if found is None:
            plan = self.state.plan
            now = plan.slots(group)
            then = self.state.slots[version].get(group, {})
            words = bitset(changelog_set(then, now), plan.words(group))
            found = self._alive[(group, version)] = tuple(int(w) for w in words)
        return found

    def _bucket(self) -> int:
        self.next_bucket += 1
        return 2 * self.next_bucket - 1

    # -- after the data -------------------------------------------------------------------------------------------

    def _close_windows(self, progress: Iterable[StreamProgress], deltas: counts.Deltas) -> Delivered | None:
        """Rows of COUNT(*) queries, for the windows that close with this epoch."""
        streams = {p.stream: advanced(self.state.streams[p.stream], self.planned, p) for p in progress}
        _, rows = counts.settle(self.state, streams, deltas)
        name = f"e{self.planned.epoch:010d}-counts.segment"
        return count_rows.write(rows, self.state.running(), SegmentWriter(str(self.results), name))

    def progress(self) -> tuple[tuple[StreamProgress, ...], tuple[tuple[str, DeadLetter], ...]]:
        progress = []
        for stream in self.state.streams:
            mine = [r for r in self.reports if r.stream == stream]
            newest = max((r.max_time for r in mine if r.max_time is not None), default=None)
            progress.append(
                StreamProgress(
                    stream,
                    sum(r.tuples for r in mine),
                    sum(r.late for r in mine),
                    sum(r.dead for r in mine),
                    newest,
                )
            )
        letters = tuple((r.stream, letter) for r in self.reports for letter in r.letters)
        return tuple(progress), letters


def _summed(delivered: Iterable[Delivered]) -> tuple[tuple[str, int, int], ...]:
    """Per query: its rows, and in how many batches they come."""
    found: dict[str, tuple[int, int]] = {}
    for part in delivered:
        for uid, (rows, batches) in part.queries.items():
            known = found.get(uid, (0, 0))
            found[uid] = known[0] + rows, known[1] + batches
    return tuple((uid, rows, batches) for uid, (rows, batches) in found.items())
