"""Heavy queries get groups of their own: the others keep what they share, and a load that swings does not swing the
plan."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.optimizer_workloads import World, add_similar, similar_world
from optimizer.model.changelog import apply, diff
from optimizer.model.invariants import validate_plan
from optimizer.model.plan import Plan
from optimizer.optimize import OptimizerConfig
from optimizer.policy.apart import ApartConfig, Watched, kept_apart, watch
from optimizer.policy.hysteresis import HysteresisConfig
from optimizer.search.eager import create_delete, without
from optimizer.search.forced import force_groups
from optimizer.statistics.model import StatisticsModel
from tests.builders import q1, q2, running_queries
from tests.optimizer.models import Accepting

QUICK = ApartConfig(after=3, patience=2, max_doublings=3, most=2)
AT_ONCE = HysteresisConfig(min_gain=0.0, slow_epoch_s=0.0, confirmations=1, max_doublings=0)


# -- who is kept apart ------------------------------------------------------------------------------------


def apart(watched, config=QUICK):
    return sorted(kept_apart(config, watched))


def test_a_query_counts_as_heavy_when_it_is_behind_for_some_epochs():
    assert apart(watch(QUICK, (), {"a": 2, "b": 3}, "ab")) == ["b"]


def test_it_may_share_again_only_after_it_has_kept_up_for_some_time():
    watched = watch(QUICK, (), {"a": 3}, "a")
    watched = watch(QUICK, watched, {}, "a")
    assert apart(watched) == ["a"]
    watched = watch(QUICK, watched, {"a": 1}, "a")  # not heavy, but it does not keep up either
    watched = watch(QUICK, watched, {}, "a")
    assert apart(watched) == ["a"]
    assert apart(watch(QUICK, watched, {}, "a")) == []


def test_a_query_that_becomes_heavy_again_must_keep_up_twice_as_long():
    (watched,) = watch(QUICK, (Watched("a", calm=2),), {"a": 3}, "a")
    assert watched == Watched("a", calm=0, doublings=1)
    for _ in range(3):
        (watched,) = watch(QUICK, (watched,), {}, "a")
        assert watched.apart(QUICK)
    (watched,) = watch(QUICK, (watched,), {}, "a")
    assert not watched.apart(QUICK)


def test_only_so_many_are_kept_apart_and_who_is_keeps_the_place():
    watched = watch(QUICK, (), {"a": 4, "b": 9, "c": 5}, "abc")
    assert apart(watched) == ["b", "c"]
    watched = watch(QUICK, watched, {"a": 99, "b": 9, "c": 5}, "abc")
    assert apart(watched) == ["b", "c"]
    assert apart(watch(QUICK, watched, {"a": 99, "c": 5}, "ac")) == ["a", "c"]


def test_queries_that_are_gone_or_have_kept_up_for_long_are_forgotten():
    assert watch(QUICK, (Watched("a"), Watched("b")), {"b": 9}, "c") == ()
    watched = (Watched("a"),)
    for _ in range(QUICK.longest):
        watched = watch(QUICK, watched, {}, "a")
    assert watched == ()


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, QUICK.longest)), min_size=1, max_size=30))
def test_a_load_that_swings_makes_a_query_leave_ever_more_rarely(phases):
    """Heavy for some optimizations, then calm for some, and so on: between two that forget it, it leaves its group
    only as often as there are doublings."""
    watched, before, left = (), False, 0
    for heavy, calm in phases:
        for behind in [{"a": 5}] * heavy + [{}] * calm:
            watched = watch(QUICK, watched, behind, "a")
            now = bool(apart(watched))
            left = left + (now and not before) if watched else 0
            before = now
            assert left <= QUICK.max_doublings + 1


def test_a_load_that_alternates_from_one_optimization_to_the_next_changes_nothing():
    watched = watch(QUICK, (), {"a": 5}, "a")
    for step in range(100):
        watched = watch(QUICK, watched, {"a": 5} if step % 2 else {}, "a")
        assert apart(watched) == ["a"]


# -- the plan ---------------------------------------------------------------------------------------------


def shared_world(n=6) -> tuple[World, random.Random]:
    """Queries that all want the same tuples, so that sharing pays."""
    rng = random.Random(3)
    world = similar_world(rng, 0, 1.0)
    for i in range(n):
        world.add(f"u{i}", ["S0", "S1"], [(0, "k0", 1, "k1")], [(0.0, 0.4)] * 2)
    return world, rng


def started(world, rng, **config):
    optimizer = Accepting(OptimizerConfig(**{"apart": QUICK, "hysteresis": AT_ONCE} | config))
    stats = world.statistics(rng)
    plan = optimizer.create_delete(Plan(), list(world.queries.values()), [])
    return optimizer, stats, optimizer.optimize(plan, world.queries, stats, "full", force=True).plan


def placed(plan, but=()):
    return [p for p in plan.placements if p.uid not in but]


@pytest.mark.parametrize("mode", ["full", "incremental"])
@pytest.mark.parametrize("force", [True, False])
def test_a_heavy_query_leaves_and_the_others_stay_exactly_as_they_are(mode, force):
    world, rng = shared_world()
    optimizer, stats, plan = started(world, rng)
    assert len(plan.groups) == 1
    proposal = optimizer.optimize(plan, world.queries, stats, mode, force, behind={"u3": 12, "u4": 1})
    validate_plan(proposal.plan, world.queries)
    assert proposal.applied and proposal.plan.version == plan.version + 1
    assert placed(proposal.plan, {"u3"}) == placed(plan, {"u3"})
    assert [p.uid for p in proposal.plan.groups[proposal.plan.by_uid["u3"].group]] == ["u3"]
    assert proposal.reasons[0] == "u3 gets a group of its own: it is 12 epochs behind and 5 queries share its group"
    assert "costing" in proposal.reasons[1] and proposal.gain < 0
    assert apply(plan, diff(plan, proposal.plan)) == proposal.plan


@pytest.mark.parametrize("mode", ["full", "incremental"])
def test_while_it_is_heavy_nothing_brings_it_company(mode):
    world, rng = shared_world()
    optimizer, stats, plan = started(world, rng)
    plan = optimizer.optimize(plan, world.queries, stats, behind={"u3": 12}).plan
    for step in range(8):
        new = world.add(f"w{step}", ["S0", "S1"], [(0, "k0", 1, "k1")], [(0.0, 0.4)] * 2)
        plan = optimizer.create_delete(plan, [new], [], {"u3": 12 + step})
        assert len(plan.groups[plan.by_uid["u3"].group]) == 1, "not at creation"
        optimizer.observe(stats, world.report(rng, at=2.0 + step), plan, world.queries)
        plan = optimizer.optimize(plan, world.queries, stats, mode, force=True, behind={"u3": 12 + step}).plan
        validate_plan(plan, world.queries)
        assert len(plan.groups[plan.by_uid["u3"].group]) == 1, "and not later"


def test_where_nobody_shares_its_group_nothing_changes():
    world, rng = shared_world(1)
    optimizer, stats, plan = started(world, rng)
    proposal = optimizer.optimize(plan, world.queries, stats, "full", force=True, behind={"u0": 12})
    assert proposal.plan is plan and not proposal.applied


def test_queries_that_are_all_heavy_stay_together():
    """There is nobody to protect, and one by one they would be more work."""
    world, rng = shared_world(2)
    optimizer, stats, plan = started(world, rng)
    for mode in ("incremental", "full"):
        proposal = optimizer.optimize(plan, world.queries, stats, mode, force=True, behind={"u0": 12, "u1": 4})
        assert proposal.plan is plan and len(plan.groups) == 1


def test_it_comes_back_when_it_has_kept_up_and_sharing_pays():
    world, rng = shared_world()
    optimizer, stats, plan = started(world, rng)
    apart = optimizer.optimize(plan, world.queries, stats, behind={"u3": 12}).plan
    first = optimizer.optimize(apart, world.queries, stats)
    assert first.plan is apart
    second = optimizer.optimize(apart, world.queries, stats)
    assert any(r.startswith("u3 may share a group again") for r in second.reasons)
    assert second.applied and len(second.plan.groups) == 1
    assert placed(second.plan, {"u3"}) == placed(plan, {"u3"})


def test_a_swinging_load_does_not_swing_the_plan():
    world, rng = shared_world()
    optimizer, stats, plan = started(world, rng)
    versions = set()
    for step in range(40):
        plan = optimizer.optimize(plan, world.queries, stats, behind={"u3": 9} if step % 2 == 0 else {}).plan
        versions.add(plan.version)
    assert len(versions) == 1


def test_others_are_optimized_as_if_it_were_not_there():
    rng = random.Random(7)
    world = similar_world(rng, 25, 0.5, streams=5)
    optimizer, stats, plan = started(world, rng)
    heavy = sorted(world.queries)[11]
    behind = {heavy: 30}
    for i in range(5):
        plan = optimizer.create_delete(plan, [add_similar(world, rng, f"v{i}", 0.5, streams=5)], [], behind)
    optimizer.observe(stats, world.report(rng, at=2.0), plan, world.queries)
    plan = optimizer.optimize(plan, world.queries, stats, behind=behind).plan
    found = optimizer.optimize(plan, world.queries, stats, "full", force=True, behind=behind).plan
    rest = {uid: rq for uid, rq in world.queries.items() if uid != heavy}
    alone = Accepting().optimize(without(plan, [heavy]), rest, stats, "full", force=True).plan

    def groups(plan):
        members = [[p for p in group if p.uid != heavy] for group in plan.groups.values()]
        return sorted(tuple((p.uid, str(p.root)) for p in group) for group in members if group)

    assert groups(found) == groups(alone)


def test_the_group_of_a_forced_query_is_taken_back():
    world, rng = shared_world()
    optimizer, stats, plan = started(world, rng)
    plan = optimizer.optimize(plan, world.queries, stats, behind={"u3": 12}).plan
    forced = force_groups(plan, world.queries, {"u3": plan.by_uid["u0"].group})
    proposal = optimizer.optimize(forced, world.queries, stats)
    assert "it was behind not long ago" in proposal.reasons[0]
    assert placed(proposal.plan) == placed(plan)


def test_a_dry_run_says_the_same_and_remembers_nothing():
    world, rng = shared_world()
    optimizer, stats, plan = started(world, rng)
    before = optimizer.memory
    dry = optimizer.dry_run(plan, world.queries, stats, behind={"u3": 12})
    assert optimizer.memory == before
    assert optimizer.optimize(plan, world.queries, stats, behind={"u3": 12}) == dry


@pytest.mark.parametrize("seed", range(5))
def test_a_life_with_heavy_queries(seed):
    """Queries come, go and become heavy at random: plans stay legal, those kept apart share only with each other."""
    rng = random.Random(seed)
    world = similar_world(rng, 12, 0.5, streams=5)
    optimizer, stats, plan = started(world, rng)
    behind: dict[str, int] = {}
    moved = 0
    for step in range(25):
        gone = rng.sample(sorted(world.queries), rng.randint(0, 2))
        new = [add_similar(world, rng, f"v{step}-{i}", 0.5, streams=5) for i in range(rng.randint(0, 3))]
        for uid in gone:
            world.remove(uid)
        plan = optimizer.create_delete(plan, new, gone, behind)
        validate_plan(plan, world.queries)
        behind = {u: e + 5 for u, e in behind.items() if u in world.queries and rng.random() < 0.7}
        behind |= {u: rng.randint(1, 9) for u in rng.sample(sorted(world.queries), 1) if rng.random() < 0.5}
        optimizer.observe(stats, world.report(rng, at=2.0 + step), plan, world.queries)
        mode = rng.choice(["full", "incremental"])
        proposal = optimizer.optimize(plan, world.queries, stats, mode, rng.random() < 0.5, behind)
        validate_plan(proposal.plan, world.queries)
        assert apply(plan, diff(plan, proposal.plan)) == proposal.plan
        moved += proposal.applied and "group of its own" in proposal.reasons[0]
        plan = proposal.plan
        heavy = kept_apart(QUICK, optimizer.memory.apart)
        assert len(heavy) <= QUICK.most
        for members in plan.groups.values():
            assert len({p.uid in heavy for p in members}) == 1
    assert moved


@given(running_queries(max_queries=8), st.data())
@settings(max_examples=40, deadline=None)
def test_every_plan_is_legal(queries, data):
    running = {q.uid: q for q in queries}
    behind = data.draw(st.dictionaries(st.sampled_from(sorted(running)), st.integers(1, 9)))
    optimizer = Accepting(OptimizerConfig(apart=QUICK))
    plan = optimizer.create_delete(Plan(), queries, [])
    proposal = optimizer.optimize(plan, running, StatisticsModel(), "full", force=True, behind=behind)
    validate_plan(proposal.plan, running)
    heavy = kept_apart(QUICK, optimizer.memory.apart)
    assert heavy == set(sorted((u for u, e in behind.items() if e >= 3), key=lambda u: (-behind[u], u))[:2])
    assert all(len({p.uid in heavy for p in members}) == 1 for members in proposal.plan.groups.values())


# -- at creation ------------------------------------------------------------------------------------------


def test_a_new_query_keeps_away_from_the_group_of_a_heavy_one():
    plan = create_delete(Plan(), [q1("heavy")], ())
    plan = create_delete(plan, [q1("one"), q2("two")], (), {"heavy"})
    assert [plan.by_uid[u].group for u in ("heavy", "one", "two")] == [0, 1, 1]
    assert plan.nodes[plan.by_uid["one"].root] == ("one", "two"), "new ones share with each other"
    assert create_delete(plan, [q1("three")], (), {"heavy"}).by_uid["three"].group == 1


def test_of_two_groups_it_takes_the_one_without():
    plan = create_delete(Plan(), [q1("a"), q1("b"), q1("c")], ())
    plan = force_groups(plan, {"a": q1("a"), "b": q1("b"), "c": q1("c")}, {"a": 1})
    assert create_delete(plan, [q1("d")], ()).by_uid["d"].group == 0, "more share there"
    assert create_delete(plan, [q1("d")], (), {"b"}).by_uid["d"].group == 1


def test_a_heavy_query_that_goes_keeps_nobody_away():
    plan = create_delete(Plan(), [q1("heavy"), q1("other")], ())
    assert create_delete(plan, [q1("new")], ["heavy"], {"heavy"}).by_uid["new"].group == 0
