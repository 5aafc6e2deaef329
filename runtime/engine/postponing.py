"""Postponed work: how an epoch writes down what it leaves for later, and how a later one does it.

A join task leaves a place in the meetings of its buckets (runtime.operators.pace). From that, `postpone` makes a value
that needs nothing of today's plan: the query alone as it is placed now, and pins on the buckets that can matter. For a
join of two sources those are the buckets that meet; above that, items of joined buckets point into buckets below, so
everything of the query's tree is pinned.

`ResumeStage` runs the same join operator over the same buckets, from those places on, for this query alone. Several
queries that are behind take turns in every epoch, each with its portion of rows, its oldest work first; a portion that
is not used up goes on with the query's next work, up to `PIECES` of them, because each is a stage of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from optimizer.model.plan import Plan
from runtime.buckets.refs import BucketRef, JoinedRef, SourceRef
from runtime.columns.querysets import bitset
from runtime.control.budgets import UNBOUNDED, Pacing, portions, work_allowance
from runtime.control.postponed import AliveSlots, Pin, Postponed, Resumed, Work
from runtime.control.state import query_watermark
from runtime.engine.join_stage import JoinResult
from runtime.engine.open_buckets import OpenBuckets
from runtime.engine.stage_context import StageContext
from runtime.execution.compile import compile_plan
from runtime.operators.inputs import Directory
from runtime.operators.join import JoinInputs, JoinReport, JoinShared, JoinTask, run_join
from runtime.operators.pace import Allowances, Rest

PIECES = 8


class Pins:
    """The pins of an epoch: those of the state, and new ones for references that have none yet."""

    def __init__(self, known: Mapping[int, BucketRef]) -> None:
        self._numbers: dict[BucketRef, int] = {ref: number for number, ref in known.items()}
        self._next = max(known, default=0) + 1
        self.refs: dict[int, BucketRef] = dict(known)
        self.new: list[Pin] = []

    def of(self, ref: BucketRef) -> int:
        number = self._numbers.get(ref)
        if number is None:
            number, self._next = self._next, self._next + 1
            self._numbers[ref] = number
            self.refs[number] = ref
            self.new.append(Pin(number, ref))
        return number


def postpone(
    context: StageContext, buckets: OpenBuckets, epoch: int, results: Iterable[JoinResult], pins: Pins, first: int
) -> list[Postponed]:
    """What the tasks of an epoch have left undone, numbered from `first` on."""
    out: list[Postponed] = []
    for result in results:
        for uid, rests in sorted(_rests(result.reports).items()):
            placement = context.plan.by_uid[uid]
            inputs = result.inputs[placement.root.name]
            refs = _needed(context, buckets, uid, inputs)
            versions = {(v.group, v.version) for r in refs if isinstance(r, SourceRef) for v in r.views}
            versions |= {(r.group, r.version) for r in refs if isinstance(r, JoinedRef)}
            out.append(
                Postponed(
                    number=first + len(out),
                    uid=uid,
                    epoch=epoch,
                    complete_until=query_watermark(context.state.streams, context.state.running[uid]),
                    plan=Plan(context.plan.version, (placement,)),
                    left=inputs.left,
                    right=inputs.right,
                    pins=tuple(pins.of(ref) for ref in refs),
                    alive=tuple(_alive(context, uid, *at) for at in sorted(versions) if at[0] == placement.group),
                    rests=tuple(rests),
                )
            )
    return out


def _rests(reports: Iterable[JoinReport]) -> dict[str, list[Rest]]:
    out: dict[str, list[Rest]] = {}
    for report in reports:
        for uid, rest in report.rests.items():
            out.setdefault(uid, []).append(rest)
    return out


def _alive(context: StageContext, uid: str, group: int, version: int) -> AliveSlots:
    slot = context.plan.by_uid[uid].slot
    one = bitset([slot], slot // 64 + 1)
    alive = context.alive(group, version)
    return AliveSlots(group, version, tuple(int(a) & int(b) for a, b in zip(alive, one, strict=False)))


def _needed(context: StageContext, buckets: OpenBuckets, uid: str, inputs: JoinInputs) -> list[BucketRef]:
    root = context.plan.by_uid[uid].root
    if len(root.joins) == 1:
        return [buckets.sources[i.bucket] for i in dict.fromkeys((*inputs.left, *inputs.right))]
    nodes = {node.name for node in root.joins}
    group = context.plan.by_uid[uid].group
    sources = (r for r in buckets.sources.values() if any(r.view(leaf, group) is not None for leaf in root.leaves))
    return [*sources, *(r for r in buckets.joined.values() if r.node in nodes)]


@dataclass(frozen=True)
class ResumeStage:
    """`waiting`: everything postponed, also by this epoch; `refs`: what is pinned, by number; `held`: queries that have
    had their part of this epoch already."""

    context: StageContext
    epoch: int
    waiting: Work
    refs: Mapping[int, BucketRef]
    held: frozenset[str]
    pacing: Pacing

    def run(self) -> tuple[list[JoinReport], list[Resumed]]:
        """What tasks reported, and what is left of the work they did."""
        uids = list(dict.fromkeys(p.uid for p in self.waiting.values() if p.uid not in self.held))
        reports: list[JoinReport] = []
        resumed: list[Resumed] = []
        for uid, portion in portions(self.context.state, uids, self.pacing).items():
            left, work_left = portion, work_allowance(self.context.state.queries[uid])
            for work in [p for p in self.waiting.values() if p.uid == uid][:PIECES]:
                mine = self._resume(work, left, work_left)
                reports += mine
                rests = tuple(rest for report in mine for rest in report.rests.values())
                resumed.append(Resumed(work.number, rests))
                done = sum(report.work.get(uid, 0) for report in mine)  # also pairs that led to no row
                left -= done
                if work_left is not None:
                    work_left -= done
                if rests or left <= 0 or (work_left is not None and work_left <= 0):
                    break
        return reports, resumed

    def _resume(self, work: Postponed, portion: int, most_work: int | None) -> list[JoinReport]:
        state, exchange = self.context.state, self.context.exchange
        physical = compile_plan(work.plan, {work.uid: state.running[work.uid]}, self.context.schemas)
        refs = [self.refs[number] for number in work.pins]
        directory = Directory(
            exchange.for_tasks(),
            {r.id: r for r in refs if isinstance(r, SourceRef)},
            {r.id: r for r in refs if isinstance(r, JoinedRef)},
            {(a.group, a.version): a.words for a in work.alive},
        )
        name = work.root.name
        shared = JoinShared(
            directory,
            physical.version,
            self.epoch,
            (name,),
            physical.shipped_joins,
            {name: JoinInputs(work.left, work.right)},
            True,
            exchange.segments(),
            Allowances(
                {} if portion >= UNBOUNDED else {work.uid: max(1, portion // len(work.rests))},
                {} if most_work is None else {work.uid: max(1, most_work // len(work.rests))},
                measured=True,
            ),
        )
        tasks = [
            JoinTask(
                number,
                rest.way,
                rest.ways,
                rest.first_hash,
                rest.end_hash,
                f"e{self.epoch:010d}-postponed-{work.number}-{number}.segment",
                (),
                rest.place,
            )
            for number, rest in enumerate(work.rests)
        ]
        reports = exchange.run(f"epoch {self.epoch}: postponed work of epoch {work.epoch}", run_join, shared, tasks)
        return [replace(r, partials=tuple(replace(ref, resumed=work.uid) for ref in r.partials)) for r in reports]


def without(work: Iterable[Postponed], resumed: Iterable[Resumed]) -> list[Postponed]:
    """New work of an epoch as its record says it: what the epoch has already done of it is gone."""
    left = {r.number: r.rests for r in resumed}
    updated = (replace(p, rests=left.get(p.number, p.rests)) for p in work)
    return [p for p in updated if p.rests]
