"""How long optimizing takes: a full run and an incremental step, from 100 to 2,000 queries, and the fitted growth.

    python -m experiments.optimizer_speed [--queries 100 200 500 1000 2000] [--similarity 0.5]

Queries are 2- to 5-way joins over 8 streams, drawn around one pattern query (equation 3 of the paper), with range
selections of which every fifth takes everything. A step deletes five queries, creates five, takes in an epoch's
statistics and optimizes incrementally; the reported time is that of the batch and the optimization, best of several.
Wall-clock times say little on a machine that does other things too, so CPU times stand next to them; the growth is
fitted to those.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from experiments.optimizer_workloads import add_similar, similar_world
from optimizer.model.plan import Plan, RunningQuery
from optimizer.optimize import CostBasedOptimizer, Mode, Step
from optimizer.policy.memory import Memory
from optimizer.statistics.model import StatisticsModel

CHANGES = 5
STEPS = 5


@dataclass(frozen=True)
class Result:
    """Wall-clock and CPU seconds of a full run and of an incremental step, and what the full run achieved."""

    full: tuple[float, float]
    step: tuple[float, float]
    ratio: float
    groups: int


def timed(work: Callable[[], Step]) -> tuple[Step, tuple[float, float]]:
    wall, cpu = time.perf_counter(), time.process_time()
    step = work()
    return step, (time.perf_counter() - wall, time.process_time() - cpu)


def run(queries: int, similarity: float, seed: int) -> Result:
    rng = random.Random(seed)
    world = similar_world(rng, queries, similarity)
    stats = StatisticsModel()
    stats.observe(world.report(rng))
    optimizer = CostBasedOptimizer()

    def optimize(at: Step, mode: Mode) -> Step:
        proposal = optimizer.optimize(at.plan, world.queries, stats, at.memory, mode, force=True)
        return Step(proposal.plan, proposal.memory)

    eager = optimizer.create_delete(Plan(), list(world.queries.values()), [], Memory())
    at, full = timed(lambda: optimize(eager, "full"))
    estimate = optimizer.estimate(at.plan, world.queries, stats)
    ratio, groups = estimate.cost / estimate.unshared, len(at.plan.groups)
    steps = []
    for step in range(STEPS):
        gone = rng.sample(sorted(world.queries), CHANGES)
        created = [add_similar(world, rng, f"new{step}-{i}", similarity) for i in range(CHANGES)]
        for uid in gone:
            world.remove(uid)
        optimizer.observe(stats, world.report(rng, at=2.0 + step), at.plan, world.queries)

        def batch(before: Step = at, new: list[RunningQuery] = created, old: list[str] = gone) -> Step:
            return optimize(optimizer.create_delete(before.plan, new, old, before.memory), "incremental")

        at, spent = timed(batch)
        steps.append(spent)
    return Result(full, (min(w for w, _ in steps), min(c for _, c in steps)), ratio, groups)


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """k of seconds ~ queries^k, by least squares of the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, nargs="+", default=[100, 200, 500, 1000, 2000])
    parser.add_argument("--similarity", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print("                full run            step of 10")
    print(" queries   wall s    cpu s   wall ms   cpu ms   cost/unshared   groups")
    results = []
    for n in args.queries:
        r = run(n, args.similarity, args.seed)
        results.append(r)
        step = f"{r.step[0] * 1000:>9.1f} {r.step[1] * 1000:>8.1f}"
        print(f"{n:>8} {r.full[0]:>8.2f} {r.full[1]:>8.2f} {step} {r.ratio:>15.3f} {r.groups:>8}")
    if len(args.queries) > 1:
        full = exponent(args.queries, [r.full[1] for r in results])
        step_growth = exponent(args.queries, [r.step[1] for r in results])
        print(f"growth: full run ~ queries^{full:.2f}, step ~ queries^{step_growth:.2f}")


if __name__ == "__main__":
    main()
