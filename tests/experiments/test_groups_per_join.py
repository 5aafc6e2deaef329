"""Groups per join are never dearer than groups per query, and cheaper where joins want different groups."""

from __future__ import annotations

import random

from experiments.groups_per_join import diagonal, loss, partitions, per_join
from experiments.optimizer_workloads import World, small_world
from tests.optimizer.exhaustive import optimum
from tests.optimizer.models import search_space


def test_partitions() -> None:
    assert [len(list(partitions(tuple("abcd"[:n])))) for n in range(5)] == [1, 1, 2, 5, 15]


def test_one_query_has_the_same_cost_both_ways() -> None:
    for seed in range(10):
        rng = random.Random(seed)
        world = small_world(rng, max_queries=1, max_streams=3)
        model, singles = search_space(world.queries, world.statistics(rng))
        assert abs(per_join(model, singles) / optimum(model, singles) - 1) < 1e-9


def test_queries_with_one_join_lose_nothing() -> None:
    for seed in range(10):
        rng = random.Random(seed)
        world: World = small_world(rng, max_queries=4, max_streams=2)
        assert loss(world, rng) < 1e-9


def test_queries_whose_joins_want_different_groups_lose() -> None:
    rng = random.Random(0)
    assert max(loss(diagonal(rng, 3), rng) for _ in range(5)) > 0.1
