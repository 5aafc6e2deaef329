"""Budgets of queries whose rows are made at once: those over one stream, and those that fold."""

from __future__ import annotations

import pytest

from ajoin.testing import LocalEngine
from runtime.api import AtLimit, Budget, QueryState
from runtime.control.budgets import Pacing
from runtime.delivery.schedule import InStep
from runtime.engine.config import EngineConfig

ROWS = "SELECT k FROM S"
GROUPS = "SELECT k, COUNT(*) AS n FROM S GROUP BY k WINDOW TUMBLING (SIZE 1 SECOND)"
TUPLES = 100


@pytest.fixture
def engine():
    config = EngineConfig(delivery=InStep, pacing=Pacing(max_behind=5), partitions=2)
    with LocalEngine(config=config) as local:
        local.create_stream("S", columns={"k": "BIGINT", "ts": "TIMESTAMP"})
        yield local


def second(engine, number, tuples=TUPLES):
    """One more second of the stream, in two reads; every tuple is a group."""
    rows = [{"k": k, "ts": 1000 * number + k % 1000} for k in range(tuples)]
    engine.push("S", *rows[: tuples // 2])
    engine.push("S", *rows[tuples // 2 :])
    return engine.run_epoch()


def state_of(engine, id):
    return engine.engine.query(id).state


def delivered(engine, id):
    return len(engine.rows(id))


@pytest.mark.parametrize("sql", [ROWS, GROUPS])
def test_fail_suspends_after_the_epoch_that_was_too_much(engine, sql):
    engine.create_query(sql, id="q", budget=Budget(rows=10, at_limit=AtLimit.FAIL))
    engine.create_query(sql, id="beside")
    for number in range(4):
        second(engine, number)
    assert state_of(engine, "q") == QueryState.SUSPENDED
    assert "at_limit is fail" in engine.engine.query("q").suspended
    assert delivered(engine, "q") == TUPLES
    assert state_of(engine, "beside") == QueryState.RUNNING
    assert delivered(engine, "beside") == (4 if sql == ROWS else 3) * TUPLES


@pytest.mark.parametrize("sql", [ROWS, GROUPS])
def test_pause_lets_a_debt_be_paid_back(engine, sql):
    engine.create_query(sql, id="q", budget=Budget(rows=50))
    for number in range(3):
        second(engine, number)
        for _ in range(2):
            engine.run_epoch()
    assert state_of(engine, "q") == QueryState.RUNNING
    assert delivered(engine, "q") == (3 if sql == ROWS else 2) * TUPLES
    assert next(iter(engine.engine.state.queries.values())).debt == 0


@pytest.mark.parametrize("sql", [ROWS, GROUPS])
def test_pause_suspends_who_cannot_pay_it_back(engine, sql):
    engine.create_query(sql, id="q", budget=Budget(rows=50))
    for number in range(12):
        second(engine, number)
    assert state_of(engine, "q") == QueryState.SUSPENDED
    assert "max_epochs_behind is 5" in engine.engine.query("q").suspended
    assert delivered(engine, "q") == 6 * TUPLES


@pytest.mark.parametrize("sql", [ROWS, GROUPS])
def test_a_sample_leaves_rows_out_and_says_so(engine, sql):
    engine.create_query(sql, id="q", budget=Budget(rows=10, at_limit=AtLimit.SAMPLE))
    engine.create_query(sql, id="beside")
    for number in range(4):
        second(engine, number)
    info = engine.engine.query("q")
    assert info.state == QueryState.RUNNING and info.incomplete is not None
    everything = [tuple(r.items()) for r in engine.rows("beside")]
    mine = [tuple(r.items()) for r in engine.rows("q")]
    assert len(mine) == (4 if sql == ROWS else 3) * 10
    assert set(mine) <= set(everything)
    assert engine.engine.query("beside").incomplete is None


@pytest.mark.parametrize("sql", [ROWS, GROUPS])
@pytest.mark.parametrize("budget", [{"bytes": 100}, {"seconds": 1e-9}, {"retained_bytes": 100}])
def test_bytes_seconds_and_what_is_kept_count_too(engine, sql, budget):
    engine.create_query(sql, id="q", budget=Budget(**budget, at_limit=AtLimit.FAIL))
    for number in range(4):
        second(engine, number)
    assert state_of(engine, "q") == QueryState.SUSPENDED


def test_state_is_that_of_the_fold_and_of_nobody_else(engine):
    engine.create_stream("R", columns={"k": "BIGINT", "ts": "TIMESTAMP"})
    long = "WINDOW TUMBLING (SIZE 1 HOUR)"
    engine.create_query(f"SELECT S.k FROM S JOIN R ON S.k = R.k {long}", id="join")
    engine.create_query(ROWS, id="rows", budget=Budget(state_bytes=10))
    engine.create_query(f"SELECT COUNT(*) AS n FROM S {long}", id="small", budget=Budget(state_bytes=100_000))
    engine.create_query(f"SELECT k, COUNT(*) AS n FROM S GROUP BY k {long}", id="large", budget=Budget(state_bytes=10))
    for number in range(3):
        second(engine, number)
    states = {id: state_of(engine, id) for id in ("join", "rows", "small", "large")}
    assert states.pop("large") == QueryState.SUSPENDED
    assert "share of the state" in engine.engine.query("large").suspended
    assert set(states.values()) == {QueryState.RUNNING}


def test_what_is_owed_survives_a_restart(engine):
    engine.create_query(ROWS, id="q", budget=Budget(rows=50))
    second(engine, 0)
    second(engine, 1)
    engine.restart(kill=True)
    assert next(iter(engine.engine.state.queries.values())).debt == 2.0
