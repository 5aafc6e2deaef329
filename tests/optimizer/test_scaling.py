"""Cut what is even, split what is one key, ask for machines and give them back, and only when it lasts."""

from __future__ import annotations

import random

import pytest

from optimizer.model.invariants import validate_plan
from optimizer.model.plan import FULL_RANGE, Partitioning, Plan
from optimizer.policy.scaling import Load, Machines, Quiet, ScalingConfig, decide
from tests.optimizer.models import Accepting

CONFIG = ScalingConfig()
TWO = Partitioning.even(2)
FOUR_CORES = Machines(4)


def busy(*shares, machines=FOUR_CORES, **more):
    return Load(dict(enumerate(shares)), machines, **more)


def test_a_load_that_fits_changes_nothing():
    decision = decide(CONFIG, TWO, busy(0.5, 0.6), Quiet())
    assert (decision.action, decision.partitioning, decision.cores) == ("", TWO, 0)


def test_nothing_is_decided_before_something_is_measured():
    quiet = Quiet(whole=2)
    decision = decide(CONFIG, TWO, Load({}, FOUR_CORES, {"q": 60.0}), quiet)
    assert (decision.action, decision.quiet) == ("", quiet)


def test_a_range_with_many_keys_is_cut():
    decision = decide(CONFIG, TWO, busy(0.3, 0.95, hottest={1: 0.1}), Quiet())
    assert decision.action == "out" and "partition 1 is skewed" in decision.reason
    assert decision.partitioning.bounds == (0, FULL_RANGE // 2, FULL_RANGE * 3 // 4, FULL_RANGE)


def test_a_range_with_one_hot_key_is_split():
    decision = decide(CONFIG, TWO, busy(0.3, 0.95, hottest={1: 0.9}), Quiet())
    assert decision.action == "up" and decision.partitioning == TWO.with_split(1, 2)
    assert "one key has 90% of it" in decision.reason


def test_an_even_load_uses_eight_cores_by_ranges_in_two_steps():
    """The total work is more than what there is at first, so a query is late; nothing is split."""
    at, work, steps = TWO, 6.0, []
    for _ in range(6):
        share = min(1.0, work / at.count)
        age = {"q": 20.0} if share == 1.0 else {"q": 1.0}
        load = busy(*[share] * at.count, machines=Machines(8), latency_s=age)
        decision = decide(CONFIG, at, load, Quiet())
        steps.append((decision.action, decision.partitioning.count))
        at = decision.partitioning
    assert steps[0] == ("out", 8) and set(steps[1:]) == {("", 8)} and not at.splits


def test_what_was_split_and_is_even_becomes_ranges():
    decision = decide(CONFIG, TWO.with_split(0, 2), busy(1.9, 0.4), Quiet())
    assert decision.action == "out" and decision.partitioning.count == 4 and not decision.partitioning.splits


def test_a_late_query_relieves_all_that_are_busy():
    load = busy(0.2, 0.5, latency_s={"q1": 1.0, "q2": 7.5})
    decision = decide(CONFIG, TWO, load, Quiet())
    assert decision.action == "out" and decision.partitioning.count == 3
    assert "q2 is 7.5 s late (allowed 5 s)" in decision.reason


def test_a_query_may_want_its_rows_sooner_or_later_than_others():
    assert decide(CONFIG, TWO, busy(0.2, 0.5, latency_s={"q": 2.0}, allowed_s={"q": 1.0}), Quiet()).action == "out"
    assert decide(CONFIG, TWO, busy(0.2, 0.5, latency_s={"q": 7.0}, allowed_s={"q": 60.0}), Quiet()).action == ""


def test_latency_of_an_idle_platform_is_not_a_matter_of_scaling():
    """A source that delivers late: nothing is busy, more tasks would not help."""
    assert decide(CONFIG, TWO, busy(0.01, 0.02, latency_s={"q": 60.0}), Quiet()).action == ""


def test_no_cores_anywhere_is_said():
    decision = decide(CONFIG, TWO, busy(1.0, 1.0, machines=Machines(2)), Quiet())
    assert decision.action == "" and "no more cores" in decision.reason


def test_machines_are_asked_for_with_the_tasks():
    decision = decide(CONFIG, TWO, busy(0.9, 1.0, machines=Machines(2, reachable=8)), Quiet())
    assert decision.action == "out" and decision.partitioning.count == 4 and decision.cores == 4


def test_machines_are_given_back_only_when_fewer_tasks_run_already():
    at, quiet, told = Partitioning.even(4), Quiet(), []
    for _ in range(12):
        load = busy(*[0.2 / at.count] * at.count, machines=Machines(4, reachable=4))
        decision = decide(CONFIG, at, load, quiet)
        quiet, at = decision.quiet, decision.partitioning
        told.append((decision.action, at.count, decision.cores))
        if decision.cores:
            break
    assert told == [("", 4, 0), ("", 4, 0), ("in", 2, 0), ("", 2, 0), ("", 2, 0), ("in", 1, 0),
                    ("", 1, 0), ("", 1, 0), ("", 1, 1)]  # fmt: skip


def test_down_only_after_it_stayed_low():
    at, quiet, actions = TWO.with_split(0, 3), Quiet(), []
    for share in (0.2, 0.2, 0.9, 0.2, 0.2, 0.2):
        decision = decide(CONFIG, at, busy(share, 0.5, hottest={0: 1.0}), quiet)
        quiet = decision.quiet
        actions.append(decision.action)
    assert actions == ["", "", "", "", "", "down"]
    assert decision.partitioning.ways(0) == 1, "in one step, because one task has little to do"


def test_in_joins_quiet_neighbours():
    at, quiet = Partitioning.even(4), Quiet()
    for _ in range(CONFIG.patience):
        decision = decide(CONFIG, at, busy(0.25, 0.1, 0.05, 0.25), quiet)
        quiet = decision.quiet
    assert decision.action == "in"
    q = FULL_RANGE // 4
    assert decision.partitioning.bounds == (0, q, 3 * q, FULL_RANGE)


def test_splits_follow_their_partitions():
    at = Partitioning.even(3).with_split(2, 2)
    load = busy(1.0, 0.7, 0.9, machines=Machines(3, reachable=9), hottest={2: 0.9})
    out = decide(CONFIG, at, load, Quiet())
    assert out.action == "out" and out.partitioning.splits == ((3, 2),)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_load_the_partition_function_stays_legal(seed):
    rng = random.Random(seed)
    optimizer, plan = Accepting(), Plan(partitioning=Partitioning.even(rng.randint(1, 5)))
    for _ in range(60):
        count = plan.partitioning.count
        shares = {p: rng.choice([0.0, 0.1, 0.5, 0.9, 1.5]) for p in range(count)}
        machines = Machines(rng.randint(1, 8), rng.choice([0, 16]))
        hottest = {p: rng.choice([0.0, 0.4, 1.0]) for p in range(count)}
        load = Load(shares, machines, {"q": rng.choice([0.0, 9.0, 90.0])}, hottest=hottest)
        before = sum(map(plan.partitioning.ways, range(count)))
        rescaling = optimizer.rescale(plan, load)
        after = rescaling.plan
        validate_plan(after, {})
        changed = after.partitioning != plan.partitioning
        assert after.version == plan.version + changed
        assert bool(rescaling.decision.action) == changed
        tasks = sum(map(after.partitioning.ways, range(after.partitioning.count)))
        assert tasks <= max(before, machines.most)
        plan = after


@pytest.mark.parametrize("work", [0.1, 0.9, 2.6, 7.0])
def test_a_steady_load_comes_to_rest(work):
    """The total work is fixed and spreads over what is there; after some steps nothing changes any more."""
    optimizer, plan = Accepting(), Plan(partitioning=Partitioning.even(2))
    changes = []
    for step in range(100):
        each = work / plan.partitioning.count
        load = Load(dict.fromkeys(range(plan.partitioning.count), each), Machines(8, 16))
        rescaling = optimizer.rescale(plan, load)
        plan = rescaling.plan
        if rescaling.decision.action:
            changes.append(step)
    assert max(changes, default=0) < 8
