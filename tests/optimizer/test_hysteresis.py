"""A change must pay, must be wanted more than once, and swinging statistics must not swing the plan."""

from __future__ import annotations

import random

import pytest

from experiments.optimizer_workloads import similar_world
from optimizer.model.plan import Plan
from optimizer.optimize import OptimizerConfig
from optimizer.policy.hysteresis import Hysteresis, HysteresisConfig, Verdict, judge
from optimizer.statistics.model import StatisticsModel
from optimizer.statistics.samples import ROWS
from tests.optimizer.models import Accepting

ONCE = HysteresisConfig(min_gain=0.05, slow_epoch_s=1.0, confirmations=1, max_doublings=0)


class Judge:
    """Judges one plan of cost 100 after another and keeps the counts."""

    def __init__(self, config: HysteresisConfig) -> None:
        self.config, self.at = config, Hysteresis()

    def judge(self, after: float, price: float = 0, horizon_s: float = 60) -> Verdict:
        verdict = judge(self.config, self.at, before=100, after=after, price=price, horizon_s=horizon_s)
        self.at = verdict.hysteresis
        return verdict


def test_a_gain_that_pays_is_applied():
    verdict = Judge(ONCE).judge(60, price=500)
    assert verdict.applied and "40.0%" in verdict.reason


@pytest.mark.parametrize(
    ("after", "price", "horizon", "why"),
    [(97, 0, 60, "below"), (60, 2400, 60, "does not pay"), (60, 0, 1, "does not pay"), (60, 0, 0, "does not pay")],
)
def test_small_expensive_or_short_gains_are_not(after, price, horizon, why):
    verdict = Judge(ONCE).judge(after, price, horizon)
    assert not verdict.applied and why in verdict.reason


def test_wanted_twice_in_a_row():
    h = Judge(HysteresisConfig(confirmations=2))
    seen = [h.judge(after).applied for after in (50, 100, 50, 50)]
    assert seen == [False, False, False, True]


def test_alternating_wishes_never_come_true():
    h = Judge(HysteresisConfig(confirmations=2))
    assert not any(h.judge(50 if i % 2 else 100).applied for i in range(200))


def test_slow_swings_change_the_plan_ever_more_rarely():
    h = Judge(HysteresisConfig(confirmations=2))
    changes = [i for i in range(600) if h.judge(50 if i // 5 % 2 else 100).applied]
    assert len(changes) <= 4


def test_after_calm_it_reacts_quickly_again():
    config = HysteresisConfig(confirmations=2, calm=10)
    h = Judge(config)
    for _ in range(3):
        h.at = h.at.applied(config)
    assert h.at.needed(config) == 16
    for _ in range(30):
        h.judge(100)
    assert h.at.needed(config) == 2


def test_judging_changes_no_count():
    at = Hysteresis(wanted=1, calm=3, doublings=2)
    verdicts = {judge(ONCE, at, before=100, after=60, price=0, horizon_s=60) for _ in range(5)}
    assert len(verdicts) == 1 and at == Hysteresis(wanted=1, calm=3, doublings=2)


def test_alternating_statistics_do_not_alternate_the_plan():
    """All queries want the same tuples in one report, different ones in the next; the best plans are opposite."""
    rng = random.Random(4)
    world = similar_world(rng, 0, 1.0)
    world.keys = dict.fromkeys(world.keys, 5.0)
    for n in range(8):
        world.add(f"u{n}", ["S0", "S1"], [(0, "k0", 1, "k1")], [(0.0, 0.12)] * 2)
    together = dict(world.ranges)
    apart = {(u, leaf): (int(u[1:]) / 8, int(u[1:]) / 8 + 0.12) for u, leaf in world.ranges}
    optimizer = Accepting(OptimizerConfig(full_every=1))
    stats = StatisticsModel(alpha=1.0)  # no smoothing: hysteresis alone must do it
    stats.observe(world.report(rng, ROWS))
    plan = optimizer.create_delete(Plan(), list(world.queries.values()), [])
    versions, wanted = [], 0
    for step in range(40):
        world.ranges = apart if step % 2 else together
        optimizer.observe(stats, world.report(rng, ROWS, at=2.0 + step), plan, world.queries)
        proposal = optimizer.optimize(plan, world.queries, stats)
        wanted += proposal.candidate != plan
        plan = proposal.plan
        versions.append(plan.version)
    assert wanted >= 10  # there was something to resist
    assert len(set(versions)) == 1


def test_a_lasting_change_of_the_data_does_change_the_plan():
    rng = random.Random(4)
    world = similar_world(rng, 0, 1.0)
    world.keys = dict.fromkeys(world.keys, 5.0)
    for n in range(8):
        world.add(f"u{n}", ["S0", "S1"], [(0, "k0", 1, "k1")], [(n / 8, n / 8 + 0.12)] * 2)
    optimizer = Accepting()
    stats = world.statistics(rng)
    plan = optimizer.create_delete(Plan(), list(world.queries.values()), [])
    assert len(plan.groups) == 1
    for step in range(20):
        optimizer.observe(stats, world.report(rng, at=2.0 + step), plan, world.queries)
        plan = optimizer.optimize(plan, world.queries, stats).plan
    assert len(plan.groups) == 8
