"""Query sets of several words: more than 128 queries in one group, in several partitions and over hot keys."""

from __future__ import annotations

from random import Random

import pytest

from tests.runtime.rig import Rig

QUERIES = 150
SIZE = 2_000


def condition(number):
    """As SQL and as a function of (a, b)."""
    m, r = 2 + number % 7, number % 3
    if number % 2:
        return f"A.n % {m} = {r % m}", lambda a, b: a % m == r % m
    return (
        f"A.n % {m} = {r % m} AND B.n % 2 = {number // 2 % 2}",
        lambda a, b: a % m == r % m and b % 2 == number // 2 % 2,
    )


@pytest.mark.parametrize("keys", [3, 400])
@pytest.mark.parametrize("partitions", [1, 3])
def test_everybody_gets_their_own_rows(tmp_path, keys, partitions):
    """Few keys: many items per index entry, whose sets are stored. Many keys: most entries have one item, and their
    sets are made when they are needed, for a task's own range of hashes."""
    rig = Rig(tmp_path, partitions=partitions)
    for name in "AB":
        rig.stream(name, k="BIGINT", n="INT", delay=10_000)
    for number in range(QUERIES):
        sql, _ = condition(number)
        rig.create(
            f"q{number}", f"SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k WHERE {sql} "
            "WINDOW TUMBLING (SIZE 2 SECONDS)"
        )  # fmt: skip
    assert max(rig.engine.plan.words(g) for g in rig.engine.plan.groups) > 2
    rng, seen = Random(keys), {"A": [], "B": []}
    for _ in range(3):
        new = {s: [(rng.randrange(keys), rng.randrange(100), rng.randrange(4_000)) for _ in range(60)] for s in "AB"}
        rig.epoch(new)
        for s in "AB":
            seen[s] += new[s]
    pairs = [
        (at // SIZE * SIZE, a, b)
        for k, a, at in seen["A"]
        for other, b, bt in seen["B"]
        if k == other and at // SIZE == bt // SIZE
    ]
    assert len(pairs) > 20
    for number in range(QUERIES):
        _, wanted = condition(number)
        expected = sorted((start, start + SIZE, a, b) for start, a, b in pairs if wanted(a, b))
        assert rig.rows(f"q{number}") == expected, number
