"""STATE_TTL of count windows, through the engine: positions begin anew after a pause, whatever else runs, and whenever
state is really removed. Every life is compared with the oracle as well."""

from __future__ import annotations

import pytest

from runtime.engine import close_stage
from runtime.state_tools.report import inspect
from tests.lives.engine import differences, play
from tests.runtime.rig import Rig

EPOCH = {"epoch": True}
KILL = {"restart": "kill"}
SUMS = "SELECT k, SUM(i) AS total FROM A GROUP BY k WINDOW"
PAIRS = f"{SUMS} COUNT (SIZE 2) STATE_TTL 10 MILLISECONDS"
OTHERS = {
    "all": f"{SUMS} COUNT (SIZE 2)",
    "long": f"{SUMS} COUNT (SIZE 3 ADVANCE BY 2) STATE_TTL 1 HOUR",
    "short": f"{SUMS} COUNT (SIZE 2 ADVANCE BY 1) STATE_TTL 2 MILLISECONDS",
    "few": "SELECT k, COUNT(*) AS n FROM A WHERE i % 2 = 0 GROUP BY k WINDOW COUNT (SIZE 4) STATE_TTL 10 MILLISECONDS",
    "one": "SELECT k, MAX(i) AS m FROM A WHERE i > 3 GROUP BY k WINDOW COUNT (SIZE 1 ADVANCE BY 3)",
}
"""They group alike and cut time alike, so all of them and PAIRS are one fold."""


def a(ts, i=0, k=1):
    return {"event": "A", "row": {"ts": ts, "k": k, "i": i}}


def life(*lines, lateness=0, sql=PAIRS, others=()):
    columns = {"ts": "TIMESTAMP", "k": "BIGINT", "i": "INT"}
    stream = {"stream": "A", "schema": columns, "time": "ts", "allowed_lateness_ms": lateness}
    created = [{"create": id, "sql": OTHERS[id]} for id in others]
    return [stream, {"create": "q", "sql": sql}, *created, *lines]


def quiet(epochs, *, at, k=2):
    """Epochs in which another group brings a tuple each."""
    return [line for n in range(epochs) for line in (a(at, n, k), EPOCH)]


def rows(lines, *, k=1, **how):
    """(window_start, revision, total) of query q and one group, in the order in which they came."""
    assert differences(lines, **how) == []
    results, _, _ = play(lines, **how)
    mine = [r for r in results if r["query"] == "q" and r["row"]["k"] == k]
    return [(r["window_start"], r["revision"], r["row"]["total"]) for r in mine]


def test_a_pause_of_exactly_the_ttl_is_none():
    tuples = [a(0, 1), EPOCH, a(10, 2), EPOCH, a(21, 4), EPOCH, a(22, 8)]
    assert rows(life(*tuples)) == [(0, 0, 3), (0, 0, 12)]
    assert rows(life(*tuples, sql=PAIRS.replace("10", "11"))) == [(0, 0, 3), (2, 0, 12)]
    tuples = [a(0, 1), EPOCH, a(11, 2), EPOCH, a(21, 4)]
    assert rows(life(*tuples)) == [(0, 0, 6)], "the first one is alone for ever"


@pytest.mark.parametrize("carry_from", [1, 2, 8])
@pytest.mark.parametrize("others", [("all",), ("long", "few"), ("short", "one"), tuple(OTHERS)], ids="-".join)
def test_no_other_query_of_the_fold_changes_a_row(monkeypatch, carry_from, others):
    """The silence is long, and buckets are carried in it: what another query still needs is of no concern."""
    monkeypatch.setattr(close_stage, "CARRY_FROM", carry_from)
    tuples = [
        *(a(0, 1), a(4, 2), a(8, 4), EPOCH),
        *(a(30, 8), EPOCH),
        *quiet(9, at=100),
        *(a(101, 16), EPOCH, a(103, 32), a(104, 64), EPOCH),
        *(a(99, 128), a(101, 256), EPOCH),
        *quiet(9, at=300),
        *(a(300, 512), a(300, 1024), EPOCH, a(301, 2048), EPOCH),
    ]
    alone = rows(life(*tuples, lateness=20))
    assert alone == [
        (0, 0, 3),
        (0, 0, 48),  # 101 103
        (0, 1, 144),  # 99 101
        (2, 0, 288),  # 101 103
        (0, 0, 1536),
    ]
    assert rows(life(*tuples, lateness=20, others=others)) == alone


def test_the_queries_above_are_one_fold(tmp_path):
    rig = Rig(tmp_path)
    rig.stream("A", k="BIGINT", i="INT")
    for id, sql in {"q": PAIRS, **OTHERS}.items():
        rig.create(id, sql)
    rig.epoch({"A": [(1, 1, 5)]})
    assert len(inspect(tmp_path).partials) == 1


