"""What the optimizer learns of joins: the estimate of a running join comes close to what is counted, whatever its keys
have to do with each other, and what was learned serves other orders."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from optimizer.model.plan import JoinNode, Leaf
from runtime.api import ForceOrder
from runtime.engine import loop
from tests.runtime.rig import Rig

EPOCHS, TUPLES, KEYS = 14, 300, 100
LEFT, RIGHT = (("V", "W"), "C"), ("V", ("W", "C"))
SQL = "SELECT V.n, W.n AS m, C.n AS k FROM V, W, C WHERE V.a = W.a AND W.b = C.b WINDOW TUMBLING (SIZE 1 SECOND)"


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """An epoch takes a second of the clock by which rates are counted, however long it takes."""
    at = iter(range(1_000_000))
    clock = SimpleNamespace(monotonic=lambda: float(next(at)), perf_counter=lambda: 0.0)
    monkeypatch.setattr(loop, "time", clock)
    rig = Rig(tmp_path)
    for name in "VWC":
        rig.stream(name, a="BIGINT", b="BIGINT", n="BIGINT")
    rig.epoch()  # the clock's first step
    yield rig
    rig.engine.abandon()


def correlated(rng: random.Random, epoch: int) -> dict[str, list[tuple[int, int, int, int]]]:
    """Of W, tuples whose `a` is popular in V have a `b` that is popular in C: a tenth of each has most of the others'.

    The two joins by themselves give what uniform keys would, almost; the three streams together give several times as
    much.
    """

    def popular() -> int:
        return rng.randrange(10) if rng.random() < 0.5 else rng.randrange(KEYS)

    rows: dict[str, list[tuple[int, int, int, int]]] = {"V": [], "W": [], "C": []}
    for i in range(TUPLES):
        ts = epoch * 1000 + i * 1000 // TUPLES
        rows["V"].append((popular(), 0, i, ts))
        both = rng.randrange(KEYS)
        rows["W"].append((both, both, i, ts))
        rows["C"].append((0, popular(), i, ts))
    return rows


def root(rig: Rig) -> JoinNode:
    (placement,) = rig.engine.plan.placements
    assert isinstance(placement.root, JoinNode)
    return placement.root


def estimate(rig: Rig) -> float:
    engine = rig.engine
    return engine.parts.planner.estimate(engine.plan, engine.state.running).combinations[root(rig).name]


@pytest.mark.parametrize(("first", "other"), [(LEFT, RIGHT), (RIGHT, LEFT)])
def test_a_join_over_keys_that_depend_on_each_other_is_estimated_as_it_is_counted(rig: Rig, first, other) -> None:
    rng = random.Random(5)
    rig.create("q", SQL)
    rig.control(ForceOrder("q", first))
    counted = []
    for epoch in range(1, EPOCHS):
        report = rig.epoch(correlated(rng, epoch))
        counted.append(rig.engine.parts.planner.observed()[root(rig).name])
        assert counted[-1] == report.rows  # per second: lists that stay closed below count with all they stand for
    mean = sum(counted[-5:]) / 5
    independent = (TUPLES**3) / KEYS**2  # what a product of the two selectivities says
    assert mean > 1.5 * independent
    assert estimate(rig) == pytest.approx(mean, rel=0.2)

    # another order of the same joins is the same set of keys
    rig.control(ForceOrder("q", other))
    assert root(rig).leaves == (Leaf("C"), Leaf("V"), Leaf("W"))
    assert estimate(rig) == pytest.approx(mean, rel=0.2)
    for epoch in range(EPOCHS, EPOCHS + 6):  # and it stays so when the other pair is counted by itself
        counted.append(rig.epoch(correlated(rng, epoch)).rows)
    assert estimate(rig) == pytest.approx(sum(counted[-5:]) / 5, rel=0.2)


def skewed(rng: random.Random, epoch: int) -> dict[str, list[tuple[int, int, int, int]]]:
    """Keys are independent, but few of them are frequent: the second join gives more than distinct keys say."""
    rows: dict[str, list[tuple[int, int, int, int]]] = {"V": [], "W": [], "C": []}
    for i in range(TUPLES):
        ts = epoch * 1000 + i * 1000 // TUPLES
        hot = [0 if rng.random() < 0.3 else rng.randrange(KEYS) for _ in range(2)]
        rows["V"].append((rng.randrange(KEYS), 0, i, ts))
        rows["W"].append((rng.randrange(KEYS), hot[0], i, ts))
        rows["C"].append((0, hot[1], i, ts))
    return rows


def test_a_key_that_only_larger_joins_have_is_learned_from_them(rig: Rig) -> None:
    rng = random.Random(6)
    rig.create("q", SQL)
    rig.control(ForceOrder("q", LEFT))
    pairs = 0.0
    for epoch in range(1, EPOCHS):
        rows = skewed(rng, epoch)
        pairs = sum(w[1] == c[1] for w in rows["W"] for c in rows["C"])
        rig.epoch(rows)
    rig.control(ForceOrder("q", RIGHT))
    engine = rig.engine
    found = engine.parts.planner.estimate(engine.plan, engine.state.running).combinations
    (below,) = [n for n in engine.plan.nodes if n != root(rig)]
    assert below.leaves == (Leaf("C"), Leaf("W"))
    assert pairs > 5 * TUPLES**2 / KEYS
    assert found[below.name] == pytest.approx(pairs, rel=0.2)
