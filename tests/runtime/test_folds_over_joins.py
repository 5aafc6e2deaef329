"""Aggregates over joins: folded from closed lists without making a row, and the same as if rows had been made."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
import pytest

from optimizer.model.types import ColumnType
from runtime.aggregates.components import Component
from runtime.aggregates.states import State, fold, scale
from runtime.api import ForceOrder, ScaleTo, SplitPartition
from runtime.columns.column import ColumnData
from runtime.control.budgets import Pacing
from runtime.kernels import hashing
from runtime.operators import closed_fold, folded, matches
from tests.lives.test_lives_local import live_all
from tests.runtime.rig import Rig

TUMBLING = "WINDOW TUMBLING (SIZE 10 MILLISECONDS)"
HOPPING = "WINDOW HOPPING (SIZE 10 MILLISECONDS, ADVANCE BY 5 MILLISECONDS)"
TWO = "FROM A JOIN B ON A.k = B.k"
UNSEEN = "A.v + B.v IS NOT NULL OR A.v IS NULL OR B.v IS NULL"
"""Always true, but only a look at the rows can tell."""

ALL = (
    "COUNT(*) AS n, COUNT(A.v) AS a, SUM(B.v) AS b, AVG(A.d) AS c, MIN(A.s) AS e, MAX(B.d) AS f, MEDIAN(B.v) AS g, "
    "COUNT(DISTINCT A.s) AS h, STDDEV(A.v) AS i, ARG_MAX(B.s, B.v) AS j, APPROX_COUNT_DISTINCT(B.v) AS l, "
    "SUM(A.d) FILTER (WHERE A.v > 2) AS m, COUNT(*) FILTER (WHERE B.s = 'x') AS o, SUM(1) AS p"
)


def rig_of(tmp_path, names="AB", **config) -> Rig:
    rig = Rig(tmp_path, **config)
    for name in names:
        rig.stream(name, k="BIGINT", v="BIGINT", d="DOUBLE", s="STRING", lateness=100)
    return rig


def t(ts, k=1, v=0, d=0.5, s="x"):
    return (k, v, d, s, ts)


def some(random: Random, n: int, first: int = 0) -> list:
    """Two keys, few groups, every seventh value NULL."""

    def maybe(value):
        return None if random.random() < 0.15 else value

    return [
        t(first + random.randrange(12), random.choice([1, 1, 2, None]), maybe(random.randrange(5)),
          maybe(random.choice([0.1, -0.0, 0.0, 2.5, 1e15])), maybe(random.choice("xyz")))
        for _ in range(n)
    ]  # fmt: skip


@pytest.fixture
def without_rows(monkeypatch):
    """Whoever lays out a combination fails."""
    monkeypatch.setattr(matches, "pairs", None)


@pytest.fixture(params=[0.0, closed_fold.WORTH])
def worth(request, monkeypatch):
    """Closed lists always, and where they pay."""
    monkeypatch.setattr(closed_fold, "WORTH", request.param)


def rows_of(rig: Rig, id: str) -> list[tuple]:
    """In some fixed order, with NULLs, whatever the last digits are."""
    return sorted((tuple(row.values()) for row in rig.local.rows(id)), key=lambda row: str([_short(v) for v in row]))


def _short(value):
    return f"{value:.6g}" if isinstance(value, float) else value


def same(rig: Rig, ours: str, theirs: str) -> bool:
    """Equal rows, and enough of them; sums and deviations of doubles within the last digits."""
    mine, other = rows_of(rig, ours), rows_of(rig, theirs)
    return len(mine) == len(other) > 1 and all(
        a == b or (isinstance(a, float) and a == pytest.approx(b, rel=1e-12, nan_ok=True))
        for x, y in zip(mine, other, strict=True)
        for a, b in zip(x, y, strict=True)
    )


# -- nothing is laid out ------------------------------------------------------------------------------------------


def test_a_hot_key_is_folded_without_laying_out_a_single_pair(tmp_path, without_rows):
    rig = rig_of(tmp_path)
    rig.create("q", f"SELECT COUNT(*) AS n, SUM(A.v * 1) AS s, MAX(B.v) AS m {TWO} {TUMBLING}")
    rig.create("by", f"SELECT A.k AS k, B.s AS s, SUM(A.v) AS v {TWO} GROUP BY A.k, B.s {TUMBLING}")
    tuples = [t(i % 10, v=i % 100, s="xy"[i % 2]) for i in range(3000)]
    rig.epoch({"A": tuples, "B": tuples}, watermark=10)
    total = sum(i % 100 for i in range(3000))
    assert rig.rows("q") == [(0, 10, 0, 9_000_000, 3000 * total, 99)]
    assert rig.rows("by") == [(0, 10, 0, 1, "x", 1500 * total), (0, 10, 0, 1, "y", 1500 * total)]


@pytest.mark.parametrize("order", [(("A", "B"), ("C", "D")), ((("A", "B"), "C"), "D"), ("A", ("B", ("C", "D")))])
def test_lists_below_joined_items_stay_closed(tmp_path, without_rows, order):
    rig = rig_of(tmp_path, "ABCD")
    joined = "FROM A JOIN B ON A.k = B.k JOIN C ON B.k = C.k JOIN D ON C.k = D.k"
    rig.create("q", f"SELECT COUNT(*) AS n, SUM(A.v) AS a, MIN(D.v) AS d {joined} {TUMBLING}")
    rig.control(ForceOrder("q", order))
    rig.epoch({name: [t(i % 10, v=i) for i in range(100)] for name in "ABCD"}, watermark=10)
    assert rig.rows("q") == [(0, 10, 0, 100**4, 4950 * 100**3, 0)]


def test_more_combinations_than_a_bigint_counts(tmp_path, without_rows):
    """Five streams of 10,000 tuples of one key are 10**20 rows: the count stops at what it can say, a sum is NULL."""
    rig = rig_of(tmp_path, "ABCDE")
    joined = "FROM A JOIN B ON A.k = B.k JOIN C ON B.k = C.k JOIN D ON C.k = D.k JOIN E ON D.k = E.k"
    rig.create("q", f"SELECT COUNT(*) AS n, SUM(A.v) AS s, MAX(B.v) AS m {joined} {TUMBLING}")
    rig.epoch({name: [t(1, v=7)] * 10_000 for name in "ABCDE"}, watermark=10)
    assert rig.rows("q") == [(0, 10, 0, 2**63 - 1, None, 7)]


# -- the same as from rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", ["", "A.s", "B.s", "A.s, B.s", "A.k, B.v + 1, A.v", "A.d"])
@pytest.mark.parametrize("window", [TUMBLING, HOPPING])
def test_closed_lists_and_rows_agree(tmp_path, worth, groups, window):
    rig = rig_of(tmp_path)
    chosen = "".join(f"{g} AS g{i}, " for i, g in enumerate(groups.split(", ")) if g)
    by = f"GROUP BY {groups}" if groups else ""
    rig.create("closed", f"SELECT {chosen}{ALL} {TWO} {by} {window}")
    rig.create("rows", f"SELECT {chosen}{ALL} {TWO} WHERE {UNSEEN} {by} {window}")
    few = f"SELECT {chosen}COUNT(*) AS n {TWO} WHERE A.v < 3 AND B.s <> 'z'"
    rig.create("few", f"{few} {by} {window}")
    rig.create("few rows", f"{few} AND ({UNSEEN}) {by} {window}")
    random = Random(7)
    for first in (0, 5, 2, 14):
        rig.epoch({"A": some(random, 40, first), "B": some(random, 40, first)})
    rig.control(ScaleTo(2))
    rig.control(SplitPartition(0, 3))
    rig.epoch({"A": some(random, 40, 14), "B": some(random, 40, 14)}, watermark=60)
    assert same(rig, "closed", "rows")
    assert same(rig, "few", "few rows")


@pytest.mark.parametrize("order", [(("A", "B"), ("C", "D")), ((("A", "B"), "C"), "D"), ("A", ("B", ("C", "D")))])
def test_closed_lists_of_a_join_tree_and_rows_agree(tmp_path, worth, order):
    rig = rig_of(tmp_path, "ABCD")
    joined = "FROM A JOIN B ON A.k = B.k JOIN C ON B.v = C.v JOIN D ON C.k = D.k"
    what = "A.s, COUNT(*) AS n, SUM(A.v) AS a, SUM(B.d) AS b, MAX(C.s) AS c, MEDIAN(D.v) AS d, AVG(C.v) AS e"
    rig.create("closed", f"SELECT {what} {joined} GROUP BY A.s {TUMBLING}")
    rig.create("rows", f"SELECT {what} {joined} WHERE {UNSEEN} GROUP BY A.s {TUMBLING}")
    two = f"SELECT B.s, D.s AS ds, COUNT(*) AS n, SUM(C.v) AS c {joined} WHERE B.v < 3"
    rig.create("two", f"{two} GROUP BY B.s, D.s {HOPPING}")
    rig.create("two rows", f"{two} AND ({UNSEEN}) GROUP BY B.s, D.s {HOPPING}")
    for id in ("closed", "rows", "two", "two rows"):
        rig.control(ForceOrder(id, order))
    rig.control(ScaleTo(3))
    rig.control(SplitPartition(0, 2))
    random = Random(3)
    for first in (0, 4):
        for name in "ABCD":
            rig.epoch({name: some(random, 14, first)})
    rig.epoch(watermark=60)
    assert same(rig, "closed", "rows")
    assert same(rig, "two", "two rows")


def test_a_fold_that_some_queries_need_rows_for(tmp_path, worth):
    """One fold, because they group alike; what reads two sources is folded from rows."""
    rig = rig_of(tmp_path)
    rig.create("closed", f"SELECT A.s, COUNT(*) AS n {TWO} GROUP BY A.s {TUMBLING}")
    rig.create(
        "mixed", f"SELECT A.s, COUNT(*) AS n, SUM(A.v * B.v) AS p, MIN(A.v + B.v) AS q {TWO} GROUP BY A.s {TUMBLING}"
    )
    random = Random(1)
    for _ in range(3):
        rig.epoch({"A": some(random, 30), "B": some(random, 30)})
    rig.epoch(watermark=60)
    counted = [row[:5] for row in rows_of(rig, "mixed")]
    assert len(counted) > 3
    assert sorted(rows_of(rig, "closed"), key=str) == sorted(counted, key=str)


@pytest.mark.parametrize("block", [1, 7, 64])
def test_rows_do_not_depend_on_the_size_of_blocks(tmp_path, monkeypatch, block):
    monkeypatch.setattr(folded, "BLOCK", block)
    monkeypatch.setattr(closed_fold, "WORTH", 0.0)
    test_closed_lists_and_rows_agree(tmp_path / "two", None, "A.s, B.s", HOPPING)
    test_closed_lists_of_a_join_tree_and_rows_agree(tmp_path / "four", None, (("A", "B"), ("C", "D")))


@pytest.mark.parametrize("by", ["", "GROUP BY A.v", "GROUP BY A.v, B.v"])
def test_what_is_postponed_is_folded_later(tmp_path, worth, by):
    sql = f"SELECT COUNT(*) AS n, SUM(B.v) AS s {TWO} {by} {TUMBLING}"
    found = []
    for pace in (None, 50):
        rig = rig_of(tmp_path / str(pace), pacing=Pacing(pace, max_behind=1000))
        rig.create("q", sql)
        epochs = [{n: [t(e, k=i % 3, v=i % 4) for i in range(60)] for n in "AB"} for e in (1, 2)]
        for tuples in epochs:
            rig.epoch(tuples)
        waited = 0
        while rig.engine.state.behind:
            rig.epoch()
            waited += 1
        rig.epoch(watermark=60)
        found.append(rig.rows("q"))
        assert (pace is not None) == (waited > 0)
    assert found[0] == found[1]
    assert sum(row[3] for row in found[0]) == 3 * 40 * 40


@pytest.mark.parametrize("condition", ["A.s = B.s", "A.k = B.k AND A.s = B.s", "A.k = B.k AND A.v < B.v"])
def test_where_hashes_are_no_proof_rows_are_looked_at(tmp_path, worth, monkeypatch, condition):
    monkeypatch.setattr(hashing, "CANDIDATE_MASK", np.uint64(7 << 61))
    rig = rig_of(tmp_path)
    rig.create("rows", f"SELECT A.v FROM A JOIN B ON {condition} {TUMBLING}")
    rig.create("q", f"SELECT COUNT(*) FROM A JOIN B ON {condition} {TUMBLING}")
    random = Random(5)
    for _ in range(3):
        rig.epoch({"A": some(random, 30), "B": some(random, 30)})
    rig.epoch(watermark=60)
    by_window: dict[tuple[int, int], int] = {}
    for start, end, _ in rows_of(rig, "rows"):
        by_window[start, end] = by_window.get((start, end), 0) + 1
    last = {(start, end): n for start, end, revision, n in sorted(rig.rows("q"), key=lambda row: row[2])}
    assert last == by_window


@pytest.mark.parametrize("seeds", [range(a, a + 25) for a in range(305_000, 305_100, 25)])
def test_lives_in_which_every_list_stays_closed(monkeypatch, seeds):
    """Lists of a life are short; whether they pay is not the question here."""
    monkeypatch.setattr(closed_fold, "WORTH", 0.0)
    live_all("aligned", seeds)


# -- numbers ------------------------------------------------------------------------------------------------------


def test_counts_stop_at_the_greatest_bigint():
    component = Component("count", (), None, ())
    most = 2**63 - 1
    state = State((ColumnData(ColumnType.BIGINT, np.array([1 << 40, 3, most])),))
    scaled = scale(component, state, np.array([1 << 30, 5, 1]))
    assert scaled.parts[0].values.tolist() == [most, 15, most]
    together = fold(component, scaled, np.arange(3, dtype=np.int32), np.array([0, 2, 3]))
    assert together.parts[0].values.tolist() == [most, most]


def test_scaled_sums_of_doubles_lose_nothing():
    component = Component("sum", (), None, (ColumnType.DOUBLE,))
    state = State((ColumnData(ColumnType.DOUBLE, np.array([0.1, 1e300, np.inf, 0.1])),))
    scaled = scale(component, state, np.array([3, 10, 2, 0]))
    total, rest = (p.values for p in scaled.parts)
    assert total.tolist()[:3] == [0.1 * 3, 1e301, np.inf]
    assert Fraction(total[0]) + Fraction(rest[0]) == 3 * Fraction(0.1)
    assert rest[2] == 0
    assert scaled.parts[0].mask.tolist() == [True, True, True, False]
