"""Cost models for tests: queries and statistics in, what the search works on out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from optimizer.cost.cardinality import Cardinalities
from optimizer.cost.model import CostModel, Member, Weights
from optimizer.cost.shapes import Shapes
from optimizer.model.plan import Leaf, Plan, RunningQuery
from optimizer.optimize import NOBODY, Behind, CostBasedOptimizer, Mode, OptimizerConfig, Proposal, Rescaling
from optimizer.policy.memory import Memory
from optimizer.policy.scaling import Load
from optimizer.statistics.model import EpochObservation, StatisticsModel, StreamObservation
from optimizer.statistics.samples import QuerySetSample


class Accepting:
    """An optimizer whose every answer comes true at once, with what it then remembers."""

    def __init__(self, config: OptimizerConfig | None = None) -> None:
        self.optimizer = CostBasedOptimizer(config)
        self.observe, self.estimate = self.optimizer.observe, self.optimizer.estimate
        self.memory = Memory()

    def create_delete(
        self, plan: Plan, created: Sequence[RunningQuery], deleted: Collection[str], behind: Behind = NOBODY
    ) -> Plan:
        step = self.optimizer.create_delete(plan, created, deleted, self.memory, behind)
        self.memory = step.memory
        return step.plan

    def optimize(
        self,
        plan: Plan,
        queries: Mapping[str, RunningQuery],
        stats: StatisticsModel,
        mode: Mode = "incremental",
        force: bool = False,
        behind: Behind = NOBODY,
    ) -> Proposal:
        proposal = self.dry_run(plan, queries, stats, mode, force, behind)
        self.memory = proposal.memory
        return proposal

    def dry_run(
        self,
        plan: Plan,
        queries: Mapping[str, RunningQuery],
        stats: StatisticsModel,
        mode: Mode = "incremental",
        force: bool = False,
        behind: Behind = NOBODY,
    ) -> Proposal:
        return self.optimizer.optimize(plan, queries, stats, self.memory, mode, force, behind)

    def rescale(self, plan: Plan, load: Load) -> Rescaling:
        rescaling = self.optimizer.rescale(plan, load, self.memory)
        self.memory = rescaling.memory
        return rescaling


def search_space(
    queries: Mapping[str, RunningQuery], stats: StatisticsModel, weights: Weights | None = None
) -> tuple[CostModel, dict[str, Member]]:
    shapes = Shapes()
    model = CostModel(Cardinalities(shapes, stats), weights or Weights())
    singles = {}
    for uid in sorted(queries):
        p = shapes.profile(queries[uid])
        bits = tuple(
            stats.column(shapes.leaf_of(leaf), uid, text)
            for leaf, text in zip(p.shape.leaves, p.selections, strict=True)
        )
        singles[uid] = Member(p.shape, bits, p.seconds, (uid,))
    return model, singles


def report(
    rates: Mapping[str, int],
    wants: Mapping[str, Mapping[str, str]] | None = None,
    keys: Mapping[str, float] | None = None,
    at: float = 1.0,
) -> EpochObservation:
    """`wants["V"]["q1"] = "110"` says that q1 takes the first two of three sampled tuples of V; `keys["V.vID"] = 5`."""
    samples = {}
    for stream, columns in (wants or {}).items():
        uids = tuple(sorted(columns))
        bits = np.array([[c == "1" for c in columns[u]] for u in uids]).T
        samples[Leaf(stream)] = QuerySetSample(uids, bits)
    return EpochObservation(
        at=at,
        streams={s: StreamObservation(r, 1.0) for s, r in rates.items()},
        samples=samples,
        keys={(Leaf(k.split(".")[0]), (k.split(".")[1],)): v for k, v in (keys or {}).items()},
    )


def statistics(*args: object, **kwargs: object) -> StatisticsModel:
    model = StatisticsModel()
    model.observe(report(*args, **kwargs))  # type: ignore[arg-type]
    return model
