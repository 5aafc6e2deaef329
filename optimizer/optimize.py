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
is not applied changes no plan, and its queries are looked at again.

What must be remembered from one call to the next is a frozen `Memory` that goes in and comes out beside the plan; the
caller keeps it once the plan is in the log, and otherwise nothing has happened. There is no clock and no randomness:
the same calls give the same plans.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from optimizer.cost.cardinality import Cardinalities
from optimizer.cost.model import CostModel, Member, Shared, Weights
from optimizer.cost.shapes import Profile, Shapes
from optimizer.model.plan import Node, Plan, RunningQuery, SourceNode, walk
from optimizer.model.query import JoinQuery
from optimizer.policy import scaling
from optimizer.policy.hysteresis import Hysteresis, HysteresisConfig, Verdict, judge
from optimizer.policy.memory import Memory
from optimizer.policy.scaling import Decision, Load, ScalingConfig
from optimizer.search import eager, estimate
from optimizer.search.assemble import clusters_of, to_plan
from optimizer.search.clusters import Cluster
from optimizer.search.full import optimize_fully
from optimizer.search.incremental import optimize_incrementally
from optimizer.search.refine import Alone
from optimizer.statistics.model import EpochObservation, StatisticsModel
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


@dataclass(frozen=True, slots=True)
class Step:
    """A plan, and what to remember once it runs."""

    plan: Plan
    memory: Memory


@dataclass(frozen=True, slots=True)
class Rescaling:
    """The plan with another partition function (or the same plan), why, and what to remember."""

    plan: Plan
    decision: Decision
    memory: Memory


@dataclass(frozen=True)
class Proposal:
    """`plan` is the plan to run from now on: the new one if `applied`, else the old one. `candidate` is the new one in
    any case. Costs and `gain` (their difference) are per second. `memory` is what to remember if the proposal is
    accepted, also when it says that the old plan stays; a dry run throws it away."""

    plan: Plan
    cost_before: float
    cost_after: float
    gain: float
    reasons: tuple[str, ...]
    applied: bool
    candidate: Plan
    mode: Mode
    memory: Memory


