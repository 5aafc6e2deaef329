"""Up before out, down before in, and only when it lasts."""

from __future__ import annotations

import random

import pytest

from optimizer.model.invariants import validate_plan
from optimizer.model.plan import FULL_RANGE, Partitioning, Plan
from optimizer.policy.scaling import Load, Quiet, ScalingConfig, decide
from tests.optimizer.models import Accepting

CONFIG = ScalingConfig()
TWO = Partitioning.even(2)


def busy(*shares, **more):
    return Load(busy=dict(enumerate(shares)), **{"cores": 4, **more})


def test_a_load_that_fits_changes_nothing():
    decision = decide(CONFIG, TWO, busy(0.5, 0.6), Quiet())
    assert (decision.action, decision.partitioning) == ("", TWO)


def test_up_when_a_core_is_free():
    decision = decide(CONFIG, TWO, busy(0.3, 0.95), Quiet())
    assert decision.action == "up" and decision.partitioning == TWO.with_split(1, 2)
    assert "partition 1 is skewed" in decision.reason


def test_out_when_none_is_free():
    decision = decide(CONFIG, TWO, busy(0.9, 1.0, cores=2, reachable=8), Quiet())
    assert decision.action == "out"
    assert decision.partitioning.bounds == (0, FULL_RANGE // 2, FULL_RANGE * 3 // 4, FULL_RANGE)


def test_cores_are_counted_per_node():
    """The cluster has idle cores, but not on the node of the slow partition."""
    nodes = {"node_of": {0: "a", 1: "b"}, "cores_of": {"a": 1, "b": 8}}
    decision = decide(CONFIG, TWO, busy(1.0, 0.1, cores=9, reachable=9, **nodes), Quiet())
    assert decision.action == "out"
    decision = decide(CONFIG, TWO, busy(0.1, 1.0, cores=9, reachable=9, **nodes), Quiet())
    assert decision.action == "up"


def test_a_late_query_scales_the_busiest_partition():
    load = busy(0.4, 0.5, latency_s={"q1": 1.0, "q2": 7.5})
    decision = decide(CONFIG, TWO, load, Quiet())
    assert decision.action == "up" and decision.partitioning.ways(1) == 2
    assert "q2 is 7.5 s late" in decision.reason


def test_latency_of_an_idle_platform_is_not_a_matter_of_scaling():
    """A source that delivers late: nothing is busy, more tasks would not help."""
    assert decide(CONFIG, TWO, busy(0.01, 0.02, latency_s={"q": 60.0}), Quiet()).action == ""


def test_no_cores_anywhere_is_said():
    decision = decide(CONFIG, TWO, busy(1.0, 1.0, cores=2), Quiet())
    assert decision.action == "" and "no more cores" in decision.reason


def test_down_only_after_it_stayed_low():
    at, quiet, actions = TWO.with_split(0, 3), Quiet(), []
    for share in (0.2, 0.2, 0.9, 0.2, 0.2, 0.2):
        decision = decide(CONFIG, at, busy(share, 0.5), quiet)
        quiet = decision.quiet
        actions.append(decision.action)
    assert actions == ["", "", "", "", "", "down"]
    assert decision.partitioning.ways(0) == 2


def test_in_joins_the_two_quietest_neighbours():
    at, quiet = Partitioning.even(4), Quiet()
    for _ in range(CONFIG.patience):
        decision = decide(CONFIG, at, busy(0.2, 0.1, 0.05, 0.2), quiet)
        quiet = decision.quiet
    assert decision.action == "in"
    q = FULL_RANGE // 4
    assert decision.partitioning.bounds == (0, q, 3 * q, FULL_RANGE)


def test_splits_follow_their_partitions():
    at = Partitioning.even(3).with_split(2, 2)
    out = decide(CONFIG, at, busy(1.0, 0.9, 1.9, cores=3, reachable=9), Quiet())
    assert out.action == "out" and out.partitioning.splits == ((3, 2),)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_load_the_partition_function_stays_legal(seed):
    rng = random.Random(seed)
    optimizer, plan = Accepting(), Plan(partitioning=Partitioning.even(rng.randint(1, 5)))
    for _ in range(60):
        shares = {p: rng.choice([0.0, 0.1, 0.5, 0.9, 1.5]) for p in range(plan.partitioning.count)}
        load = Load(shares, cores=rng.randint(1, 8), reachable=rng.choice([0, 16]))
        rescaling = optimizer.rescale(plan, load)
        after = rescaling.plan
        validate_plan(after, {})
        changed = after.partitioning != plan.partitioning
        assert after.version == plan.version + changed
        assert bool(rescaling.decision.action) == changed
        plan = after


def test_a_steady_load_comes_to_rest():
    """The total work is fixed and spreads over what is there; after some steps nothing changes any more."""
    optimizer, plan = Accepting(), Plan(partitioning=Partitioning.even(2))
    work, changes = 2.6, []
    for step in range(100):
        each = work / plan.partitioning.count
        load = Load(dict.fromkeys(range(plan.partitioning.count), each), cores=8, reachable=8)
        rescaling = optimizer.rescale(plan, load)
        plan = rescaling.plan
        if rescaling.decision.action:
            changes.append(step)
    assert changes and max(changes) < 30
