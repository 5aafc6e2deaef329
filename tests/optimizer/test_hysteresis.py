"""A change must pay, must be wanted more than once, and swinging statistics must not swing the plan."""

from __future__ import annotations

import random

import pytest

from experiments.optimizer_workloads import similar_world
from optimizer.model.parts import Move, Part
from optimizer.model.plan import Leaf, Plan, SourceNode
from optimizer.optimize import OptimizerConfig
from optimizer.policy.hysteresis import Hysteresis, HysteresisConfig, Restless, Wish, worth
from optimizer.statistics.model import StatisticsModel
from optimizer.statistics.samples import ROWS
from tests.optimizer.models import Accepting

ONCE = HysteresisConfig(min_gain=0.05, slow_epoch_s=1.0, confirmations=1, max_doublings=1)
TWICE = HysteresisConfig(confirmations=2, calm=6)


def part(*uids: str) -> Part:
    old, new = SourceNode(Leaf("S"), 0), SourceNode(Leaf("S"), 1)
    return Part(tuple(Move(uid, 0, old, 1, new) for uid in uids), frozenset({1}))


class Judge:
    """Wishes for some queries, one optimization after the other; what comes true is wished no more."""

    def __init__(self, config: HysteresisConfig = TWICE) -> None:
        self.config, self.at = config, Hysteresis()

    def wish(self, *uids: str) -> bool:
        """One optimization that wants to move these queries (or none): does it?"""
        if not uids:
            self.at = self.at.after(self.config, (), (), "abcdefgh")
            return False
        wanted = self.at.wanted(part(*uids)) + 1
        done = wanted >= self.at.needed(self.config, uids)
        wishes = () if done else (Wish(part(*uids), wanted),)
        self.at = self.at.after(self.config, wishes, uids if done else (), "abcdefgh")
        return done


def test_a_gain_that_pays_is_worth_it():
    said = worth(ONCE, gain=40, basis=100, price=500, horizon_s=60)
    assert said.pays and "40.0%" in said.reason


@pytest.mark.parametrize(
    ("gain", "price", "horizon", "why", "seen"),
    [
        (3, 0, 60, "below", False),
        (-3, 0, 60, "below", False),
        (40, 2400, 60, "does not pay", True),
        (40, 0, 1, "does not pay", True),
        (40, 0, 0, "does not pay", True),
    ],
)
def test_small_expensive_or_short_gains_are_not(gain, price, horizon, why, seen):
    said = worth(ONCE, gain=gain, basis=100, price=price, horizon_s=horizon)
    assert not said.pays and said.seen == seen and why in said.reason


def test_wanted_twice_in_a_row():
    h = Judge()
    assert [h.wish(*uids) for uids in ("a", "", "a", "a")] == [False, False, False, True]


def test_alternating_wishes_never_come_true():
    h = Judge()
    assert not any(h.wish(*("a" if i % 2 else "b")) for i in range(200))


def test_slow_swings_move_a_query_ever_more_rarely():
    h = Judge()
    changes = [i for i in range(600) if h.wish(*("a" if i // 5 % 2 else ""))]
    assert len(changes) <= 4


def test_what_flaps_holds_back_nothing_else():
    """`a` is wanted in swings and held back; `b` is wanted once, and needs no more than the two confirmations."""
    h = Judge()
    for i in range(60):
        h.wish(*("a" if i // 3 % 2 else ""))
    assert h.at.needed(TWICE, "a") > 2 == h.at.needed(TWICE, "b")
    assert [h.wish("b"), h.wish("b")] == [False, True]
    assert h.at.needed(TWICE, "ab") == h.at.needed(TWICE, "a")


def test_after_calm_a_query_is_forgotten():
    h = Judge()
    h.at = Hysteresis((), (Restless("a", 0, 3), Restless("gone", 0, 3)))
    assert h.at.needed(TWICE, "a") == 16
    for _ in range(24):
        h.wish()
    assert h.at == Hysteresis()


def test_another_wish_for_the_same_queries_goes_on_counting_and_for_others_begins_anew():
    at = Hysteresis((Wish(part("a", "b"), 5),))
    assert at.wanted(part("a", "b")) == at.wanted(part("a")) == 5
    assert at.wanted(part("a", "c")) == at.wanted(part("c")) == 0


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
