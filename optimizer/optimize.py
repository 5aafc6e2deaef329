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

Heavy queries come first: `behind` says which queries have work put off, and by how many epochs. Those that
`policy.apart` wants kept apart leave groups they share, at once and whatever that costs, because it is done for the
others; such a proposal changes nothing else. Where there is nobody to move, the rest of the queries is optimized as if
those kept apart were not there, and a created query does not join them.

What must be remembered from one call to the next is a frozen `Memory` that goes in and comes out beside the plan; the
caller keeps it once the plan is in the log, and otherwise nothing has happened. There is no clock and no randomness:
the same calls give the same plans.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from optimizer.cost.cardinality import Cardinalities
from optimizer.cost.model import CostModel, Member, Weights
from optimizer.cost.shapes import Profile, Shapes
from optimizer.model.parts import Part, combined, parts_of
from optimizer.model.pins import NO_PINS, Pins
from optimizer.model.plan import Plan, RunningQuery
from optimizer.model.query import Query
from optimizer.policy import scaling
from optimizer.policy.apart import ApartConfig, kept_apart, watch
from optimizer.policy.hysteresis import HysteresisConfig
from optimizer.policy.memory import Memory
from optimizer.policy.scaling import Decision, Load, ScalingConfig
from optimizer.search import drift, eager, estimate
from optimizer.search.apart import in_best_order, move_apart, must_leave, why_apart
from optimizer.search.assemble import clusters_of, to_plan
from optimizer.search.clusters import Cluster
from optimizer.search.dynamic import unavoidable_stages
from optimizer.search.full import optimize_fully
from optimizer.search.incremental import optimize_incrementally
from optimizer.search.judging import Pricer, judge, take_all
from optimizer.search.members import members
from optimizer.search.refine import Alone
from optimizer.statistics.model import EpochObservation, StatisticsModel

Mode = Literal["full", "incremental"]
Behind = Mapping[str, int]
"""Queries (uids) with work put off, and by how many epochs they are behind; those that keep up are not in it."""

NOBODY: Behind = MappingProxyType({})
MAX_JOINS = 200_000


@dataclass(frozen=True)
class OptimizerConfig:
    """`full_after`: created and deleted queries, as a share of those running, that make the next run a full one.
    `full_drift`: the share of queries whose statistics have changed that does. `full_gain`: estimated relative gain
    that does, on top of what the last full run had promised. `full_every`: calls after which one does; 0: never."""

    weights: Weights = field(default_factory=Weights)
    hysteresis: HysteresisConfig = field(default_factory=HysteresisConfig)
    scaling: ScalingConfig = field(default_factory=ScalingConfig)
    apart: ApartConfig = field(default_factory=ApartConfig)
    full_after: float = 0.5
    full_gain: float = 0.15
    full_drift: float = 0.1
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
    """`plan` is the plan to run from now on: the old one with the `parts` that are made now, if any (`applied`).
    `candidate` has everything that would be better, also what must still wait. `cost_after` is that of `plan`, if it is
    another one, else of `candidate`; costs and `gain` (their difference, which may be below zero where heavy queries
    leave a group) are per second. `memory` is what to remember if the proposal is accepted, also when it says that the
    old plan stays; a dry run throws it away."""

    plan: Plan
    cost_before: float
    cost_after: float
    gain: float
    reasons: tuple[str, ...]
    applied: bool
    candidate: Plan
    mode: Mode
    memory: Memory
    parts: tuple[Part, ...] = ()


