"""Whatever the optimizer believes, rows are right: lives with invented statistics, optimized before every epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from optimizer.model.plan import Plan, RunningQuery
from optimizer.statistics.model import EpochObservation, StreamObservation
from optimizer.statistics.samples import QuerySetSample
from runtime.control.planner import Planner
from tests.lives.engine import differences
from tests.lives.life import make_life
from tests.lives.runner import describe


def invented(rng: Random, plan: Plan, at: float) -> EpochObservation:
    """Rates, selectivities, key counts and outputs that have nothing to do with the data."""
    noise = np.random.default_rng(rng.getrandbits(32))
    samples = {}
    for leaf in {n.leaf for n in plan.sources}:
        uids = tuple(p.uid for p in plan.placements if leaf in p.root.leaves)
        share = noise.random(len(uids))
        samples[leaf] = QuerySetSample(uids, noise.random((64, len(uids))) < share)
    streams = {leaf.stream: StreamObservation(rng.randint(1, 10**6), rng.uniform(0.01, 10)) for leaf in samples}
    keys = {}
    for node in plan.nodes:
        for part in node.keys:
            for a in (part.left, part.right):
                keys[(a.leaf, (a.column,))] = float(rng.randint(1, 10**6))
    outputs = {n.name: float(rng.randint(0, 10**7)) for n in plan.nodes}
    return EpochObservation(at, streams, samples, keys, outputs)


def optimized_all_the_time(rng: Random, life: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for line in life:
        if "epoch" in line:
            out.append({"unpin": "all"})
            out.append({"optimize": rng.choice(["full", "full", "incremental"])})
        out.append(line)
    return out


@pytest.mark.parametrize(("profile", "seeds"), [("tiny", range(60)), ("medium", range(5)), ("deep", range(6))])
def test_random_statistics_never_change_a_row(
    profile: str, seeds: range, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    changes = 0
    for seed in seeds:
        rng = Random(f"optimizer-{profile}-{seed}")

        def observe(
            self: Planner, plan: Plan, queries: Mapping[str, RunningQuery], *rest: Any, rng: Random = rng
        ) -> None:
            self.clock = getattr(self, "clock", 0.0) + 1.0
            self.optimizer.observe(self.statistics, invented(rng, plan, self.clock), plan, queries)

        monkeypatch.setattr(Planner, "observe", observe)
        proposals: list[Any] = []
        real = Planner.optimize

        def optimize(self: Planner, *args: Any, real: Any = real, seen: list[Any] = proposals, **kwargs: Any) -> Any:
            seen.append(real(self, *args, **kwargs))
            return seen[-1]

        with monkeypatch.context() as m:
            m.setattr(Planner, "optimize", optimize)
            life = optimized_all_the_time(rng, make_life(Random(seed), profile))
            found = differences(life)
        changes += sum(p.applied for p in proposals)
        if found:
            path = tmp_path / f"{profile}-{seed}.jsonl"
            path.write_text(describe(life), encoding="utf-8")
            pytest.fail(f"{profile} life {seed} with invented statistics (written to {path}): {found[:3]}")
    assert changes > len(seeds) // 4, "the optimizer hardly ever changed a plan: this test shows nothing"


@pytest.mark.parametrize(("profile", "seeds"), [("tiny", range(30)), ("deep", range(3))])
def test_queries_said_to_be_heavy_never_change_a_row(
    profile: str, seeds: range, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Before every epoch some queries are said to be behind, so they leave their groups and come back at random."""
    moved = 0
    real = Planner.optimize
    for seed in seeds:
        rng = Random(f"heavy-{profile}-{seed}")
        reasons: list[str] = []

        def optimize(
            self: Planner, plan: Plan, queries: Any, mode: str, memory: Any, behind: Any, pins: Any, *, force: bool,
            rng: Random = rng, seen: list[str] = reasons,
        ) -> Any:  # fmt: skip
            said = {uid: rng.randint(1, 9) for uid in sorted(queries) if rng.random() < 0.3}
            proposal = real(self, plan, queries, mode, memory, said, pins, force=force)
            seen += proposal.reasons
            return proposal

        with monkeypatch.context() as m:
            m.setattr(Planner, "optimize", optimize)
            life = optimized_all_the_time(rng, make_life(Random(seed), profile))
            found = differences(life)
        moved += sum("gets a group of its own" in reason for reason in reasons)
        if found:
            path = tmp_path / f"{profile}-{seed}.jsonl"
            path.write_text(describe(life), encoding="utf-8")
            pytest.fail(f"{profile} life {seed} with heavy queries (written to {path}): {found[:3]}")
    assert moved > len(seeds) // 2, "hardly any query left its group: this test shows nothing"
