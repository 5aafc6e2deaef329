"""A join stage: all joins of one level of the plan, one task per partition and way.

In an epoch, every bucket that is new meets every other one, and queries that end here are delivered by the same task
(the sink operator needs no exchange, so it needs no stage of its own). For a rebuild, all buckets count as new, only
the wanted outputs are made, and nothing is delivered. A repair runs the joins of an earlier epoch once more to fold
their rows (runtime.engine.refold).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from runtime.buckets.refs import OutputKey
from runtime.columns.querysets import bitset
from runtime.engine.open_buckets import OpenBuckets
from runtime.engine.stage_context import StageContext
from runtime.execution.physical import JoinSpec, SideSpec
from runtime.operators.inputs import Directory
from runtime.operators.join import InputBucket, JoinInputs, JoinReport, JoinShared, JoinTask, OutputBucket, run_join
from runtime.operators.pace import UNLIMITED, Allowances

Output = tuple[str, OutputKey]


class LevelResult(NamedTuple):
    """What the tasks of a level reported, and which buckets met at each of its joins."""

    reports: list[JoinReport]
    inputs: Mapping[str, JoinInputs]


@dataclass(frozen=True)
class JoinStage:
    """`rebuild`: only these outputs, from everything that is open; None: everything, from what is new. `allowances`:
    of all its tasks together. `again`: the epoch has been before; its files get names that end like this, and dead
    windows are left out."""

    context: StageContext
    buckets: OpenBuckets
    epoch: int
    level: tuple[JoinSpec, ...]
    rebuild: frozenset[Output] | None = None
    allowances: Allowances = UNLIMITED
    again: str = ""

    def run(self, what: str) -> LevelResult:
        """What was made is among the open buckets afterwards."""
        inputs: dict[str, JoinInputs] = {}
        outputs: list[Output] = []
        for join in self.level:
            wanted = [(join.name, o.key) for o in join.outputs]
            if self.rebuild is not None:
                wanted = [output for output in wanted if output in self.rebuild]
                if not wanted:
                    continue
            both = JoinInputs(tuple(self._inputs(join, join.left)), tuple(self._inputs(join, join.right)))
            if both.left and both.right and (any(n for _, n in both.left) or any(n for _, n in both.right)):
                inputs[join.name] = both
                outputs += wanted
        if not inputs:
            return LevelResult([], {})
        tasks = list(self._tasks(outputs))
        physical, exchange = self.context.physical, self.context.exchange
        shared = JoinShared(
            self._directory(),
            physical.version,
            self.epoch,
            tuple(j.name for j in self.level if j.name in inputs),
            physical.shipped_joins,
            inputs,
            self.rebuild is None,
            exchange.segments(),
            self.allowances.per_task(len(tasks)),
            self.context.floors() if self.rebuild is not None or self.again else (),
        )
        reports = exchange.run(f"epoch {self.epoch}: {what}", run_join, shared, tasks)
        for report in reports:
            self.buckets.add_joined(report.joined)
        return LevelResult(reports, inputs)

    def _tasks(self, outputs: list[Output]) -> Iterator[JoinTask]:
        partitioning, depth = self.context.plan.partitioning, self.level[0].depth
        for p in range(partitioning.count):
            ways = partitioning.ways(p)
            for way in range(ways):
                yield JoinTask(
                    p,
                    way,
                    ways,
                    partitioning.bounds[p],
                    partitioning.bounds[p + 1],
                    f"e{self.epoch:010d}-{depth}-{p}-{way}{self.again}.segment",
                    tuple(OutputBucket(node, key, self.buckets.joined_id()) for node, key in outputs),
                )

    def _inputs(self, join: JoinSpec, side: SideSpec) -> Iterable[InputBucket]:
        """Open buckets of one side that some query of this join can still find something in."""
        all_new, new = self.rebuild is not None, self.buckets.new
        if side.child is not None:
            for ref in self.buckets.joined.values():
                if ref.node == side.child and ref.key == side.key:
                    yield InputBucket(ref.id, all_new or ref.id in new)
            return
        users, leaf = bitset(join.users, join.words), side.leaves[0]
        for source in self.buckets.sources.values():
            if source.stream != leaf.stream:
                continue
            view = source.view(leaf, side.group)
            if view is None or side.index_key not in view.keys:
                continue
            alive = self.context.alive(side.group, view.version)
            if any(int(a) & int(b) for a, b in zip(alive, users, strict=False)):
                yield InputBucket(source.id, all_new or source.id in new)

    def _directory(self) -> Directory:
        sources, joined = self.buckets.sources, self.buckets.joined
        versions = {(v.group, v.version) for ref in sources.values() for v in ref.views}
        versions |= {(ref.group, ref.version) for ref in joined.values()}
        alive = {at: self.context.alive(*at) for at in versions}
        exchange = self.context.exchange
        known = exchange.sources(sources), exchange.joined(joined)
        return Directory(exchange.for_tasks(), *known, alive)
