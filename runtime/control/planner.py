"""The optimizer beside the engine: statistics in after every epoch, plans out when asked.

Everything here may be lost in a crash: plans live in the log, and statistics come back with the next epochs. So the
planner is not part of the coordinator's state, and nothing it remembers decides what a query returns.

Asking for a plan changes nothing: what the optimizer wants to remember comes back beside the plan. The engine sets
`memory` when the plan is in the log, or when there was nothing to log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast, get_args

import numpy as np

from optimizer.beside import Situation
from optimizer.errors import InvalidRequest
from optimizer.model.pins import NO_PINS, Pins
from optimizer.model.plan import Leaf, Plan, RunningQuery
from optimizer.optimize import NOBODY, Behind, CostBasedOptimizer, Mode, OptimizerConfig, Proposal, Rescaling, Step
from optimizer.policy.memory import Memory
from optimizer.policy.scaling import Load, Machines
from optimizer.search.estimate import Estimate
from optimizer.search.forced import force_groups
from optimizer.statistics.model import EpochObservation, FoldObservation, StatisticsModel, StreamObservation
from optimizer.statistics.samples import QuerySetSample
from runtime.control.busy import OTHERS, Busy
from runtime.execution.sharing import SHARING, Sharing
from runtime.operators.join import JoinReport
from runtime.operators.source import SourceReport


class Planner:
    """Owned by the engine's thread."""

    def __init__(self, sharing: Sharing = SHARING["cost"], config: OptimizerConfig | None = None) -> None:
        self.sharing = sharing
        self.optimizer = CostBasedOptimizer(config)
        self.statistics = StatisticsModel()
        self.memory = Memory()
        self._busy = Busy()
        self._ages: tuple[Mapping[str, float], Mapping[str, float]] = ({}, {})
        self._at: float | None = None
        self._observed: Mapping[str, float] = {}

    def configure(self, config: OptimizerConfig) -> None:
        """From now on."""
        self.optimizer.config = config

    # -- plans ----------------------------------------------------------------------------------------------------

    def create_delete(
        self,
        plan: Plan,
        queries: Mapping[str, RunningQuery],
        created: Sequence[RunningQuery],
        deleted: Sequence[str],
        memory: Memory,
        behind: Behind = NOBODY,
    ) -> Step:
        """The plan after creations and deletions, without looking at cost (the paper's step 1).

        `behind`, here and below: which queries have work put off, and by how many epochs they are behind.
        """
        step = self.optimizer.create_delete(plan, created, deleted, memory, behind, queries)
        if self.sharing.optimized or not created:
            return step
        groups = {rq.uid: 0 for rq in created}
        if self.sharing.own_groups:
            free = (g for g in range(len(step.plan.placements) + len(created) + 1) if g not in plan.groups)
            groups = {rq.uid: next(free) for rq in created}
        known = {rq.uid: rq for rq in created} | dict(queries)
        moved = force_groups(step.plan, known, groups)
        return replace(step, plan=replace(moved, version=step.plan.version))

    def optimize(
        self,
        plan: Plan,
        queries: Mapping[str, RunningQuery],
        mode: str,
        memory: Memory,
        behind: Behind = NOBODY,
        pins: Pins = NO_PINS,
        *,
        force: bool,
    ) -> Proposal:
        if not self.sharing.optimized:
            reason = f"sharing is {self.sharing.name!r}: plans are never optimized"
            return Proposal(plan, 0.0, 0.0, 0.0, (reason,), False, plan, "full", memory)
        if mode not in get_args(Mode):
            raise InvalidRequest(
                f"there is no optimization mode {mode!r}", reason="INVALID_MODE", hint="use full or incremental"
            )
        return self.optimizer.optimize(plan, queries, self.statistics, memory, cast(Mode, mode), force, behind, pins)

    def situation(
        self, plan: Plan, queries: Mapping[str, RunningQuery], behind: Behind = NOBODY, pins: Pins = NO_PINS
    ) -> Situation | None:
        """What an optimizer on another thread needs; None: plans are never optimized."""
        if not self.sharing.optimized:
            return None
        return Situation(plan, queries, self.statistics.view(), self.memory, self.optimizer.config, behind, pins)

    def apart(self, plan: Plan, behind: Behind) -> frozenset[str]:
        """Queries that others are kept away from, because they are heavy."""
        return self.optimizer.apart(plan, self.memory, behind) if self.sharing.optimized else frozenset()

    def rescale(
        self,
        plan: Plan,
        queries: Mapping[str, RunningQuery],
        machines: Machines,
        allowed_s: Mapping[str, float],
        memory: Memory,
        at: float,
        behind: Behind = NOBODY,
    ) -> Rescaling:
        """The partition function that the last epochs' load asks for at second `at` (of the clock that `observe` was
        told). `allowed_s`: how old rows of queries (uids) may be that say so themselves. Queries that are `behind` wait
        for their turn and not for a core."""
        shares = self._busy.shares(plan.partitioning, at)
        others = shares.pop(OTHERS, None)
        before, last = self._ages
        late = {uid: min(age, before.get(uid, age)) for uid, age in last.items()}  # one late epoch is no reason
        waiting = {queries[p.uid].id: late[p.uid] for p in plan.placements if p.uid in late and p.uid not in behind}
        load = Load(
            {} if others is None else {p: shares.get(p, 0.0) for p in range(plan.partitioning.count)},
            machines,
            waiting,
            {queries[uid].id: allowed for uid, allowed in allowed_s.items()},
            self._busy.hottest(),
            others or 0.0,
        )
        return self.optimizer.rescale(plan, load, memory)

    def estimate(self, plan: Plan, queries: Mapping[str, RunningQuery]) -> Estimate:
        return self.optimizer.estimate(plan, queries, self.statistics)

    # -- statistics -----------------------------------------------------------------------------------------------

    def observe(
        self,
        plan: Plan,
        queries: Mapping[str, RunningQuery],
        sources: Sequence[SourceReport],
        joins: Sequence[JoinReport],
        at: float,
        seconds: float,
        latency_s: Mapping[str, float],
        wall: float,
    ) -> None:
        """One epoch that ran with `plan` and took `seconds`; `at` never goes back, `wall` is the time by which requests
        come. `latency_s`: how old the rows of queries (uids) were."""
        busy: dict[int, float] = {}
        for j in joins:
            busy[j.partition] = busy.get(j.partition, 0.0) + j.join_seconds + j.sink_seconds
        self._ages = (self._ages[1], latency_s)
        self._busy.observe(plan.partitioning, joins, sum(r.seconds for r in sources), wall, seconds)
        period = seconds if self._at is None else max(at - self._at, seconds, 1e-6)
        self._at = at
        report = _report(plan, sources, joins, busy, at, period)
        self._observed = {name: combinations / period for name, combinations in report.outputs.items()}
        self.optimizer.observe(self.statistics, report, plan, queries)

    def observed(self) -> Mapping[str, float]:
        """Combinations a second that each join found in the last epoch, by node name."""
        return self._observed