class CostBasedOptimizer:
    """Owned by one thread.

    What it holds itself are caches: the table of shapes, the profile of each running query (used only for the very
    query it was made of), the cost model on the latest statistics, and the table by which the next query is placed
    (used only for the plan it was made of). Each holds what would be computed again from the arguments, and ties
    between plans are broken by texts, never by the order in which the tables grew; so neither keeping nor losing them
    changes a decision.
    """

    def __init__(self, config: OptimizerConfig | None = None) -> None:
        self.config = config or OptimizerConfig()
        self._shapes = Shapes()
        self._profiles: dict[str, tuple[Query, Profile]] = {}
        self._model: tuple[StatisticsModel, int, CostModel] | None = None
        self._placed: tuple[Plan, frozenset[int], eager.Table] | None = None

    # -- phase 1 -------------------------------------------------------------------------------------------------------

    def create_delete(
        self,
        plan: Plan,
        created: Sequence[RunningQuery],
        deleted: Collection[str],
        memory: Memory,
        behind: Behind = NOBODY,
        running: Mapping[str, RunningQuery] = eager.NOBODY,
    ) -> Step:
        """The plan after one query batch; `deleted` holds uids, `running` the queries of `plan`."""
        apart = self.apart(plan, memory, behind)
        closed = eager.closed_groups(plan, apart, deleted)
        table = self._table(plan, closed, running)
        new = eager.create_delete(plan, created, deleted, apart, running, table)
        if len(running) >= len(plan.placements):  # otherwise the table does not know all folds
            self._placed = (new, closed, table)
        return Step(new, memory.after_batch(plan, [rq.uid for rq in created], deleted))

    def _table(self, plan: Plan, closed: frozenset[int], running: Mapping[str, RunningQuery]) -> eager.Table:
        """Taken out, because a batch that fails leaves it half changed."""
        known, self._placed = self._placed, None
        if known is not None and known[0] == plan and known[1] == closed:
            return known[2]
        return eager.Table(plan.placements, closed, running)

    def apart(self, plan: Plan, memory: Memory, behind: Behind = NOBODY) -> frozenset[str]:
        """Queries that are to have no company: those kept apart, and those the next optimization will add."""
        config = self.config.apart
        soon = watch(config, memory.apart, behind, plan.by_uid)
        return kept_apart(config, memory.apart) | kept_apart(config, soon)

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
        singles = members(shapes, profiles, stats)
        return estimate.estimate(_counting_stages(model, singles), plan, singles)

    # -- phase 2 -------------------------------------------------------------------------------------------------------

    def optimize(
        self,
        plan: Plan,
        queries: Mapping[str, RunningQuery],
        stats: StatisticsModel,
        memory: Memory,
        mode: Mode = "incremental",
        force: bool = False,
        behind: Behind = NOBODY,
        pins: Pins = NO_PINS,
    ) -> Proposal:
        """Groups and orders by cost, heavy queries apart. `force`: apply whatever is better. What is pinned stays."""
        if not plan.placements:
            return Proposal(plan, 0.0, 0.0, 0.0, ("no query is running",), False, plan, mode, memory)
        memory, released = self._watched(plan, memory, behind)
        apart = kept_apart(self.config.apart, memory.apart)
        singles = self._singles(plan, queries, stats)
        model = _counting_stages(self.model(stats), singles)
        before = clusters_of(model, plan, singles)
        cost = sum(c.cost for c in before.values())
        leaving = {uid: n for uid, n in must_leave(plan, apart).items() if uid not in pins.groups}
        moved = move_apart(plan, queries, leaving)
        if moved is not plan:
            price = sum(c.cost for c in clusters_of(model, moved, singles).values())
            reasons = (*why_apart(leaving, behind, queries), *_summary(plan, moved, cost, price))
            parts = parts_of(plan, moved)
            return Proposal(moved, cost, price, cost - price, reasons, True, moved, mode, memory, parts)
        alone = Alone(model, singles)
        numbers = drift.seen(model, singles)
        drifting = drift.drifted(memory.seen, numbers)
        mode, reasons = self._mode(mode, cost, alone, singles, memory, drifting)
        movers = memory.created | memory.drifted | drifting
        after = _search(mode, model, singles, before, memory, movers, alone, apart)
        price = sum(c.cost for c in after)
        if price > cost:  # the running plan was better; a search is no reason to get worse
            after, price = list(before.values()), cost
        known = {id(c) for c in before.values()}
        same = all(id(c) in known for c in after)
        wanted = plan if same else pins.respected(plan, to_plan(plan, after, self._shapes))
        pricer = Pricer(model, plan, singles, before, alone)
        found, at = parts_of(plan, wanted), memory.hysteresis
        if force:
            judged, sampled = take_all(pricer, found, at, plan, pins), memory.created
        else:
            sampled = frozenset(
                uid for uid in memory.created if uid in singles and _sampled(stats, model, singles[uid])
            )
            horizon = stats.stale_s * stats.confidence
            judged = judge(self.config.hysteresis, at, pricer, found, plan, sampled, horizon, pins)
        candidate, chosen = combined(plan, judged.better), combined(plan, judged.accepted)
        shown = chosen if judged.accepted else candidate
        price = cost if shown is plan else sum(c.cost for c in clusters_of(model, shown, singles).values())
        looked_at = None if mode == "full" else movers
        memory = replace(
            _remembered(memory, mode, alone, singles, cost, price, sampled),
            hysteresis=judged.hysteresis,
            seen=drift.remembered(memory.seen, numbers, looked_at),
            drifted=drifting,
        )
        back = tuple(f"{queries[uid].id} may share a group again: it keeps up with its streams" for uid in released)
        reasons = (*reasons, *back, *_summary(plan, shown, cost, price), *judged.reasons)
        applied = chosen is not plan
        return Proposal(chosen, cost, price, cost - price, reasons, applied, candidate, mode, memory, judged.accepted)

    def _watched(self, plan: Plan, memory: Memory, behind: Behind) -> tuple[Memory, tuple[str, ...]]:
        """Who is to be apart from now on, and who was until now; these are placed as if they had just been created."""
        config = self.config.apart
        watched = watch(config, memory.apart, behind, plan.by_uid)
        released = kept_apart(config, memory.apart) & plan.by_uid.keys() - kept_apart(config, watched)
        return replace(memory, apart=watched, created=memory.created | released), tuple(sorted(released))

    def _mode(
        self,
        mode: Mode,
        cost: float,
        alone: Alone,
        singles: Mapping[str, Member],
        memory: Memory,
        drifting: frozenset[str],
    ) -> tuple[Mode, tuple[str, ...]]:
        m, c, running = memory, self.config, len(singles)
        if mode == "full":
            return mode, ("full optimization was asked for",)
        if m.changes > c.full_after * running:
            return "full", (f"{m.changes} queries came or went since the last full run, {running} are running",)
        if c.full_every and m.calls + 1 >= c.full_every:
            return "full", (f"{m.calls} runs since the last full one",)
        changing = drifting | (m.drifted & singles.keys())
        if changing and len(changing) > c.full_drift * running:
            return "full", (f"the statistics of {len(changing)} of {running} queries have changed",)
        if m.achieved is not None and not m.created:
            promised = 1 - m.achieved * sum(alone.at_least(u) for u in singles) / cost if cost else 0.0
            if promised - max(m.promised, 0.0) > c.full_gain:
                return "full", (f"a full run promises to save {promised:.0%}",)
        again = f" and {len(changing)} drifting" if changing else ""
        return "incremental", (f"{len(m.created)} created{again} and {len(m.deleted)} deleted queries looked at",)

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
        return members(self._shapes, [profile for _, profile in profiles.values()], stats)


