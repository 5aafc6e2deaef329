"""Groups per query against groups per join: what is lost when a query is in one group with all its joins?

    python -m experiments.groups_per_join [--worlds 200] [--queries 4]

The paper groups queries per join, so a query may share V ⋈ W with some queries and the join above it with others. Here
a query is in one group (docs/decisions/0022-groups-per-query.md). Both are searched exhaustively, over all orders and
all groupings, on small workloads, and priced by the cost model. Groups per join are priced favourably: handing tuples
from the groups of one join to other groups of the next costs nothing but the usual exchange, although they would have
to be tagged again and the same tuple may come from several groups. So what is printed is at most what can be lost.

Workloads: `random` (any join graph of 2 and 3 streams), `similar` (2- and 3-way queries around one pattern, ranges at
random), and `diagonal`, made to lose.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from statistics import mean, quantiles

from experiments.optimizer_workloads import World, add_similar, small_world
from optimizer.cost.model import CostModel, Member, Shared, Sink
from tests.optimizer.exhaustive import all_trees, optimum
from tests.optimizer.models import search_space

MOST = 20_000
"""Combinations of groupings that are looked at, per choice of orders."""

Group = frozenset[str]


def per_join(model: CostModel, singles: Mapping[str, Member]) -> float:
    """The cheapest plan when every join groups its queries by itself."""
    uids = sorted(singles)

    @cache
    def at_join(number: int, group: Group, ending: Group) -> float:
        """Without its indexes, which other joins with the same group share."""
        one = Shared(model, [(singles[u], number) for u in sorted(group)])
        cost = one.intersection(number) + sum(one.exchange(e) for e in model.shapes.joins[number].exchanges)
        folds: dict[str, list[str]] = {}
        for u in sorted(ending):
            folds.setdefault(singles[u].shape.fold, []).append(u)
        for fold, members in folds.items():
            cost += Shared(model, [(singles[u], number) for u in members]).made(Sink(number, fold))
        return cost

    @cache
    def index(number: int, join: int, group: Group) -> float:
        return Shared(model, [(singles[u], join) for u in sorted(group)]).index(number)

    best = float("inf")
    for roots in product(*(all_trees(model, singles[u].shape) for u in uids)):
        root_of = dict(zip(uids, roots, strict=True))
        users: dict[int, list[str]] = {}
        for u, root in root_of.items():
            for number in model.shapes.subtree(root):
                users.setdefault(number, []).append(u)
        choices = [[(n, groups) for groups in partitions(tuple(who))] for n, who in users.items()]
        size = 1
        for c in choices:
            size *= len(c)
        if size > MOST:
            continue  # the bound below still holds for this choice of orders
        for chosen in product(*choices):
            cost = 0.0
            indexes: dict[tuple[int, Group], int] = {}
            for number, groups in chosen:
                for group in groups:
                    cost += at_join(number, group, frozenset(u for u in group if root_of[u] == number))
                    for i in model.shapes.joins[number].indexes:
                        indexes[i, group] = number
            if cost < best:
                cost += sum(index(i, join, group) for (i, group), join in indexes.items())
                best = min(best, cost)
    return best


def partitions(items: tuple[str, ...]) -> Iterator[tuple[Group, ...]]:
    if not items:
        yield ()
        return
    first, rest = items[0], items[1:]
    for smaller in partitions(rest):
        yield (frozenset({first}), *smaller)
        for i, group in enumerate(smaller):
            yield (*smaller[:i], group | {first}, *smaller[i + 1 :])


def loss(world: World, rng: random.Random) -> float:
    """How much more the best plan with groups per query costs, as a share of the best one with groups per join."""
    model, singles = search_space(world.queries, world.statistics(rng))
    ours = optimum(model, singles)
    return ours / min(per_join(model, singles), ours) - 1


def similar(rng: random.Random, queries: int) -> World:
    world = World()
    for i in range(6):
        world.rates[f"S{i}"] = 1000.0
        for k in ("k0", "k1", "k2"):
            world.keys[f"S{i}", k] = rng.choice([50.0, 500.0])
    while len(world.queries) < queries:
        uid = f"u{len(world.queries)}"
        made = add_similar(world, rng, uid, 0.7, 6)
        if len(made.query.sources) > 3:
            world.remove(uid)
    return world


def diagonal(rng: random.Random, queries: int) -> World:
    """Query i wants part i of S0 and part i of S2, and everything of S1, which is the fastest stream: the lower join
    wants one group, because it indexes S1, and the upper one a group per query, because no combination is wanted twice.
    """
    world = World()
    world.rates = {"S0": 500.0, "S1": rng.choice([2000.0, 10_000.0, 50_000.0]), "S2": 500.0}
    keys = [rng.choice([20.0, 100.0, 500.0]) for _ in range(2)]
    for i in range(3):
        world.keys |= {(f"S{i}", "k0"): keys[0], (f"S{i}", "k1"): keys[1]}
    for n in range(queries):
        part = (n / queries, (n + 1) / queries)
        edges = [(0, "k0", 1, "k0"), (1, "k1", 2, "k1")]
        world.add(f"u{n}", ["S0", "S1", "S2"], edges, [part, (0.0, 1.0), part])
    return world


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=200)
    parser.add_argument("--queries", type=int, default=4)
    args = parser.parse_args(arguments)
    makers = {"random": lambda rng, n: small_world(rng, n, 3), "similar": similar, "diagonal": diagonal}
    print("| workload | worlds | nothing lost | more than 10 % | mean | 90 % of worlds lose at most | worst |")
    print("|---|---|---|---|---|---|---|")
    for name, make in makers.items():
        found = []
        for seed in range(args.worlds):
            rng = random.Random(seed)
            found.append(loss(make(rng, args.queries), rng))
        none, much = (sum(x < 1e-9 for x in found) / len(found), sum(x > 0.1 for x in found) / len(found))
        figures = (none, much, mean(found), quantiles(found, n=10)[-1], max(found))
        print(f"| {name} | {len(found)} | {' | '.join(f'{x:.1%}' for x in figures)} |", flush=True)


if __name__ == "__main__":
    main()
