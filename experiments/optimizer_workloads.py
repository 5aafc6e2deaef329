"""Random workloads with statistics, for tests and benchmarks of the optimizer: queries, and the bits their selections
give.

A world has streams S0..Sn with join columns k0..k2 and one selection column `x`, uniform in [0, 1). A selection is a
range of x; the sample of query sets is what these ranges give on sampled tuples, so overlaps are those of real
selections.

Similarity follows equation 3 of the paper: a query keeps each source of the pattern query with its join attribute
with the probability that makes the expected similarity the wanted one, and draws the others at random.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from optimizer.model.expressions import And, ColumnRef, Compare, Literal
from optimizer.model.plan import Leaf, RunningQuery
from optimizer.model.query import EquiPredicate, Output, Query, Source
from optimizer.model.types import ColumnType
from optimizer.model.windows import PeriodicWindow
from optimizer.statistics.model import EpochObservation, StatisticsModel, StreamObservation
from optimizer.statistics.samples import QuerySetSample

KEYS = ("k0", "k1", "k2")


@dataclass
class World:
    queries: dict[str, RunningQuery] = field(default_factory=dict)
    ranges: dict[tuple[str, Leaf], tuple[float, float]] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    keys: dict[tuple[str, str], float] = field(default_factory=dict)

    def statistics(self, rng: random.Random, rows: int = 512) -> StatisticsModel:
        model = StatisticsModel()
        model.observe(self.report(rng, rows))
        return model

    def report(self, rng: random.Random, rows: int = 512, at: float = 1.0) -> EpochObservation:
        by_leaf: dict[Leaf, list[str]] = {}
        for uid, leaf in sorted(self.ranges, key=lambda r: (r[1], r[0])):
            by_leaf.setdefault(leaf, []).append(uid)
        samples = {}
        for leaf, uids in by_leaf.items():
            x = np.array([rng.random() for _ in range(rows)])[:, None]
            low = np.array([self.ranges[u, leaf][0] for u in uids])
            high = np.array([self.ranges[u, leaf][1] for u in uids])
            samples[leaf] = QuerySetSample(tuple(uids), (x >= low) & (x < high))
        return EpochObservation(
            at=at,
            streams={s: StreamObservation(int(r), 1.0) for s, r in self.rates.items()},
            samples=samples,
            keys={(Leaf(s), (k,)): n for (s, k), n in self.keys.items()},
        )

    def remove(self, uid: str) -> None:
        del self.queries[uid]
        self.ranges = {k: v for k, v in self.ranges.items() if k[0] != uid}

    def add(
        self,
        uid: str,
        streams: list[str],
        edges: list[tuple[int, str, int, str]],
        ranges: list[tuple[float, float]],
        window_ms: int = 1000,
    ) -> RunningQuery:
        aliases = [f"a{i}" for i in range(len(streams))]

        def column(i: int, name: str) -> ColumnRef:
            kind = ColumnType.DOUBLE if name == "x" else ColumnType.BIGINT
            return ColumnRef(aliases[i], name, kind)

        selections = []
        for i, (low, high) in enumerate(ranges):
            if (low, high) != (0.0, 1.0):
                x = column(i, "x")
                bounds = (Compare(">=", x, _double(low)), Compare("<", x, _double(high)))
                selections.append((aliases[i], And(bounds)))
        query = Query(
            sql="",
            sources=tuple(Source(a, s) for a, s in zip(aliases, streams, strict=True)),
            window=PeriodicWindow(window_ms, window_ms),
            selections=tuple(selections),
            equi=tuple(EquiPredicate(column(i, x), column(j, y), ColumnType.BIGINT) for i, x, j, y in edges),
            residual=(),
            outputs=(Output("k", column(0, "k0")),),
        )
        rq = RunningQuery(uid, uid, query, None)
        self.queries[uid] = rq
        for i, r in enumerate(ranges):
            self.ranges[uid, rq.leaf_of(aliases[i])] = r
        return rq


def _double(value: float) -> Literal:
    return Literal(value, ColumnType.DOUBLE)


def random_range(rng: random.Random) -> tuple[float, float]:
    """Every fifth query takes all; the others a range, with bounds on a grid so that equal selections happen."""
    if rng.random() < 0.2:
        return (0.0, 1.0)
    width = rng.choice([0.1, 0.2, 0.3, 0.5])
    low = rng.randrange(0, int((1 - width) * 20) + 1) / 20
    return (low, low + width)


def small_world(rng: random.Random, max_queries: int = 6, max_streams: int = 4) -> World:
    """Any join graph: chains, stars, cycles, composite keys, self-joins."""
    world = World()
    streams = [f"S{i}" for i in range(rng.randint(2, max_streams))]
    for s in streams:
        world.rates[s] = rng.choice([200.0, 1000.0, 5000.0])
        for k in KEYS:
            world.keys[s, k] = rng.choice([10.0, 100.0, 1000.0])
    for n in range(rng.randint(1, max_queries)):
        size = rng.randint(2, max_streams)
        used = [rng.choice(streams) if rng.random() < 0.1 else "" for _ in range(size)]
        pool = rng.sample(streams, len(streams))
        used = [u or (pool[i] if i < len(pool) else rng.choice(streams)) for i, u in enumerate(used)]
        edges = []
        for j in range(1, size):
            edges.append((rng.randrange(j), rng.choice(KEYS[:2]), j, rng.choice(KEYS[:2])))
        for _ in range(rng.choice([0, 0, 0, 1])):
            i, j = rng.sample(range(size), 2)
            edges.append((i, rng.choice(KEYS), j, rng.choice(KEYS)))
        world.add(f"u{n}", used, edges, [random_range(rng) for _ in used], rng.choice([1000, 1000, 2000]))
    return world


def similar_world(rng: random.Random, queries: int, similarity: float, streams: int = 8) -> World:
    """2- to 5-way queries around one pattern query S0 - S1 - ... - S4, as in the paper's experiments."""
    world = World()
    for i in range(streams):
        world.rates[f"S{i}"] = 1000.0
        for k in KEYS:
            world.keys[f"S{i}", k] = 500.0
    for n in range(queries):
        add_similar(world, rng, f"u{n:05}", similarity, streams)
    return world


def add_similar(world: World, rng: random.Random, uid: str, similarity: float, streams: int = 8) -> RunningQuery:
    size = rng.randint(2, 5)
    keep = similarity**0.5  # sources and join attributes are kept independently, their product is the similarity
    used: list[str] = []
    for i in range(size):
        pattern = f"S{i}"
        if rng.random() < keep and pattern not in used:
            used.append(pattern)
        else:
            used.append(rng.choice([s for s in (f"S{j}" for j in range(streams)) if s not in used]))
    edges = []
    for j in range(1, size):
        left, right = (f"k{(j - 1 + side) % 2}" if rng.random() < keep else rng.choice(KEYS) for side in (0, 1))
        edges.append((j - 1, left, j, right))
    return world.add(uid, used, edges, [random_range(rng) for _ in used])
