"""A join stage: joins of a plan that need no exchange between them, one task per partition and way.

In an epoch, every bucket that is new meets every other one, and queries that end here are delivered by the same task
(the sink operator needs no exchange, so it needs no stage of its own). A join above another one on the same key is in
the same stage: its tasks go on with what they have found below, which the driver learns afterwards. For a rebuild, only
the wanted outputs are made, and nothing is delivered. A repair runs the joins of an earlier
epoch once more to fold their rows (runtime.engine.refold).
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


class JoinResult(NamedTuple):
    """What the tasks of a stage reported, and which buckets met at each of its joins."""

    reports: list[JoinReport]
    inputs: Mapping[str, JoinInputs]


@dataclass(frozen=True)
class JoinStage:
    """`rebuild`: only these outputs, and no rows; None: everything. `allowances`:
    of all its tasks together. `again`: the epoch has been before; its files get names that end like this, and dead
    windows are left out."""

    context: StageContext
    buckets: OpenBuckets
    epoch: int
    joins: tuple[JoinSpec, ...]
    rebuild: frozenset[Output] | None = None
    allowances: Allowances = UNLIMITED
    again: str = ""

    def run(self, what: str) -> JoinResult:
        """What was made is among the open buckets afterwards."""
        inputs: dict[str, JoinInputs] = {}
        outputs: list[Output] = []
        for join in self.joins:
            wanted = [(join.name, o.key) for o in join.outputs]
            if self.rebuild is not None:
                wanted = [output for output in wanted if output in self.rebuild]
                if not wanted:
                    continue
            both = JoinInputs(tuple(self._inputs(join, join.left)), tuple(self._inputs(join, join.right)))
            own = [side.goes_on and (side.child, side.key) in outputs for side in (join.left, join.right)]
            new = any(own) or any(given.new for given in (*both.left, *both.right))
            if new and (both.left or own[0]) and (both.right or own[1]):
                inputs[join.name] = both
                outputs += wanted
        if not inputs:
            return JoinResult([], {})
        tasks = list(self._tasks(outputs))
        physical, exchange = self.context.physical, self.context.exchange
        shared = JoinShared(
            self._directory(),
            physical.version,
            self.epoch,
            tuple(inputs),
            physical.shipped_joins,
            inputs,
            self.rebuild is None,
            exchange.segments(),
            self.allowances.per_task(len(tasks)),
            self.context.floors() if self.rebuild is not None or self.again else (),
        )
        reports = exchange.run(f"epoch {self.epoch}: {what}", run_join, shared, tasks)
        made: dict[Output, list[InputBucket]] = {}
        for task, report in zip(tasks, reports, strict=True):
            self.buckets.add_joined(report.joined)
            for ref in report.joined:
                made.setdefault((ref.node, ref.key), []).append(InputBucket(ref.id, True, task.way))
        specs = {join.name: join for join in self.joins}
        return JoinResult(reports, {name: both.with_made(specs[name], made) for name, both in inputs.items()})

    def _tasks(self, outputs: list[Output]) -> Iterator[JoinTask]:
        partitioning, depth = self.context.plan.partitioning, self.joins[0].depth
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
        new, aside = self.buckets.new, self.buckets.aside
        if side.child is not None:
            for ref in self.buckets.joined.values():
                if ref.node == side.child and ref.key == side.key and ref.id not in aside:
                    yield InputBucket(ref.id, ref.id in new)
            return
        users, leaf = bitset(join.users, join.words), side.leaves[0]
        for source in self.buckets.sources.values():
            if source.stream != leaf.stream or source.id in aside:
                continue
            view = source.view(leaf, side.group)
            if view is None or side.index_key not in view.keys:
                continue
            alive = self.context.alive(side.group, view.version)
            if any(int(a) & int(b) for a, b in zip(alive, users, strict=False)):
                yield InputBucket(source.id, source.id in new)

    def _directory(self) -> Directory:
        sources, joined = self.buckets.sources, self.buckets.joined
        versions = {(v.group, v.version) for ref in sources.values() for v in ref.views}
        versions |= {(ref.group, ref.version) for ref in joined.values()}
        goes_on = (join for join in self.joins if join.left.goes_on or join.right.goes_on)
        versions |= {(join.group, self.context.physical.version) for join in goes_on}  # of what tasks make
        alive = {at: self.context.alive(*at) for at in versions}
        exchange = self.context.exchange
        known = exchange.sources(sources), exchange.joined(joined)
        return Directory(exchange.for_tasks(), *known, alive)