def _counting_stages(model: CostModel, singles: Mapping[str, Member]) -> CostModel:
    """The model for a plan of just these queries."""
    if not model.stage:
        return model
    needed = unavoidable_stages(model.shapes, (single.shape for single in singles.values()))
    return CostModel(model.cardinalities, model.weights, needed)


def _search(
    mode: Mode,
    model: CostModel,
    singles: Mapping[str, Member],
    before: Mapping[int, Cluster],
    memory: Memory,
    movers: frozenset[str],
    alone: Alone,
    apart: frozenset[str],
) -> list[Cluster]:
    """The best groups found. Groups of queries that are kept apart are not part of the search."""
    hidden = [c for c in before.values() if not apart.isdisjoint(c.uids)]
    shown = {g: c for g, c in before.items() if apart.isdisjoint(c.uids)}
    singles = {uid: singles[uid] for c in shown.values() for uid in c.uids}
    if mode == "full":
        found = optimize_fully(model, singles, alone, list(shown.values())) if shown else []
        return found + in_best_order(hidden, alone)
    gone = {a for query in memory.deleted for a in query.attributes}
    return optimize_incrementally(model, singles, shown, movers, gone, alone) + hidden


def _sampled(stats: StatisticsModel, model: CostModel, single: Member) -> bool:
    """Is it known what the query wants, or is it a guess?"""
    (uid,) = single.uids
    return all(uid in stats.columns(model.shapes.leaf_of(leaf))[0] for leaf in single.shape.leaves)


def _remembered(
    memory: Memory,
    mode: Mode,
    alone: Alone,
    singles: Mapping[str, Member],
    cost: float,
    price: float,
    settled: frozenset[str],
) -> Memory:
    """After one optimization. What it found is remembered as wishes, so it need not look at the same queries again,
    except created ones of which nothing was known yet."""
    created = memory.created - settled
    if mode != "full":
        return replace(memory, calls=memory.calls + 1, created=created, deleted=frozenset())
    unshared = sum(alone.at_least(u) for u in singles)
    return replace(
        memory,
        calls=0,
        changes=0,
        created=created,
        deleted=frozenset(),
        achieved=price / unshared if unshared else None,
        promised=1 - price / cost if cost else 0.0,
    )


def _summary(plan: Plan, candidate: Plan, before: float, after: float) -> tuple[str, ...]:
    if candidate is plan:
        return ()
    moved = reordered = 0
    for p in candidate.placements:
        old = plan.by_uid[p.uid]
        moved += p.group != old.group
        reordered += p.group == old.group and p.root != old.root
    groups = f"{len(plan.groups)} -> {len(candidate.groups)} groups"
    saving = f"{abs(before - after) / before:.1%}" if before else "nothing"
    effect = f"saving {saving}" if after <= before else f"costing {saving} more"
    return (f"{moved} queries move, {reordered} are reordered, {groups}, {effect}",)
