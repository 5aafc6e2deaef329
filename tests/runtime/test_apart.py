"""A query that is behind gets a group of its own, through the whole engine; and how far behind a query is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.api import CreateQuery, Optimize
from runtime.control.state import State
from tests.runtime.rig import Rig

TWO = "SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)"
FEW = "SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k WHERE A.n < 3 WINDOW TUMBLING (SIZE 2 SECONDS)"
HEAVY, LIGHT = "heavy", ("light1", "light2")

Late = Callable[..., None]


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Late:
    """`late(heavy=2)`: from now on the query has work put off since epoch 2."""

    def set(**since: int) -> None:
        def behind(state: State) -> dict[str, int]:
            return {state.names[id]: epoch for id, epoch in since.items() if id in state.names}

        monkeypatch.setattr(State, "behind", property(behind))

    return set


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = sharing(tmp_path / "s")
    yield made
    made.local.close()


def sharing(directory: Path, **config: Any) -> Rig:
    """Three queries in one group."""
    rig = Rig(directory, **config)
    for name in "AB":
        rig.stream(name, k="BIGINT", n="BIGINT")
    rig.create(HEAVY, TWO)
    for id in LIGHT:
        rig.create(id, FEW)
    return rig


def fed(rig: Rig, epochs: int) -> None:
    for _ in range(epochs):
        start = 250 * rig.engine.epoch
        rig.epoch({stream: [(i % 5, i, start + i) for i in range(20)] for stream in "AB"})


def groups(rig: Rig) -> dict[str, int]:
    return {q.id: q.group for q in rig.engine.queries()}


def test_it_moves_out_once_nobody_loses_a_row_and_explain_says_so(tmp_path: Path, rig: Rig, late: Late) -> None:
    same = sharing(tmp_path / "same")
    for each in (rig, same):
        fed(each, 3)
    assert set(groups(rig).values()) == {0}
    late(heavy=1)
    fed(rig, 2)  # in the middle of windows
    done = rig.engine.optimize("incremental")
    assert done.applied
    assert done.reasons[0] == "heavy gets a group of its own: it is 5 epochs behind and 2 queries share its group"
    assert groups(rig) == {HEAVY: 1, **dict.fromkeys(LIGHT, 0)}
    assert "group 1: heavy (bit 0) · apart: heavy" in rig.engine.explain()
    assert "apart: heavy" in rig.engine.explain(id=HEAVY) and "apart: heavy" not in rig.engine.explain(id="light1")
    fed(rig, 3)
    version = rig.engine.plan.version
    rig.control(Optimize("full"))
    assert rig.engine.plan.version == version, "nothing brings it back while it is behind"
    late()
    fed(rig, 4)
    fed(same, 9)
    for id in (HEAVY, *LIGHT):
        assert rig.rows(id) == same.rows(id) != []
    same.local.close()


def test_the_periodic_optimizer_does_it_too(rig: Rig, late: Late) -> None:
    fed(rig, 2)
    late(heavy=1)
    fed(rig, 1)
    dry = rig.engine.optimize("incremental", dry_run=True)
    assert dry.would_apply and any("heavy moved: group 0" in change for change in dry.changes)
    assert set(groups(rig).values()) == {0}
    rig.control(Optimize("incremental", force=False))
    assert groups(rig) == {HEAVY: 1, **dict.fromkeys(LIGHT, 0)}


def test_a_query_that_is_a_little_behind_stays(rig: Rig, late: Late) -> None:
    fed(rig, 3)
    rig.control(Optimize("incremental", force=False))  # places it where it is best
    late(heavy=4)
    fed(rig, 1)
    version = rig.engine.plan.version
    rig.control(Optimize("incremental", force=False))
    assert rig.engine.plan.version == version


def test_new_queries_keep_away_and_explain_foretells_it(rig: Rig, late: Late) -> None:
    late(heavy=1)
    fed(rig, 3)
    foretold = rig.engine.explain(candidate=rig.engine.state.queries[rig.engine.state.names["light1"]].query.query)
    assert "group 1, bit 0" in foretold.splitlines()[0]
    assert [rig.create(id, TWO).group for id in ("new1", "new2")] == [1, 1]
    assert groups(rig)[HEAVY] == 0


def test_what_was_refused_is_not_remembered(rig: Rig, late: Late) -> None:
    """Deciding is pure: the same state gives the same decision, with heavy queries too."""
    late(heavy=1)
    fed(rig, 4)
    coordinator = rig.engine.parts.coordinator
    query = rig.engine.state.queries[rig.engine.state.names[HEAVY]].query.query
    batch = [Optimize("incremental", force=False), CreateQuery("new", query)]
    memory = coordinator.planner.memory
    assert coordinator.decide_batch(batch, 0) == coordinator.decide_batch(batch, 0)
    assert coordinator.planner.memory == memory


@pytest.mark.parametrize("mode", ["off", "astream"])
def test_where_the_plan_is_never_optimized_nothing_moves(tmp_path: Path, late: Late, mode: str) -> None:
    rig = sharing(tmp_path / "s", sharing=mode)
    late(heavy=1)
    fed(rig, 4)
    before = rig.engine.plan
    rig.control(Optimize("full"))
    assert rig.engine.plan == before and "apart" not in rig.engine.explain()
    rig.local.close()


# -- how far behind -------------------------------------------------------------------------------------------------


def lags(rig: Rig) -> dict[str, int | None]:
    return {q.id: q.lag_ms for q in rig.engine.queries()}


def test_lag_is_what_the_slowest_stream_holds_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s")
    rig.stream("A", k="BIGINT", n="BIGINT", delay=500)
    rig.stream("B", k="BIGINT", n="BIGINT", delay=500)
    rig.create("q", TWO)
    assert lags(rig) == {"q": None}
    rig.epoch({"A": [(1, 1, 9_000)]})
    assert lags(rig) == {"q": None}, "without a watermark there is no distance to it"
    rig.epoch({"B": [(1, 1, 9_000)]})
    assert lags(rig) == {"q": 0}, "the delay that streams were declared with is not lag"
    rig.epoch({"A": [(1, 1, 12_500)]})
    assert lags(rig) == {"q": 3_500}
    rig.epoch({"B": [(1, 1, 20_000)]})
    assert lags(rig) == {"q": 7_500}, "now it waits for the other one"
    rig.delete("q")
    assert lags(rig) == {"q": None}
    rig.local.close()


def test_an_idle_stream_holds_nothing_back_and_is_no_lag(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "s")
    rig.stream("A", k="BIGINT", n="BIGINT")
    rig.stream("B", k="BIGINT", n="BIGINT", idle=1_000)
    rig.create("q", TWO)
    rig.epoch({"A": [(1, 1, 5_000)], "B": [(1, 1, 1_000)]})
    assert lags(rig) == {"q": 4_000}
    rig.clock.advance(2_000)
    rig.epoch({"A": [(1, 1, 6_000)]})
    assert lags(rig) == {"q": 0}
    rig.local.close()


def test_epochs_behind(rig: Rig, late: Late) -> None:
    fed(rig, 4)
    assert {q.epochs_behind for q in rig.engine.queries()} == {0} and rig.engine.queries_behind() == []
    late(heavy=5)
    fed(rig, 1)
    (behind,) = rig.engine.queries_behind()
    assert (behind.id, behind.epochs_behind) == (HEAVY, 1)
    fed(rig, 2)
    assert {q.id: q.epochs_behind for q in rig.engine.queries()} == {HEAVY: 3, "light1": 0, "light2": 0}
    rig.delete(HEAVY)
    assert rig.engine.queries_behind() == []
