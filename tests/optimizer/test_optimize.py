"""The optimizer as the runtime uses it: versions, determinism, legality, when it runs fully, what it touches."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.optimizer_workloads import add_similar, similar_world, small_world
from optimizer.cost.model import Weights
from optimizer.model.changelog import apply, diff
from optimizer.model.invariants import validate_plan
from optimizer.model.plan import Plan
from optimizer.optimize import OptimizerConfig
from optimizer.policy.hysteresis import HysteresisConfig
from optimizer.statistics.model import StatisticsModel
from tests.builders import running_queries
from tests.optimizer.models import Accepting

EAGER_TO_CHANGE = HysteresisConfig(min_gain=0.0, slow_epoch_s=0.0, confirmations=1, max_doublings=0)


def started(world, rng, config=None):
    optimizer = Accepting(config)
    stats = world.statistics(rng)
    plan = optimizer.create_delete(Plan(), list(world.queries.values()), [])
    return optimizer, stats, plan


@given(running_queries(max_queries=8), st.randoms(use_true_random=False), st.sampled_from(["full", "incremental"]))
@settings(max_examples=60, deadline=None)
def test_every_plan_is_legal_and_one_version_up(queries, rng, mode):
    """Random queries (cycles, self-joins, composite keys), no statistics, random weights."""
    weights = Weights(*(rng.choice([0.0, 0.3, 1.0, 10.0]) for _ in range(7)))
    optimizer = Accepting(OptimizerConfig(weights=weights))
    running = {q.uid: q for q in queries}
    plan = optimizer.create_delete(Plan(), queries, [])
    proposal = optimizer.optimize(plan, running, StatisticsModel(), mode, force=True)
    validate_plan(proposal.plan, running)
    assert proposal.plan.by_uid.keys() == running.keys()
    if proposal.applied:
        assert proposal.plan.version == plan.version + 1
        assert apply(plan, diff(plan, proposal.plan)) == proposal.plan
    else:
        assert proposal.plan is plan
    assert proposal.cost_after <= proposal.cost_before * (1 + 1e-9)
    assert proposal.gain == pytest.approx(proposal.cost_before - proposal.cost_after)


@pytest.mark.parametrize("seed", range(6))
def test_a_life_of_random_batches_and_optimizations(seed):
    rng = random.Random(seed)
    world = similar_world(rng, 12, 0.5, streams=5)
    optimizer, stats, plan = started(world, rng, OptimizerConfig(hysteresis=EAGER_TO_CHANGE))
    for step in range(12):
        gone = rng.sample(sorted(world.queries), rng.randint(0, min(3, len(world.queries))))
        new = [add_similar(world, rng, f"v{step}-{i}", 0.5, streams=5) for i in range(rng.randint(0, 4))]
        for uid in gone:
            world.remove(uid)
        before = plan
        plan = optimizer.create_delete(plan, new, gone)
        assert plan.version == before.version + bool(new or gone)
        optimizer.observe(stats, world.report(rng, at=2.0 + step), plan, world.queries)
        proposal = optimizer.optimize(
            plan, world.queries, stats, rng.choice(["full", "incremental"]), force=rng.random() < 0.5
        )
        validate_plan(proposal.plan, world.queries)
        assert apply(plan, diff(plan, proposal.plan)) == proposal.plan
        assert proposal.cost_after <= proposal.cost_before * (1 + 1e-9)
        plan = proposal.plan


def test_same_inputs_same_plans_whatever_the_optimizer_saw_before():
    def run(warm: bool):
        rng = random.Random(5)
        world = small_world(rng, max_queries=12)
        optimizer, stats, plan = started(world, rng)
        if warm:
            other = similar_world(random.Random(9), 30, 0.5)
            optimizer.optimize(
                optimizer.create_delete(Plan(), list(other.queries.values()), []),
                other.queries,
                StatisticsModel(),
                "full",
                force=True,
            )
        return optimizer.optimize(plan, world.queries, stats, "full", force=True)

    assert run(False).plan == run(False).plan == run(True).plan


def test_replayed_statistics_give_the_same_plan():
    rng = random.Random(8)
    world = similar_world(rng, 40, 0.5)
    optimizer, stats, plan = started(world, rng)
    copied = StatisticsModel.from_json(json.loads(json.dumps(stats.to_json())))
    one = optimizer.optimize(plan, world.queries, stats, "full", force=True)
    two = Accepting().optimize(plan, world.queries, copied, "full", force=True)
    assert one.plan == two.plan and one.cost_after == pytest.approx(two.cost_after)


def test_optimizing_the_result_again_changes_nothing():
    rng = random.Random(2)
    world = similar_world(rng, 60, 0.5)
    optimizer, stats, plan = started(world, rng)
    first = optimizer.optimize(plan, world.queries, stats, "full", force=True)
    again = optimizer.optimize(first.plan, world.queries, stats, "full", force=True)
    assert again.plan is first.plan and not again.applied


def test_an_empty_plan():
    proposal = Accepting().optimize(Plan(), {}, StatisticsModel(), "full", force=True)
    assert not proposal.applied and proposal.plan == Plan()


def test_an_incremental_step_leaves_other_groups_alone():
    """Twenty groups that share nothing; a query comes to one of them."""
    rng = random.Random(3)
    world = similar_world(rng, 0, 1.0, streams=8)
    world.keys = dict.fromkeys(world.keys, 5.0)
    for n in range(20):
        r = (n / 20, (n + 1) / 20)
        for twin in "ab":
            world.add(f"u{n:02}{twin}", ["S0", "S1"], [(0, "k0", 1, "k1")], [r, r])
    optimizer, stats, plan = started(world, rng)
    plan = optimizer.optimize(plan, world.queries, stats, "full", force=True).plan
    assert len(plan.groups) == 20
    r = (7 / 20, 8 / 20)
    new = world.add("w", ["S0", "S1", "S2"], [(0, "k0", 1, "k1"), (1, "k0", 2, "k1")], [r, r, r])
    plan = optimizer.create_delete(plan, [new], [])
    optimizer.observe(stats, world.report(rng, at=2.0), plan, world.queries)
    proposal = optimizer.optimize(plan, world.queries, stats, "incremental", force=True)
    assert proposal.mode == "incremental"
    assert proposal.plan.by_uid["w"].group == plan.by_uid["u07a"].group
    same = [p for p in proposal.plan.placements if p.uid != "w"]
    assert same == [p for p in plan.placements if p.uid != "w"]


def test_a_query_that_fits_nowhere_gets_its_own_group():
    rng = random.Random(3)
    world = similar_world(rng, 0, 1.0, streams=8)
    world.keys = dict.fromkeys(world.keys, 5.0)
    for n in range(6):
        world.add(f"u{n}", ["S0", "S1"], [(0, "k0", 1, "k1")], [(0.0, 0.4)] * 2)
    optimizer, stats, plan = started(world, rng)
    plan = optimizer.optimize(plan, world.queries, stats, "full", force=True).plan
    new = world.add("w", ["S0", "S1"], [(0, "k0", 1, "k1")], [(0.5, 1.0)] * 2)
    plan = optimizer.create_delete(plan, [new], [])
    assert plan.by_uid["w"].group == plan.by_uid["u0"].group  # eagerly shared, by shape
    optimizer.observe(stats, world.report(rng, at=2.0), plan, world.queries)
    proposal = optimizer.optimize(plan, world.queries, stats, "incremental", force=True)
    assert proposal.plan.by_uid["w"].group != proposal.plan.by_uid["u0"].group
    assert any("1 queries move" in reason for reason in proposal.reasons)


def test_more_than_half_changed_makes_it_full():
    rng = random.Random(4)
    world = similar_world(rng, 20, 0.5)
    optimizer, stats, plan = started(world, rng)
    plan = optimizer.optimize(plan, world.queries, stats, "full", force=True).plan
    for batch, expected in ((5, "incremental"), (16, "full"), (1, "incremental")):
        new = [add_similar(world, rng, f"w{batch}-{i}", 0.5) for i in range(batch)]
        plan = optimizer.create_delete(plan, new, [])
        optimizer.observe(stats, world.report(rng, at=stats.at + 1), plan, world.queries)
        proposal = optimizer.optimize(plan, world.queries, stats, "incremental", force=True)
        assert proposal.mode == expected
        plan = proposal.plan


def test_a_drift_of_the_data_makes_it_full():
    """Selections that wanted the same tuples now want different ones."""
    rng = random.Random(4)
    world = similar_world(rng, 0, 1.0)
    world.keys = dict.fromkeys(world.keys, 5.0)
    for n in range(10):
        world.add(f"u{n}", ["S0", "S1"], [(0, "k0", 1, "k1")], [(0.0, 0.1)] * 2)
    optimizer, stats, plan = started(world, rng, OptimizerConfig(full_every=0, full_drift=1.0))
    plan = optimizer.optimize(plan, world.queries, stats, "full", force=True).plan
    assert len(plan.groups) == 1
    assert optimizer.optimize(plan, world.queries, stats, "incremental").mode == "incremental"
    world.ranges = {(u, leaf): (int(u[1:]) / 10, int(u[1:]) / 10 + 0.1) for u, leaf in world.ranges}
    for at in range(2, 12):
        optimizer.observe(stats, world.report(rng, at=float(at)), plan, world.queries)
    proposal = optimizer.optimize(plan, world.queries, stats, "incremental", force=True)
    assert proposal.mode == "full" and "promises" in proposal.reasons[0]
    assert len(proposal.plan.groups) == 10


def test_a_dry_run_shows_the_candidate_and_remembers_nothing():
    rng = random.Random(6)
    world = similar_world(rng, 30, 0.5)
    optimizer, stats, plan = started(world, rng)
    before = optimizer.memory
    for _ in range(5):
        dry = optimizer.dry_run(plan, world.queries, stats, "full")
        assert dry.candidate != plan
    assert optimizer.memory == before
    real = optimizer.optimize(plan, world.queries, stats, "full", force=True)
    assert real.plan == dry.candidate


def test_a_dry_run_foretells_what_hysteresis_will_decide():
    rng = random.Random(6)
    world = similar_world(rng, 30, 0.5)
    optimizer, stats, plan = started(world, rng)
    told = []
    for _ in range(4):
        dry = optimizer.dry_run(plan, world.queries, stats, "full")
        real = optimizer.optimize(plan, world.queries, stats, "full")
        assert dry == real
        told.append(real.applied)
        plan = real.plan
    assert True in told and False in told


def test_an_answer_that_is_not_accepted_was_never_given():
    """The same calls with the same memory give the same answers, however often they were asked in between."""
    rng = random.Random(6)
    world = similar_world(rng, 30, 0.5)
    optimizer, stats, plan = started(world, rng)
    gone = plan.placements[3].uid
    step = optimizer.optimizer.create_delete(plan, [], [gone], optimizer.memory)
    proposal = optimizer.dry_run(plan, world.queries, stats, "full", force=True)
    assert optimizer.optimizer.create_delete(plan, [], [gone], optimizer.memory) == step
    assert optimizer.dry_run(plan, world.queries, stats, "full", force=True) == proposal
    assert hash(step.memory) != hash(optimizer.memory) and step.memory.changes == optimizer.memory.changes + 1


def test_a_query_that_comes_and_goes_unseen_leaves_only_a_count():
    rng = random.Random(6)
    world = similar_world(rng, 3, 0.5)
    optimizer, stats, plan = started(world, rng)
    plan = optimizer.optimize(plan, world.queries, stats, "full", force=True).plan
    new = add_similar(world, rng, "w", 0.5)
    plan = optimizer.create_delete(optimizer.create_delete(plan, [new], []), [], ["w"])
    assert (optimizer.memory.created, optimizer.memory.deleted, optimizer.memory.changes) == (
        frozenset(),
        frozenset(),
        2,
    )
    optimizer.create_delete(plan, [], [plan.placements[0].uid])
    (gone,) = optimizer.memory.deleted
    assert gone.uid == plan.placements[0].uid
    assert gone.attributes == {a for k in plan.placements[0].root.equalities for a in (k.left, k.right)}


def test_without_statistics_nothing_is_changed_unless_forced():
    rng = random.Random(6)
    world = similar_world(rng, 30, 0.5)
    optimizer = Accepting()
    plan = optimizer.create_delete(Plan(), list(world.queries.values()), [])
    for _ in range(5):
        assert not optimizer.optimize(plan, world.queries, StatisticsModel(), "full").applied


def test_observed_outputs_correct_the_estimate():
    rng = random.Random(1)
    world = similar_world(rng, 0, 1.0)
    world.add("q", ["S0", "S1"], [(0, "k0", 1, "k1")], [(0.0, 1.0)] * 2)
    optimizer, stats, plan = started(world, rng)
    name = plan.by_uid["q"].root.name
    before = optimizer.estimate(plan, world.queries, stats).combinations[name]
    assert before == pytest.approx(1000 * 1000 / 500)
    report = world.report(rng, at=2.0)
    for at in range(2, 40):
        optimizer.observe(
            stats, type(report)(float(at), report.streams, outputs={name: 10 * before}), plan, world.queries
        )
    assert optimizer.estimate(plan, world.queries, stats).combinations[name] == pytest.approx(10 * before, rel=0.01)
    assert stats.output(name) == pytest.approx(10 * before)


def test_shares_of_the_queries_add_up_to_the_cost_of_the_plan():
    rng = random.Random(1)
    world = similar_world(rng, 50, 0.5)
    optimizer, stats, plan = started(world, rng)
    plan = optimizer.optimize(plan, world.queries, stats, "full", force=True).plan
    estimate = optimizer.estimate(plan, world.queries, stats)
    assert sum(estimate.shared.values()) == pytest.approx(estimate.cost)
    assert estimate.cost < estimate.unshared
    assert set(estimate.combinations) == {n.name for n in plan.nodes}


def test_a_new_query_is_judged_by_others_with_the_same_selection():
    rng = random.Random(1)
    world = similar_world(rng, 0, 1.0)
    world.add("old", ["S0", "S1"], [(0, "k0", 1, "k1")], [(0.0, 0.1), (0.0, 1.0)])
    optimizer, stats, plan = started(world, rng)
    new = world.add("new", ["S0", "S1"], [(0, "k0", 1, "k1")], [(0.0, 0.1), (0.0, 1.0)])
    plan = optimizer.create_delete(plan, [new], [])
    estimate = optimizer.estimate(plan, world.queries, stats)
    assert estimate.alone["new"] == estimate.alone["old"]
    assert estimate.shared["new"] == pytest.approx(estimate.alone["new"] / 2)


def test_an_id_used_again_for_another_query_is_not_mistaken_for_the_old_one():
    rng = random.Random(1)
    world = similar_world(rng, 0, 1.0)
    stats, optimizer = StatisticsModel(), Accepting()
    for streams in (["S0", "S1"], ["S2", "S3"]):
        rq = world.add("again", streams, [(0, "k0", 1, "k1")], [(0.0, 1.0)] * 2)
        plan = optimizer.create_delete(Plan(), [rq], [])
        assert optimizer.optimize(plan, {rq.uid: rq}, stats, "full", force=True).cost_before > 0
