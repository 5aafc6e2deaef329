"""A change in parts: independent, legal one without the other, and all together the whole change."""

from __future__ import annotations

import random

import pytest

from experiments.optimizer_workloads import similar_world
from optimizer.cost.cardinality import Cardinalities
from optimizer.model.invariants import validate_plan
from optimizer.model.parts import Part, combined, fitted, parts_of
from optimizer.model.pins import NO_PINS, Pins
from optimizer.model.plan import Plan
from optimizer.model.trees import regroup
from optimizer.search.assemble import clusters_of
from optimizer.search.eager import create_delete
from optimizer.search.forced import force_groups
from tests.optimizer.models import Accepting

SEEDS = (0, 2, 3, 4, 5, 6)
"""In which eager sharing leaves something to improve."""


def changed(seed: int) -> tuple[Plan, Plan, dict, Accepting, object]:
    """A plan as eager sharing made it, and the one that a full search finds."""
    rng = random.Random(seed)
    world = similar_world(rng, 24, 0.3, streams=6)
    optimizer, stats = Accepting(), world.statistics(rng)
    plan = optimizer.create_delete(Plan(), list(world.queries.values()), [])
    candidate = optimizer.dry_run(plan, world.queries, stats, "full", force=True).candidate
    return plan, candidate, dict(world.queries), optimizer, stats


def where(plan: Plan) -> dict[str, tuple[int, object]]:
    return {p.uid: (p.group, p.root) for p in plan.placements}


@pytest.mark.parametrize("seed", SEEDS)
def test_all_parts_are_the_whole_change_and_any_of_them_is_legal(seed: int) -> None:
    plan, candidate, queries, _, _ = changed(seed)
    parts = parts_of(plan, candidate)
    assert parts and where(combined(plan, parts)) == where(candidate)
    rng = random.Random(seed)
    for _ in range(10):
        some = [p.only(rng.sample(sorted(p.uids), rng.randint(1, len(p.uids)))) for p in parts if rng.random() < 0.7]
        made = combined(plan, some)
        validate_plan(made, queries)
        moved = {m.uid: (m.group, m.root) for p in some for m in p.moves}
        assert where(made) == where(plan) | moved
        kept = {p.uid: p.slot for p in plan.placements if p.group == where(made)[p.uid][0]}
        assert all(made.by_uid[uid].slot == slot for uid, slot in kept.items()), "who stays keeps its bit"


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_gains_of_parts_add_up(seed: int) -> None:
    plan, candidate, queries, optimizer, stats = changed(seed)
    inner = optimizer.optimizer
    model, singles = inner.model(stats), inner._singles(plan, queries, stats)
    assert isinstance(model.cardinalities, Cardinalities)

    def cost(p: Plan) -> float:
        return sum(c.cost for c in clusters_of(model, p, singles).values())

    gains = [cost(plan) - cost(combined(plan, [part])) for part in parts_of(plan, candidate)]
    assert sum(gains) == pytest.approx(cost(plan) - cost(candidate))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_part_fits_a_plan_that_has_moved_on(seed: int) -> None:
    plan, candidate, queries, _, _ = changed(seed)
    rng = random.Random(seed)
    gone = rng.sample(sorted(queries), 5)
    other = similar_world(random.Random(seed + 100), 3, 0.3, streams=6)
    new = [rq for rq in other.queries.values() if rq.uid not in queries]
    now = create_delete(plan, new, gone)
    running = {uid: rq for uid, rq in queries.items() if uid not in gone} | {rq.uid: rq for rq in new}
    fitting = [p for part in parts_of(plan, candidate) if (p := fitted(part, now))]
    made = combined(now, fitting)
    validate_plan(made, running)
    for part in fitting:
        assert not part.uids & set(gone)
        assert all(made.by_uid[m.uid].group == m.group for m in part.moves)
    for part in parts_of(plan, candidate):
        assert fitted(part, combined(plan, [part])) is None, "it has been made already"


def test_a_group_that_was_opened_meanwhile_gets_another_number() -> None:
    plan, _, queries, _, _ = changed(1)
    a, b = sorted(queries)[:2]
    free = max(plan.groups) + 1
    alone = parts_of(plan, combined(plan, [moved(plan, a, free)]))
    now = combined(plan, [moved(plan, b, free)])
    (part,) = [fitted(p, now) for p in alone]
    assert part is not None and part.opened == {min(set(range(free + 2)) - now.groups.keys())}
    assert combined(now, [part]).by_uid[a].group not in now.groups


def moved(plan: Plan, uid: str, group: int) -> Part:
    (part,) = parts_of(plan, force_groups(plan, {}, {uid: group}))
    return part


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_what_is_pinned_stays_and_the_rest_of_the_change_is_made(seed: int) -> None:
    plan, candidate, queries, _, _ = changed(seed)
    rng = random.Random(seed)
    pins = NO_PINS.with_groups(rng.sample(sorted(queries), 6))
    for uid in rng.sample(sorted(queries), 6):
        pins = pins.with_order(uid)
    made = pins.respected(plan, candidate)
    validate_plan(made, queries)
    for uid, old in plan.by_uid.items():
        new = made.by_uid[uid]
        if uid in pins.groups:
            assert new.group == old.group
        if uid in pins.orders:
            assert new.root == regroup(old.root, new.group)
        if uid not in pins.orders and uid not in pins.groups:
            assert (new.group, new.root) == where(candidate)[uid]
    assert all(pins.allow(part) for part in parts_of(plan, made))
    assert Pins().respected(plan, candidate) is candidate


@pytest.mark.parametrize("seed", SEEDS[:3])
@pytest.mark.parametrize("force", [True, False])
def test_the_optimizer_works_around_pins(seed: int, force: bool) -> None:
    plan, _, queries, optimizer, stats = changed(seed)
    some = random.Random(seed).sample(sorted(queries), 8)
    pins = Pins(frozenset(some[:4]), frozenset(some[2:]))
    memory, now = optimizer.memory, plan
    for _ in range(4):
        done = optimizer.optimizer.optimize(now, queries, stats, memory, "full", force, pins=pins)
        assert done.cost_after <= done.cost_before * (1 + 1e-9)
        now, memory = done.plan, done.memory
    assert now != plan, "there was something left to improve"
    for uid in pins.groups:
        assert now.by_uid[uid].group == plan.by_uid[uid].group
    for uid in pins.orders:
        assert now.by_uid[uid].root == regroup(plan.by_uid[uid].root, now.by_uid[uid].group)
