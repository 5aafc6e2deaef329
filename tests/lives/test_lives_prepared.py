"""Changes of the plan that are prepared portion by portion, while queries come and go, never change a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest

from optimizer.errors import AJoinError
from optimizer.model.plan import Plan, RunningQuery
from runtime.api import Control, Optimize
from runtime.control.planner import Planner
from runtime.engine import preparation
from runtime.engine.engine import Engine
from runtime.engine.preparation import Preparation
from tests.lives import engine as lives
from tests.lives.engine import Stored, differences
from tests.lives.life import make_life
from tests.lives.runner import describe
from tests.lives.test_lives_optimizer import invented, optimized_all_the_time

HOW = {"plain": None, "stored": Stored(objects=True), "failing": Stored(fails=True)}


def propose(engine: Engine, mode: str) -> Plan:
    """What the optimizer would do if it need not be sure."""
    state, planner = engine.state, engine.parts.planner
    proposal = planner.optimize(state.plan, state.running, mode, planner.memory, force=True)
    return proposal.plan


@pytest.mark.parametrize(
    ("how", "profile", "seeds"),
    [
        ("plain", "tiny", range(60)),
        ("plain", "medium", range(6)),
        ("plain", "deep", range(8)),
        ("stored", "tiny", range(10)),
        ("failing", "tiny", range(10)),
    ],
)
def test_prepared_changes_never_change_a_row(
    how: str, profile: str, seeds: range, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    seen: Counter[str] = Counter()
    monkeypatch.setattr(preparation, "AT_ONCE", 0)
    real_given, real_step = Preparation.given, Preparation.step

    def given(self: Preparation, *args: Any) -> Any:
        found = real_given(self, *args)
        seen["used" if found is not None else "not used"] += 1
        return found

    def step(self: Preparation, *args: Any) -> bool:
        seen["portions"] += 1
        return real_step(self, *args)

    monkeypatch.setattr(Preparation, "given", given)
    monkeypatch.setattr(Preparation, "step", step)
    validated = lives.validated

    def preparing(engine: Engine) -> Engine:
        apply = engine.apply

        def prepared(controls: Sequence[Control | AJoinError]) -> Any:
            asked = [c.mode for c in controls if isinstance(c, Optimize)]
            outcomes = apply([c for c in controls if not isinstance(c, Optimize)]) if len(asked) < len(controls) else []
            for mode in asked:
                if engine.situation() is not None:
                    engine.change_to(propose(engine, mode))
            return outcomes if outcomes else [None] * len(controls)

        engine.apply = prepared  # type: ignore[method-assign]
        return validated(engine)

    monkeypatch.setattr(lives, "validated", preparing)
    for seed in seeds:
        rng = Random(f"prepared-{profile}-{seed}")

        def observe(
            self: Planner, plan: Plan, queries: Mapping[str, RunningQuery], *rest: Any, rng: Random = rng
        ) -> None:
            self.clock = getattr(self, "clock", 0.0) + 1.0
            self.optimizer.observe(self.statistics, invented(rng, plan, self.clock), plan, queries)

        with monkeypatch.context() as m:
            m.setattr(Planner, "observe", observe)
            life = optimized_all_the_time(rng, make_life(Random(seed), profile))
            found = differences(life, stored=HOW[how])
        if found:
            path = tmp_path / f"{how}-{profile}-{seed}.jsonl"
            path.write_text(describe(life), encoding="utf-8")
            pytest.fail(f"{profile} life {seed}, {how} (written to {path}): {found[:3]}")
    print(seen)
    assert seen["used"] > len(seeds) // 4, f"hardly anything was prepared: {seen}"
    assert seen["portions"] > seen["used"]
