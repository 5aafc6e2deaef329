"""How long optimizing takes: a full run and an incremental step, from 100 to 2,000 queries, and the fitted growth.

    python -m experiments.optimizer_speed [--queries 100 200 500 1000 2000] [--similarity 0.5]

Queries are 2- to 5-way joins over 8 streams, drawn around one pattern query (equation 3 of the paper), with range
selections of which every fifth takes everything. A step deletes five queries, creates five, takes in an epoch's
statistics and optimizes incrementally; the reported time is that of the batch and the optimization, best of several.
"""

from __future__ import annotations

import argparse
import random
import time

import numpy as np

from experiments.optimizer_workloads import add_similar, similar_world
from optimizer.optimize import CostBasedOptimizer
from optimizer.plan import Plan
from optimizer.statistics import StatisticsModel

CHANGES = 5
STEPS = 5


def run(queries: int, similarity: float, seed: int) -> tuple[float, float, float, int]:
    """(seconds of a full run, of an incremental step, cost after / unshared, groups)."""
    rng = random.Random(seed)
    world = similar_world(rng, queries, similarity)
    stats = StatisticsModel()
    stats.observe(world.report(rng))
    optimizer = CostBasedOptimizer()
    plan = optimizer.create_delete(Plan(), world.queries, list(world.queries.values()), [])
    begin = time.perf_counter()
    proposal = optimizer.optimize(plan, world.queries, stats, "full", force=True)
    full = time.perf_counter() - begin
    plan = proposal.plan
    unshared = optimizer.estimate(plan, world.queries, stats).unshared
    ratio, groups = proposal.cost_after / unshared, len(plan.groups)
    steps = []
    for step in range(STEPS):
        gone = rng.sample(sorted(world.queries), CHANGES)
        created = [add_similar(world, rng, f"new{step}-{i}", similarity) for i in range(CHANGES)]
        for uid in gone:
            world.remove(uid)
        optimizer.observe(stats, world.report(rng, at=2.0 + step), plan, world.queries)
        begin = time.perf_counter()
        plan = optimizer.create_delete(plan, world.queries, created, gone)
        plan = optimizer.optimize(plan, world.queries, stats, "incremental", force=True).plan
        steps.append(time.perf_counter() - begin)
    return full, min(steps), ratio, groups


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """k of seconds ~ queries^k, by least squares of the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, nargs="+", default=[100, 200, 500, 1000, 2000])
    parser.add_argument("--similarity", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(f"{'queries':>8} {'full s':>8} {'step ms':>8} {'cost/unshared':>14} {'groups':>7}")
    full, steps = [], []
    for n in args.queries:
        seconds, step, ratio, groups = run(n, args.similarity, args.seed)
        full.append(seconds)
        steps.append(step)
        print(f"{n:>8} {seconds:>8.2f} {step * 1000:>8.1f} {ratio:>14.3f} {groups:>7}")
    if len(args.queries) > 1:
        print(
            f"growth: full run ~ queries^{exponent(args.queries, full):.2f}, "
            f"step ~ queries^{exponent(args.queries, steps):.2f}"
        )


if __name__ == "__main__":
    main()
