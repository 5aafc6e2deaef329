"""A split partition: every way gets as much of a hot key as another, on whichever side its items are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime.api import SplitPartition
from runtime.control.budgets import Pacing
from runtime.execution.executor import LocalExecutor
from runtime.kernels import csr
from runtime.operators.dealing import deal
from runtime.operators.join import JoinReport
from runtime.operators.matches import Side
from tests.runtime.rig import Rig

WAYS = 4
WINDOW = "WINDOW TUMBLING (SIZE 1 SECOND)"
TWO = f"SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k {WINDOW}"
THREE = f"SELECT A.n AS a, B.n AS b, C.n AS c FROM A JOIN B ON A.k = B.k JOIN C ON B.h = C.h {WINDOW}"
CHAIN = f"SELECT A.n AS a, B.n AS b, C.n AS c FROM A JOIN B ON A.k = B.k JOIN C ON B.k = C.k {WINDOW}"
"""In one stage: what a way has found below is its own and not dealt out again."""
COUNT = f"SELECT A.k AS k, COUNT(*) AS c, SUM(B.n) AS s FROM A JOIN B ON A.k = B.k GROUP BY A.k {WINDOW}"


class Watched(LocalExecutor):
    """Keeps what the join tasks of the last stage reported."""

    def __init__(self) -> None:
        self.joins: list[JoinReport] = []

    def run(self, name: Any, stage: Any, shared: Any, tasks: Any) -> Any:
        reports = super().run(name, stage, shared, tasks)
        if reports and isinstance(reports[0], JoinReport):
            self.joins = reports
        return reports

    @property
    def balance(self) -> float:
        """Combinations of the largest way over the mean."""
        done = [sum(r.matches.values()) for r in self.joins]
        return max(done) * len(done) / sum(done)


def rig(directory: Path, ways: int, pace: int | None = None) -> Rig:
    made = Rig(directory, Watched(), partitions=1, pacing=Pacing(pace, 10_000))
    for name in "ABC":
        made.stream(name, k="BIGINT", h="BIGINT", n="BIGINT")
    made.create("two", TWO)
    made.create("three", THREE)
    made.create("chain", CHAIN)
    made.create("count", COUNT)
    if ways > 1:
        made.control(SplitPartition(0, ways))
    return made


HOT = 2000


def tuples(few: int, epoch: int, hot: bool) -> list[tuple[int, int, int, int]]:
    """(k, h, n, ts): fifty cold keys; the hot one (7), with `few` items or many."""
    cold = [(100 + i, i % 5, i, 1000 * epoch + i) for i in range(50)]
    return cold + [(7, i % 40, 50 + i, 1000 * epoch + i % 900) for i in range(HOT if hot else few)]


def rows(r: Rig, id: str) -> Counter[Any]:
    return Counter(tuple(sorted(row.items())) for row in r.local.rows(id))


@pytest.mark.parametrize("hot", "AB")
@pytest.mark.parametrize("few", [1, 3])
def test_a_hot_key_is_dealt_out_on_the_side_where_it_has_more_items(tmp_path: Path, hot: str, few: int) -> None:
    r = rig(tmp_path, WAYS)
    r.delete("three")
    r.delete("chain")
    r.epoch({"A": tuples(few, 0, hot == "A"), "B": tuples(few, 0, hot == "B")})
    assert len(r.executor.joins) == WAYS
    assert r.executor.balance < 1.05, [j.matches for j in r.executor.joins]
    r.local.close()


@pytest.mark.parametrize("pace", [None, 300])
def test_rows_do_not_depend_on_ways_also_when_they_are_made_later(tmp_path: Path, pace: int | None) -> None:
    """The hot key changes sides from epoch to epoch; with a pace, tasks stop in the middle of meetings and go on."""
    one, many = rig(tmp_path / "one", 1), rig(tmp_path / "many", WAYS, pace)
    for epoch in range(4):
        hot = "AB"[epoch % 2]
        tables = {s: tuples(2, epoch, s == hot)[:: 1 if s != hot else 8] for s in "AB"}
        tables["C"] = [(7 if i % 2 else 100 + i, i % 5, i, 1000 * epoch + i) for i in range(10)]
        for r in (one, many):
            r.epoch(tables)
    stopped = bool(many.engine.state.behind)
    assert stopped == (pace is not None)
    while many.engine.state.behind:
        many.reopen()
        many.epoch()
    for r in (one, many):
        for stream in "ABC":
            r.engine.raise_watermark(stream, None)
        r.epoch()
    for id in ("two", "three", "chain", "count"):
        assert rows(many, id) == rows(one, id) and rows(one, id)
    for r in (one, many):
        r.local.close()


def side(rng: np.random.Generator, items: int, keys: int) -> Side:
    hashes = np.sort(rng.integers(0, keys, items).astype(np.uint64) << np.uint64(50))
    if len(hashes):
        hashes[: rng.integers(0, items)] = hashes[0]
    lo = rng.integers(0, 3, items).astype(np.int64)
    index = csr.grouped(np.arange(items), hashes, lo, lo)
    first, end = index.range(1 << 50, (keys - 1) << 50)
    sets = np.zeros((items, 1), np.uint64)
    within = csr.Items(index.order, index.offsets, sets)
    return Side(0, index, index.entries(first, end), within, np.zeros(1, np.uint64), 0, 0)


def pairs(left: Side, right: Side, l_from: int, l_to: int) -> Counter[tuple[int, int]]:
    """Positions of equal keys within the range."""
    found: Counter[tuple[int, int]] = Counter()
    for le in range(left.entries.first, left.entries.end):
        for re in range(right.entries.first, right.entries.end):
            if left.index.hashes[le] != right.index.hashes[re]:
                continue
            for a in range(max(left.index.offsets[le], l_from), min(left.index.offsets[le + 1], l_to)):
                found.update((a, b) for b in range(right.index.offsets[re], right.index.offsets[re + 1]))
    return found


def test_every_pair_of_items_is_one_ways() -> None:
    rng = np.random.default_rng(7)
    tried = 0
    while tried < 150:
        left, right = side(rng, int(rng.integers(1, 40)), 6), side(rng, int(rng.integers(1, 40)), 6)
        if left.entries.first >= left.entries.end or right.entries.first >= right.entries.end:
            continue  # such a side is not opened
        tried += 1
        offsets = left.index.offsets
        whole = pairs(left, right, int(offsets[left.entries.first]), int(offsets[left.entries.end]))
        for ways in (1, 2, 3, 8):
            parts = [deal(left, right, way, ways) for way in range(ways)]
            dealt = [pairs(left, p.right, p.l_from, p.l_to) for p in parts if p is not None]
            assert sum(dealt, Counter()) == whole
