"""Lost partial buckets: folded again from reads and from joins, row for row and revision for revision; and those that
cannot be made again cost only the queries that need them."""

from __future__ import annotations

from random import Random

import pytest

from runtime.api import ForceGroups, QueryState
from runtime.control.budgets import Pacing
from runtime.execution.executor import LocalExecutor
from tests.lives import make_life
from tests.lives.engine import Stored, differences
from tests.lives.executors import Ravaging
from tests.runtime.damage_world import remove, repairs
from tests.runtime.rig import Rig

HOP = "WINDOW HOPPING (SIZE 3 SECONDS, ADVANCE BY 1 SECOND)"
QUERIES = {
    "sums": f"SELECT k, COUNT(*) AS c, SUM(n) AS s FROM A GROUP BY k {HOP}",
    "some": f"SELECT k, MEDIAN(n) AS m FROM A WHERE n > 4 GROUP BY k {HOP}",
    "joined": f"SELECT A.k, COUNT(*) AS c, SUM(B.n) AS s FROM A JOIN B ON A.k = B.k GROUP BY A.k {HOP}",
    "rows": f"SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k {HOP}",
    "session": "SELECT k, COUNT(*) AS c FROM A GROUP BY k WINDOW SESSION (2 SECONDS)",
    "positions": "SELECT k, LAST(n) AS l FROM A GROUP BY k WINDOW COUNT (SIZE 4 ADVANCE BY 3)",
    "punctuated": "SELECT k, COUNT(*) AS c FROM B GROUP BY k WINDOW PUNCTUATED BY (j = 1)",
}


def begun(path, **config):
    rig = Rig(path, **config)
    for name in "AB":
        rig.stream(name, k="BIGINT", j="BIGINT", n="INT", delay=500, lateness=2500)
    for id, sql in QUERIES.items():
        rig.create(id, sql)
    for epoch in range(3):
        rig.epoch(tuples(epoch))
    return rig


def tuples(epoch):
    """Some of them late: windows that are closed get more rows."""
    rng = Random(epoch)
    return {
        s: [
            (rng.randrange(3), rng.randrange(4), 10 * epoch + n, max(1000 * epoch + 150 * n - 2000 * (n == 5), 0))
            for n in range(6)
        ]
        for s in "AB"
    }


def ended(rig, first=3):
    for epoch in range(first, 7):
        rig.epoch(tuples(epoch))
    rig.epoch(watermark=1 << 40)
    return {q.id: rig.rows(q.id) for q in rig.engine.queries() if q.state == QueryState.RUNNING}


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory):
    return ended(begun(tmp_path_factory.mktemp("undamaged")))


def open_partials(rig, *, joins):
    """Those of one origin, by name."""
    return sorted(f for f, r in rig.engine.state.partials.items() if not r.carried and (r.origin is None) == joins)


@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize("config", [{}, {"sharing": "off"}, {"store": "store"}])
def test_lost_partials_are_folded_again(tmp_path, undamaged, joins, config):
    assert any(len(rows) for rows in undamaged.values())
    config = {key: str(tmp_path / value) if key == "store" else value for key, value in config.items()}
    rig = begun(tmp_path / "state", **config)
    lost = open_partials(rig, joins=joins)[::2]
    assert lost
    remove(rig, lost)
    rig.reopen()
    assert ended(rig) == undamaged
    assert repairs(rig.engine) == 1


def test_a_lost_source_bucket_leaves_its_partials_alone(tmp_path, undamaged):
    rig = begun(tmp_path)
    before = set(rig.engine.state.partials)
    remove(rig, [ref.file for ref in rig.engine.state.sources.values()])
    rig.epoch(tuples(3))
    assert before <= set(rig.engine.state.partials)
    named = rig.engine.state.bucket_files
    assert {p.name for p in rig.files("buckets")} == named, "nothing was folded twice"
    assert ended(rig, first=4) == undamaged


def test_a_query_that_moved_to_another_group_is_folded_once(tmp_path, undamaged):
    """The unit is then in two groups, of which one file is lost, then the other, then what replaced them."""
    rig = begun(tmp_path)
    for groups in ({"sums": 0, "some": 1}, {"sums": 1, "some": 1}):
        rig.control(ForceGroups(tuple({**dict.fromkeys(QUERIES, 0), **groups}.items())))
        remove(rig, open_partials(rig, joins=False)[::3])
        epoch = rig.engine.state.epoch
        rig.epoch(tuples(epoch))
        remove(rig, open_partials(rig, joins=True))
        remove(rig, open_partials(rig, joins=False)[1::3])
    assert ended(rig, first=5) == undamaged
    assert repairs(rig.engine) == 3


def test_a_query_created_later_gets_nothing_of_the_time_before(tmp_path):
    def life(path, damage):
        rig = begun(path)
        rig.create("late", QUERIES["sums"])
        if damage:
            remove(rig, open_partials(rig, joins=False))
        rig.epoch(tuples(3))
        if damage:
            remove(rig, open_partials(rig, joins=False))
        return ended(rig, first=4)

    assert life(tmp_path / "a", damage=True) == life(tmp_path / "b", damage=False)


def test_what_was_carried_costs_its_queries_and_nobody_else(tmp_path, undamaged):
    rig = begun(tmp_path)
    for epoch in range(3, 7):
        rig.epoch(tuples(epoch))
    while not any(ref.carried for ref in rig.engine.state.partials.values()):
        rig.epoch({"A": [(9, 9, 9, 7000)]})  # a group of its own
    state = rig.engine.state
    carried = [ref for ref in state.partials.values() if ref.carried]
    remove(rig, [ref.file for ref in carried])
    rig.epoch(watermark=1 << 40)
    folds = {ref.fold for ref in carried}
    stopped = {q.id: q for q in rig.engine.queries() if q.state == QueryState.SUSPENDED}
    assert set(stopped) == {r.query.id for r in state.queries.values() if r.fold in folds}
    assert all("its tuples are gone" in q.suspended for q in stopped.values())
    assert not any(ref.carried for ref in rig.engine.state.partials.values())
    for id in ("joined", "rows", "punctuated"):
        if id not in stopped:
            assert rig.rows(id) == undamaged[id]


def test_rows_that_were_postponed_are_not_guessed(tmp_path):
    rig = begun(tmp_path, pacing=Pacing(20, max_behind=1 << 30))
    assert any(ref.resumed for ref in rig.engine.state.partials.values()) or rig.engine.state.behind
    lost = open_partials(rig, joins=True)
    assert lost
    remove(rig, lost[:1])
    while rig.engine.state.behind:
        rig.epoch()
    rig.epoch(tuples(3))
    rig.epoch(watermark=1 << 40)
    assert {q.id for q in rig.engine.queries() if q.state == QueryState.SUSPENDED} == {"joined"}
    assert "postponed" in rig.engine.query("joined").suspended


@pytest.mark.parametrize(
    "how", [{}, {"sharing": "off"}, {"stored": Stored(objects=True)}, {"stored": Stored(killed=True, lost=False)}]
)
def test_lives_that_lose_most_of_their_files_before_every_epoch(how, monkeypatch):
    monkeypatch.setattr("tests.lives.engine.Rotting", Ravaging)
    for seed in range(500_000, 500_006):
        life = make_life(Random(seed), "folding")
        assert differences(life, LocalExecutor(), rotting=seed, **how) == [], f"folding {seed}"