class CostBasedOptimizer:
    """Owned by one thread.

    What it holds itself are caches: the table of shapes, the profile of each running query (used only for the very
    query it was made of) and the cost model on the latest statistics. Each holds what would be computed again from
    the arguments, and ties between plans are broken by texts, never by the order in which the tables grew; so neither
    keeping nor losing them changes a decision.
    """

    def __init__(self, config: OptimizerConfig | None = None) -> None:
        self.config = config or OptimizerConfig()
        self._shapes = Shapes()
        self._profiles: dict[str, tuple[JoinQuery, Profile]] = {}
        self._model: tuple[StatisticsModel, int, CostModel] | None = None

    # -- phase 1 -------------------------------------------------------------------------------------------------------

    def create_delete(
        self, plan: Plan, created: Sequence[RunningQuery], deleted: Collection[str], memory: Memory
    ) -> Step:
        """The plan after one query batch; `deleted` holds uids."""
        new = eager.create_delete(plan, created, deleted)
        return Step(new, memory.after_batch(plan, [rq.uid for rq in created], deleted))

    # -- statistics ----------------------------------------------------------------------------------------------------

    def observe(
        self,
        stats: StatisticsModel,
        report: EpochObservation,
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
        memory: Memory,
        mode: Mode = "incremental",
        force: bool = False,
    ) -> Proposal:
        """Groups and orders by cost. `force`: apply whatever is better."""
        if not plan.placements:
            return Proposal(plan, 0.0, 0.0, 0.0, ("no query is running",), False, plan, mode, memory)
        model = self.model(stats)
        singles = self._singles(plan, queries, stats)
        alone = Alone(model, singles)
        before = clusters_of(model, plan, singles)
        cost = sum(c.cost for c in before.values())
        mode, reasons = self._mode(mode, cost, alone, singles, memory)
        if mode == "full":
            after = optimize_fully(model, singles, alone, list(before.values()))
        else:
            gone = {a for query in memory.deleted for a in query.attributes}
            after = optimize_incrementally(model, singles, before, memory.created, gone, alone)
        price = sum(c.cost for c in after)
        if price > cost:  # the running plan was better; a search is no reason to get worse
            after, price = list(before.values()), cost
        known = {id(c) for c in before.values()}
        same = all(id(c) in known for c in after)
        candidate = plan if same else to_plan(plan, after, self._shapes)
        verdict = self._verdict(plan, candidate, after, cost, price, stats, memory.hysteresis, force)
        if mode == "full":
            unshared = sum(alone.at_least(u) for u in singles)
            memory = replace(memory, achieved=price / unshared if unshared else None)
        memory = _remembered(memory, mode, verdict, candidate is plan)
        chosen = candidate if verdict.applied else plan
        reasons = (*reasons, *_summary(plan, candidate, cost, price), verdict.reason)
        return Proposal(chosen, cost, price, cost - price, reasons, verdict.applied, candidate, mode, memory)

    def _mode(
        self, mode: Mode, cost: float, alone: Alone, singles: Mapping[str, Member], memory: Memory
    ) -> tuple[Mode, tuple[str, ...]]:
        m, c, running = memory, self.config, len(singles)
        if mode == "full":
            return mode, ("full optimization was asked for",)
        if m.changes > c.full_after * running:
            return "full", (f"{m.changes} queries came or went since the last full run, {running} are running",)
        if c.full_every and m.calls + 1 >= c.full_every:
            return "full", (f"{m.calls} runs since the last full one",)
        if m.achieved is not None and not m.created:
            promised = cost - m.achieved * sum(alone.at_least(u) for u in singles)
            if promised > c.full_gain * cost:
                return "full", (f"a full run promises to save {promised / cost:.0%}",)
        return "incremental", (f"{len(m.created)} created and {len(m.deleted)} deleted queries looked at",)

    def _verdict(
        self,
        plan: Plan,
        candidate: Plan,
        after: Sequence[Cluster],
        cost: float,
        price: float,
        stats: StatisticsModel,
        at: Hysteresis,
        force: bool,
    ) -> Verdict:
        config = self.config.hysteresis
        if candidate is plan:
            return Verdict(False, "the running plan is the best one found", at.content(config))
        if force:
            return Verdict(True, "forced", at.applied(config))
        rebuild = _rebuild(self.model(stats), plan, after, candidate)
        horizon = stats.stale_s * stats.confidence
        return judge(config, at, before=cost, after=price, price=rebuild, horizon_s=horizon)

    # -- phases 3 and 4 ------------------------------------------------------------------------------------------------

    def rescale(self, plan: Plan, load: Load, memory: Memory) -> Rescaling:
        """The plan with the partition function that the load asks for; the same plan if it asks for nothing."""
        decision = scaling.decide(self.config.scaling, plan.partitioning, load, memory.quiet)
        memory = replace(memory, quiet=decision.quiet)
        if decision.partitioning == plan.partitioning:
            return Rescaling(plan, decision, memory)
        rescaled = replace(plan, version=plan.version + 1, partitioning=decision.partitioning)
        return Rescaling(rescaled, decision, memory)

    # -- queries as the search sees them -------------------------------------------------------------------------------

    def _singles(self, plan: Plan, queries: Mapping[str, RunningQuery], stats: StatisticsModel) -> dict[str, Member]:
        profiles = {}
        for p in plan.placements:
            query = queries[p.uid].query
            known = self._profiles.get(p.uid)
            if known is None or known[0] is not query:
                known = (query, self._shapes.profile(queries[p.uid]))
            profiles[p.uid] = known
        self._profiles = profiles  # of the queries that run; those of deleted ones go
        return _members(self._shapes, [profile for _, profile in profiles.values()], stats)


def _remembered(memory: Memory, mode: Mode, verdict: Verdict, unchanged: bool) -> Memory:
    """After one optimization. Queries it looked at are settled when its plan is applied, or is the running one."""
    full = mode == "full"
    memory = replace(memory, calls=0 if full else memory.calls + 1, hysteresis=verdict.hysteresis)
    if not (verdict.applied or unchanged):
        return memory
    return replace(memory, created=frozenset(), deleted=frozenset(), changes=0 if full else memory.changes)


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
    old: set[Node] = {n for p in plan.placements for n in walk(p.root)}
    price = 0.0
    for c in after:
        group = candidate.by_uid[c.uids[0]].group
        roots = {candidate.by_uid[u].root for u in c.uids}
        if roots <= old:
            continue
        shared = Shared(model, c.trees)
        for number, use in shared.joins.items():
            if model.shapes.plan_node(number, group) in old:
                continue
            join = model.shapes.joins[number]
            work = shared.intersection(number) + sum(shared.exchange(e) for e in join.exchanges)
            for index in join.indexes:
                if SourceNode(model.shapes.leaf_of(model.shapes.indexes[index].leaf), group) not in old:
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
