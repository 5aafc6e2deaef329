"""How good the plans are: against exhaustive search when small, against no sharing when large."""

from __future__ import annotations

import random
from statistics import mean

import pytest

from experiments.optimizer_workloads import similar_world, small_world
from optimizer.search import full
from optimizer.search.clusters import members_of
from optimizer.search.refine import Alone
from tests.optimizer.exhaustive import optimum
from tests.optimizer.models import search_space


def ratios(worlds: range) -> list[float]:
    found = []
    for seed in worlds:
        rng = random.Random(seed)
        world = small_world(rng, max_queries=6, max_streams=4)
        model, singles = search_space(world.queries, world.statistics(rng))
        clusters = full.optimize_fully(model, singles, Alone(model, singles))
        assert sorted(u for c in clusters for u in c.uids) == sorted(singles)
        # the price of a cluster is the price of its trees, and its members are its queries: nothing is made up
        for c in clusters:
            assert c.cost == pytest.approx(model.cost(c.trees))
            assert [m for m, _ in c.trees] == members_of(singles, c.uids)
        found.append(sum(c.cost for c in clusters) / optimum(model, singles))
    return found


def check(found: list[float]) -> None:
    assert min(found) > 1 - 1e-9
    assert mean(found) <= 1.10
    assert max(found) <= 1.5


def test_close_to_the_optimum():
    check(ratios(range(60)))


@pytest.mark.long
def test_close_to_the_optimum_on_300_workloads():
    check(ratios(range(300)))


def test_the_steps_for_large_plans_are_close_to_the_optimum_too(monkeypatch):
    """Small plans get an exhaustive finish; without it the same bounds hold."""
    monkeypatch.setattr(full, "SMALL", 0)
    check(ratios(range(60)))


@pytest.mark.parametrize(("similarity", "at_most"), [(0.0, 1.0), (0.5, 0.6), (1.0, 0.6)])
def test_200_queries_against_no_sharing(similarity, at_most):
    rng = random.Random(7)
    world = similar_world(rng, 200, similarity)
    model, singles = search_space(world.queries, world.statistics(rng))
    alone = Alone(model, singles)
    clusters = full.optimize_fully(model, singles, alone)
    unshared = sum(alone(u).cost for u in singles)
    assert sum(c.cost for c in clusters) <= at_most * unshared
    for c in clusters:
        assert c.cost <= sum(alone(u).cost for u in c.uids) * (1 + 1e-9)


def test_queries_that_share_no_data_are_not_grouped():
    """Disjoint selections on every stream, many partners per tuple: sharing would only expand useless combinations."""
    rng = random.Random(1)
    world = similar_world(rng, 0, 1.0)
    world.keys = dict.fromkeys(world.keys, 5.0)
    for n in range(10):
        r = (n / 10, (n + 1) / 10)
        world.add(f"u{n}", ["S0", "S1"], [(0, "k0", 1, "k1")], [r, r])
    model, singles = search_space(world.queries, world.statistics(rng))
    clusters = full.optimize_fully(model, singles, Alone(model, singles))
    assert [c.uids for c in clusters] == [(u,) for u in sorted(singles)]


def test_equal_queries_always_share():
    rng = random.Random(1)
    world = similar_world(rng, 0, 1.0)
    for n in range(20):
        world.add(f"u{n:02}", ["S0", "S1", "S2"], [(0, "k0", 1, "k1"), (1, "k0", 2, "k1")], [(0.1, 0.3)] * 3)
    model, singles = search_space(world.queries, world.statistics(rng))
    (only,) = full.optimize_fully(model, singles, Alone(model, singles))
    assert len(only.uids) == 20
