"""The cost-based optimizer of Section 4, as the runtime sees it: query batches and statistics in, plans out.

    create_delete   now, for every query batch: eager sharing by shape, no cost (phase 1 of Figure 5)
    observe         after every epoch: smoothed statistics, and what observed joins teach
    optimize        periodically or on demand: groups and orders by cost (phase 2), as a Proposal
    rescale         periodically: the partition function (phases 3 and 4)

`optimize` is incremental by default: it places the queries created since the last applied proposal and reorders their
neighbours. It becomes a full one when created and deleted queries exceed half of those running (the paper's
threshold), when the plan has drifted so far from what a full run achieved last time that another one promises more
than `full_gain`, or at every `full_every`-th call, because groups follow the data. A proposal is *applied* when
hysteresis says that it pays, or when forced; then its plan is one version up, and the caller runs it. A proposal that
is not applied has no effect, and its queries are looked at again.

The object remembers what it saw of the queries (profiles, shapes), what changed since the last full run, and the
state of hysteresis. All of that may be lost: a new optimizer gives the same plans, it is only less reluctant to
change them. There is no clock and no randomness in it: the same calls give the same plans.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Literal

from optimizer.cost.cardinality import Cardinalities
from optimizer.cost.model import CostModel, Member, Shared, Weights
from optimizer.cost.shapes import Profile, Shape, Shapes
from optimizer.model.plan import JoinNode, Plan, RunningQuery, join_nodes
from optimizer.model.query import JoinQuery
from optimizer.policy import scaling
from optimizer.policy.hysteresis import Hysteresis, HysteresisConfig, Verdict
from optimizer.policy.scaling import Decision, Load, Quiet, ScalingConfig
from optimizer.search import eager, estimate
from optimizer.search.assemble import clusters_of, to_plan
from optimizer.search.clusters import Cluster
from optimizer.search.full import optimize_fully
from optimizer.search.incremental import optimize_incrementally
from optimizer.search.refine import Alone
from optimizer.statistics.model import EpochStatistics, StatisticsModel
from optimizer.statistics.samples import DEFAULT_SELECTIVITY, guess

Mode = Literal["full", "incremental"]
MAX_JOINS = 200_000


@dataclass(frozen=True)
class OptimizerConfig:
    """`full_after`: created and deleted queries, as a share of those running, that make the next run a full one.
    `full_gain`: estimated relative gain that does. `full_every`: calls of `optimize` after which one does; 0: never."""

    weights: Weights = field(default_factory=Weights)
    hysteresis: HysteresisConfig = field(default_factory=HysteresisConfig)
    scaling: ScalingConfig = field(default_factory=ScalingConfig)
    full_after: float = 0.5
    full_gain: float = 0.15
    full_every: int = 6


@dataclass(frozen=True)
class Proposal:
    """`plan` is the plan to run from now on: the new one if `applied`, else the old one. `candidate` is the new one in
    any case. Costs and `gain` (their difference) are per second. `would_apply`: in a dry run, whether hysteresis
    would have applied the candidate."""

    plan: Plan
    cost_before: float
    cost_after: float
    gain: float
    reasons: tuple[str, ...]
    applied: bool
    candidate: Plan
    mode: Mode
    would_apply: bool = False


@dataclass
class _Memory:
    """What may be forgotten at any time."""

    created: set[str] = field(default_factory=set)
    deleted: dict[str, Shape] = field(default_factory=dict)
    changes: int = 0
    calls: int = 0
    achieved: float | None = None


class CostBasedOptimizer:
    """Mutable; owned by one thread."""

    def __init__(self, config: OptimizerConfig | None = None) -> None:
        self.config = config or OptimizerConfig()
        self._shapes = Shapes()
        self._profiles: dict[str, tuple[JoinQuery, Profile]] = {}
        self._memory = _Memory()
        self._hysteresis = Hysteresis(self.config.hysteresis)
        self._quiet = Quiet()
        self._model: tuple[StatisticsModel, int, CostModel] | None = None

    # -- phase 1 -------------------------------------------------------------------------------------------------------

    def create_delete(
        self,
        plan: Plan,
        queries: Mapping[str, RunningQuery],
        created: Sequence[RunningQuery],
        deleted: Collection[str],
        stats: StatisticsModel | None = None,
    ) -> Plan:
        """The plan after one query batch. `queries` are those running before or after it; `deleted` holds uids."""
        m = self._memory
        for uid in sorted(deleted):
            rq = queries.get(uid)
            known = self._profiles.pop(uid, None)
            if uid in m.created:
                m.created.discard(uid)
            elif known is not None:
                m.deleted[uid] = known[1].shape
            elif rq is not None:
                m.deleted[uid] = self._shapes.profile(rq).shape
        m.created.update(rq.uid for rq in created)
        m.changes += len(created) + len(deleted)
        return eager.create_delete(plan, created, deleted)

    # -- statistics ----------------------------------------------------------------------------------------------------

    def observe(
        self,
        stats: StatisticsModel,
        report: EpochStatistics,
        plan: Plan,
        queries: Mapping[str, RunningQuery],
    ) -> None:
        """Takes in one epoch. `plan` is the one the epoch ran with."""
        stats.observe(report)
        if report.outputs:
            estimate.learn(self.model(stats), plan, self._singles(plan, queries, stats), report)
        self._model = None

    def model(self, stats: StatisticsModel) -> CostModel:
        """The cost model on these statistics, kept until they change."""
        if len(self._shapes.joins) > MAX_JOINS:
            self._shapes, self._profiles, self._model = Shapes(), {}, None
        known = self._model
        if known is None or known[0] is not stats or known[1] != stats.version:
            known = (stats, stats.version, CostModel(Cardinalities(self._shapes, stats), self.config.weights))
            self._model = known
        return known[2]

    def estimate(self, plan: Plan, queries: Mapping[str, RunningQuery], stats: StatisticsModel) -> estimate.Estimate:
        """Cardinalities and costs of a plan, for explain. Needs nothing the optimizer remembers: any thread may ask."""
        shapes = Shapes()
        model = CostModel(Cardinalities(shapes, stats), self.config.weights)
        profiles = [shapes.profile(queries[p.uid]) for p in plan.placements]
        return estimate.estimate(model, plan, _members(shapes, profiles, stats))

    # -- phase 2 -------------------------------------------------------------------------------------------------------

    def optimize(
        self,
        plan: Plan,
        queries: Mapping[str, RunningQuery],
        stats: StatisticsModel,
        mode: Mode = "incremental",
        force: bool = False,
        dry_run: bool = False,
    ) -> Proposal:
        """Groups and orders by cost. `force`: apply whatever is better. `dry_run`: decide, but remember nothing."""
        if not plan.placements:
            return Proposal(plan, 0.0, 0.0, 0.0, ("no query is running",), False, plan, mode)
        model = self.model(stats)
        singles = self._singles(plan, queries, stats)
        alone = Alone(model, singles)
        before = clusters_of(model, plan, singles)
        cost = sum(c.cost for c in before.values())
        mode, reasons = self._mode(mode, len(singles), cost, alone, singles)
        if mode == "full":
            after = optimize_fully(model, singles, alone, list(before.values()))
        else:
            m = self._memory
            deleted = [m.deleted[u] for u in sorted(m.deleted)]
            after = optimize_incrementally(model, singles, before, m.created, deleted, alone)
        price = sum(c.cost for c in after)
        if price > cost:  # the running plan was better; a search is no reason to get worse
            after, price = list(before.values()), cost
        known = {id(c) for c in before.values()}
        same = all(id(c) in known for c in after)
        candidate = plan if same else to_plan(plan, after, self._shapes)
        if candidate is plan:
            best = "the running plan is the best one found"
            verdict = Verdict(False, best) if dry_run else self._hysteresis.content(best)
        elif force:
            verdict = Verdict(True, "forced")
        else:
            # A dry run asks a copy, because every judgement counts towards the next one.
            judge = copy(self._hysteresis) if dry_run else self._hysteresis
            rebuild = _rebuild(model, plan, after, candidate)
            verdict = judge.judge(cost, price, rebuild, stats.stale_s * stats.confidence)
        would_apply = dry_run and verdict.applied
        if dry_run:
            verdict = replace(verdict, applied=False)
        if not dry_run:
            self._remember(mode, verdict, candidate is plan, price, alone, singles, force)
        chosen = candidate if verdict.applied else plan
        reasons = (*reasons, *_summary(plan, candidate, cost, price), verdict.reason)
        return Proposal(chosen, cost, price, cost - price, reasons, verdict.applied, candidate, mode, would_apply)

    def _mode(
        self, mode: Mode, running: int, cost: float, alone: Alone, singles: Mapping[str, Member]
    ) -> tuple[Mode, tuple[str, ...]]:
        m, c = self._memory, self.config
        if mode == "full":
            return mode, ("full optimization was asked for",)
        if m.changes > c.full_after * running:
            return "full", (f"{m.changes} queries came or went since the last full run, {running} are running",)
        if c.full_every and m.calls + 1 >= c.full_every:
            return "full", (f"{m.calls} runs since the last full one",)
        if m.achieved is not None and not m.created:
            floor = sum(alone.at_least(u) for u in singles)
            promised = cost - m.achieved * floor
            if promised > c.full_gain * cost:
                return "full", (f"a full run promises to save {promised / cost:.0%}",)
        return "incremental", (f"{len(m.created)} created and {len(m.deleted)} deleted queries looked at",)

    def _remember(
        self,
        mode: Mode,
        verdict: Verdict,
        unchanged: bool,
        price: float,
        alone: Alone,
        singles: Mapping[str, Member],
        force: bool,
    ) -> None:
        m = self._memory
        m.calls += 1
        if mode == "full":
            m.calls = 0
            floor = sum(alone.at_least(u) for u in singles)
            m.achieved = price / floor if floor else None
        if verdict.applied or unchanged:
            m.created.clear()
            m.deleted.clear()
            if mode == "full":
                m.changes = 0
            if force and verdict.applied:
                self._hysteresis.applied()

    # -- phases 3 and 4 ------------------------------------------------------------------------------------------------

    def rescale(self, plan: Plan, load: Load) -> tuple[Plan, Decision]:
        """The plan with the partition function that the load asks for; the same plan if it asks for nothing."""
        decision = scaling.decide(self.config.scaling, plan.partitioning, load, self._quiet)
        self._quiet = decision.quiet
        if decision.partitioning == plan.partitioning:
            return plan, decision
        return replace(plan, version=plan.version + 1, partitioning=decision.partitioning), decision

    # -- queries as the search sees them -------------------------------------------------------------------------------

    def _singles(self, plan: Plan, queries: Mapping[str, RunningQuery], stats: StatisticsModel) -> dict[str, Member]:
        profiles = []
        for p in plan.placements:
            query = queries[p.uid].query
            known = self._profiles.get(p.uid)
            if known is None or known[0] is not query:
                known = self._profiles[p.uid] = (query, self._shapes.profile(queries[p.uid]))
            profiles.append(known[1])
        return _members(self._shapes, profiles, stats)


def _members(shapes: Shapes, profiles: Sequence[Profile], stats: StatisticsModel) -> dict[str, Member]:
    """Each query as a member of its own, with its sampled columns.

    A query that was not sampled yet has the column of one with the same selection, or else a guessed one.
    """
    samples: dict[int, tuple[Mapping[str, int], int]] = {}
    equal: dict[tuple[int, str], int] = {}
    unknown: set[str] = set()
    for profile in profiles:
        for leaf, selection in zip(profile.shape.leaves, profile.selections, strict=True):
            if leaf not in samples:
                samples[leaf] = stats.columns(shapes.leaf_of(leaf))
            known = samples[leaf][0].get(profile.uid)
            if known is None:
                unknown.add(profile.uid)
            else:
                equal[leaf, selection] = known
    members = {}
    for profile in profiles:
        uid, leaves = profile.uid, profile.shape.leaves
        if uid not in unknown:
            bits = tuple([samples[leaf][0][uid] for leaf in leaves])
        else:
            bits = tuple(
                _column(uid, selection, samples[leaf], equal.get((leaf, selection)))
                for leaf, selection in zip(leaves, profile.selections, strict=True)
            )
        members[uid] = Member(profile.shape, bits, profile.seconds, (uid,))
    return members


def _column(uid: str, selection: str, sample: tuple[Mapping[str, int], int], equal: int | None) -> int:
    known = sample[0].get(uid, equal)
    return guess(selection, DEFAULT_SELECTIVITY, sample[1]) if known is None else known


def _rebuild(model: CostModel, plan: Plan, after: Iterable[Cluster], candidate: Plan) -> float:
    """The work of filling new joins for the windows still open: their cost per second times the longest window."""
    old: set[JoinNode] = {n for p in plan.placements for n in join_nodes(p.root)}
    old_sources = {(leaf, p.group) for p in plan.placements for leaf in p.root.leaves}
    price = 0.0
    for c in after:
        group = candidate.by_uid[c.uids[0]].group
        roots = {candidate.by_uid[u].root for u in c.uids}
        if roots <= old:
            continue
        shared = Shared(model, c.trees)
        for number, use in shared.joins.items():
            if model.shapes.root(number, group) in old:
                continue
            join = model.shapes.joins[number]
            work = shared.intersection(number) + sum(shared.exchange(e) for e in join.exchanges)
            for index in join.indexes:
                if (model.shapes.leaf_of(model.shapes.indexes[index].leaf), group) not in old_sources:
                    work += shared.index(index)
            price += work * use.seconds
    return price


def _summary(plan: Plan, candidate: Plan, before: float, after: float) -> tuple[str, ...]:
    if candidate is plan:
        return ()
    moved = reordered = 0
    for p in candidate.placements:
        old = plan.by_uid[p.uid]
        moved += p.group != old.group
        reordered += p.group == old.group and p.root != old.root
    groups = f"{len(plan.groups)} -> {len(candidate.groups)} groups"
    saving = f"{(before - after) / before:.1%}" if before else "nothing"
    return (f"{moved} queries move, {reordered} are reordered, {groups}, saving {saving}",)