JOINED = [
    *(a(0, 1), a(4, 2), a(8, 4), EPOCH),
    *(a(20, 8), a(22, 16), EPOCH),
    *(a(21, 32), EPOCH),  # revision 1 of the second run
]
"""Two runs: 0 4 | 8 and 20 21 | 22."""

BRIDGED = [
    *((0, 0, 3), (0, 0, 24), (0, 1, 40)),
    (2, 0, 68),  # with 14: 0 4 | 8 14 | 20 21 | 22
    (4, 0, 40),
    (0, 2, 129),  # with -1: -1 0 | 4 8 | 14 20 | 21 22
    (2, 1, 6),
    (4, 1, 72),
    (6, 0, 48),
]


@pytest.mark.parametrize("partitions", [1, 2, 5])
@pytest.mark.parametrize("carry_from", [1, 3, 8])
@pytest.mark.parametrize("between", [0, 4, 9])
def test_a_late_tuple_joins_two_runs(monkeypatch, carry_from, between, partitions):
    """Also if what was delivered was written down and carried since."""
    monkeypatch.setattr(close_stage, "CARRY_FROM", carry_from)
    tuples = [*JOINED, *quiet(between, at=22), a(14, 64), EPOCH, *quiet(between, at=22), a(-1, 128), EPOCH]
    assert rows(life(*tuples, lateness=100), partitions=partitions) == BRIDGED


@pytest.mark.parametrize("others", [(), tuple(OTHERS)])
def test_runs_outlive_restarts(others):
    tuples = [*JOINED, *quiet(9, at=22), a(14, 64), EPOCH, a(-1, 128), EPOCH]
    killed = [step for line in tuples for step in ([KILL, line, KILL] if line is EPOCH else [line])]
    assert rows(life(*killed, lateness=100, others=others)) == BRIDGED


@pytest.mark.parametrize("carry_from", [1, 2, 8])
def test_only_a_tuple_near_enough_joins(monkeypatch, carry_from):
    """The run 0 4 ends more than the TTL before everything that is accepted when 15 comes, so 14 would have to."""
    monkeypatch.setattr(close_stage, "CARRY_FROM", carry_from)
    tuples = [a(0, 1), a(4, 2), EPOCH, *quiet(9, at=25), a(15, 4), EPOCH, a(16, 8), EPOCH]
    assert rows(life(*tuples, lateness=10)) == [(0, 0, 3), (0, 0, 12)]
    tuples[-4] = a(14, 4)
    assert rows(life(*tuples, lateness=11)) == [(0, 0, 3), (2, 0, 12)]


@pytest.mark.parametrize("carry_from", [1, 2])
def test_a_run_that_goes_on_keeps_its_positions(monkeypatch, carry_from):
    """Of its first tuples only the number is left, under several query sets, whose last tuples are far apart."""
    monkeypatch.setattr(close_stage, "CARRY_FROM", carry_from)
    tuples = [line for n in range(12) for line in (a(8 * n, 1 << n), EPOCH)]
    many = f"{SUMS} COUNT (SIZE 3 ADVANCE BY 2) STATE_TTL 10 MILLISECONDS"
    halves = "SELECT k, SUM(i) AS total FROM A WHERE {} GROUP BY k WINDOW COUNT (SIZE 2)"
    created = [{"create": "early", "sql": halves.format("i < 8")}, {"create": "late", "sql": halves.format("i > 99")}]
    lines = life(*created, *tuples, sql=many)
    assert rows(lines) == [(n, 0, 7 << n) for n in range(0, 10, 2)]


def entries(tmp_path, sql):
    """How many are kept after many groups have brought one tuple each and gone silent."""
    rig = Rig(tmp_path)
    rig.stream("A", k="BIGINT", i="INT", lateness=5)
    rig.create("q", sql)
    for epoch in range(16):
        rig.epoch({"A": [(1000 * epoch + n, 1, 100 * epoch) for n in range(50)]})
    return sum(p.entries for p in inspect(tmp_path).partials)


def test_what_cannot_be_joined_any_more_is_not_kept(tmp_path):
    assert entries(tmp_path / "for ever", OTHERS["all"]) == 16 * 50
    assert entries(tmp_path / "ttl", PAIRS) < 9 * 50


def test_a_session_is_the_same_with_a_ttl():
    tuples = [a(0, 1), a(4, 2), a(20, 4), EPOCH, *quiet(8, at=20), a(2, 8), EPOCH, a(12, 16), EPOCH, a(40), EPOCH]
    plain = f"{SUMS} SESSION (8 MILLISECONDS)"
    without = rows(life(*tuples, lateness=50, sql=plain))
    assert without and rows(life(*tuples, lateness=50, sql=f"{plain} STATE_TTL 8 MILLISECONDS")) == without