def _report(
    plan: Plan,
    sources: Sequence[SourceReport],
    joins: Sequence[JoinReport],
    busy: Mapping[int, float],
    at: float,
    period: float,
) -> EpochObservation:
    """`period`: the time over which the epoch's tuples arrived."""
    tuples: dict[str, int] = {}
    distinct: dict[tuple[Leaf, tuple[str, ...]], float] = {}
    for r in sources:
        tuples[r.stream] = tuples.get(r.stream, 0) + r.tuples
        for key, count in r.distinct.items():
            distinct[key] = max(distinct.get(key, 0.0), float(count))
    outputs: dict[str, float] = {}
    for j in joins:
        for node, count in j.matches.items():
            outputs[node] = outputs.get(node, 0.0) + count
    return EpochObservation(
        at,
        {stream: StreamObservation(count, period) for stream, count in tuples.items()},
        _samples(plan, sources),
        distinct,
        outputs,
        _folds([*sources, *joins]),
        {("join", partition): spent for partition, spent in busy.items()},
        period,
    )


def _folds(reports: Sequence[SourceReport | JoinReport]) -> dict[tuple[str, str], FoldObservation]:
    """Several tasks fold the same groups, pieces of time and query sets; the one that has most stands for all."""
    found: dict[tuple[str, str], FoldObservation] = {}
    for report in reports:
        for at, f in report.folded.items():
            k = found.get(at, FoldObservation(0, 0, 0, 0, 0, 0))
            found[at] = FoldObservation(
                k.tuples + f.tuples,
                k.entries + f.entries,
                max(k.groups, f.groups),
                max(k.pieces, f.pieces),
                max(k.query_sets, f.query_sets),
                max(k.by_query, f.by_query),
            )
    return found


def _samples(plan: Plan, sources: Sequence[SourceReport]) -> dict[Leaf, QuerySetSample]:
    """Per leaf, one bit column per query: the groups' samples are of the same tuples and stand side by side."""
    uids: dict[Leaf, list[str]] = {}
    rows: dict[Leaf, list[np.ndarray[tuple[int, int], np.dtype[np.uint8]]]] = {}
    for r in sources:
        blocks: dict[Leaf, list[np.ndarray[tuple[int, int], np.dtype[np.uint8]]]] = {}
        names: dict[Leaf, list[str]] = {}
        for (leaf, group), sets in sorted(r.samples.items(), key=lambda item: item[0]):
            members = [p for p in plan.groups.get(group, ()) if leaf in p.root.leaves]
            bits = np.unpackbits(sets.view(np.uint8), axis=1, bitorder="little")
            blocks.setdefault(leaf, []).append(bits[:, [p.slot for p in members]])
            names.setdefault(leaf, []).extend(p.uid for p in members)
        for leaf, parts in blocks.items():
            uids.setdefault(leaf, names[leaf])
            if uids[leaf] == names[leaf]:
                rows.setdefault(leaf, []).append(np.hstack(parts))
    return {leaf: QuerySetSample(tuple(uids[leaf]), np.vstack(blocks)) for leaf, blocks in rows.items()}
