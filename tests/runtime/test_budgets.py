"""What a query does that is over its budget: it waits, leaves rows out or stops, and nobody else notices.

Two queries with the same statement run side by side, one of them with a budget; what the other delivers is what the
first would have.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from runtime.api import (
    AtLimit,
    Budget,
    ForceGroups,
    Incomplete,
    Optimize,
    QueryState,
    ResumeQuery,
    ScaleTo,
    Usage,
)
from runtime.control.budgets import OVER_BUDGET, Pacing
from runtime.execution.executor import Executor
from tests.runtime.budget_pairs import (
    ALL,
    COUNT,
    DEEP,
    FACTORIZED,
    HOPPING,
    RARE,
    SQL,
    WINDOW,
    epoch,
    opened,
    rows,
    settle,
    until,
    watermarks,
)

# -- pause --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sql", "most"), [(SQL, 60), (DEEP, 600)], ids=["two streams", "three streams"])
def test_paused_rows_come_later_all_of_them_and_the_watermark_waits(tmp_path: Path, sql: str, most: int) -> None:
    with opened(tmp_path, Budget(rows=most), sql) as engine:
        for number in range(4):
            epoch(engine, number)
        free, mine = watermarks(engine)
        assert mine < free, "windows that lack rows are not called complete"
        assert engine.engine.query("mine").epochs_behind > 0
        assert rows(engine, "mine") < rows(engine, "free")

        epochs = settle(engine)
        assert epochs > 1
        assert rows(engine, "mine") == rows(engine, "free") and watermarks(engine)[1] == free
        assert engine.engine.query("mine").incomplete is None and not engine.engine.state.pins

        epoch(engine, 4)  # it goes on like everybody else
        settle(engine)
        assert rows(engine, "mine") == rows(engine, "free")


def test_a_progress_of_a_paused_query_is_true_at_every_moment(tmp_path: Path) -> None:
    with opened(tmp_path / "s", Budget(rows=40)) as engine:
        promised: list[tuple[int, Counter[tuple[Any, ...]]]] = []
        for number in range(120):
            if number < 12:
                epoch(engine, number)
            else:
                engine.run_epoch()
            mark = watermarks(engine)[1]
            promised.append((mark, until(rows(engine, "mine"), mark)))
        settle(engine)
        final = rows(engine, "free")
        assert len({mark for mark, told in promised if told}) > 1, "the watermark moves while it catches up"
        assert all(told == until(final, mark) for mark, told in promised)


def test_who_cannot_catch_up_is_suspended_and_says_so(tmp_path: Path) -> None:
    with opened(tmp_path, Budget(rows=2), pacing=Pacing(None, max_behind=3)) as engine:
        for number in range(6):
            epoch(engine, number)
        info = engine.engine.query("mine")
        assert info.state == QueryState.SUSPENDED and info.suspended.startswith(OVER_BUDGET)
        assert "max_epochs_behind" in info.suspended
        assert info.active_until is None, "of its first epoch rows were missing already"
        assert not engine.engine.state.postponed and not engine.engine.state.pins


# -- sample -------------------------------------------------------------------------------------------------------


def test_sampled_rows_are_missing_only_where_the_query_says_so(tmp_path: Path) -> None:
    with opened(tmp_path, Budget(rows=60, at_limit=AtLimit.SAMPLE)) as engine:
        for number in range(3):
            epoch(engine, number, tuples=4, keys=50)
        assert engine.engine.query("mine").incomplete is None
        before = watermarks(engine)[0]
        for number in range(3, 6):
            epoch(engine, number)
        gap = engine.engine.query("mine").incomplete
        for number in range(8, 14):
            epoch(engine, number, tuples=4, keys=50)
        assert gap is not None and gap == engine.engine.query("mine").incomplete == Incomplete(before, gap.until)
        assert gap.until is not None and gap.until < 240
        free, mine = rows(engine, "free"), rows(engine, "mine")
        assert mine < free, "nothing is made up"
        missing = free - mine
        assert all(row[1] > before and row[0] <= gap.until for row in missing)
        assert watermarks(engine)[0] == watermarks(engine)[1], "nobody waits for rows that never come"
        assert not engine.engine.state.behind
        elsewhere = [row for row in free if row[1] <= before or row[0] > gap.until]
        assert elsewhere and all(mine[row] == free[row] for row in elsewhere)


def test_a_gap_reaches_back_to_what_late_tuples_may_concern(tmp_path: Path) -> None:
    with opened(tmp_path, Budget(rows=20, at_limit=AtLimit.SAMPLE), lateness=200) as engine:
        epoch(engine, 5, tuples=3, keys=50)
        assert engine.engine.query("mine").incomplete is None
        epoch(engine, 1)  # late, and accepted: their windows are closed already
        gap = engine.engine.query("mine").incomplete
        missing = rows(engine, "free") - rows(engine, "mine")
        assert gap is not None and missing
        assert all((gap.after is None or row[1] > gap.after) for row in missing)


@pytest.mark.parametrize("seed", range(16))
def test_whatever_happens_a_sample_is_exact_where_it_does_not_say_otherwise(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    sql = (SQL, DEEP, HOPPING, FACTORIZED)[seed % 4]
    lateness = rng.choice((0, 0, 120))
    with opened(tmp_path, Budget(rows=rng.choice((1, 30, 300)), at_limit=AtLimit.SAMPLE), sql, lateness) as engine:
        gaps = []
        for number in range(12):
            busy = rng.random() < 0.3
            late = rng.randrange(3) if lateness else 0
            epoch(engine, max(number - late, 0), *((20, 3) if busy else (3, 60)))
            gaps.append(engine.engine.query("mine").incomplete)
            match rng.randrange(6):
                case 0:
                    engine.restart(kill=True)
                case 1:
                    engine.apply(ScaleTo(rng.randrange(1, 5)))
                case 2:
                    engine.apply(ForceGroups((("mine", rng.randrange(2)),)))
        gap, free, mine = gaps[-1], rows(engine, "free"), rows(engine, "mine")
        assert mine <= free, "nothing is made up"
        missing = free - mine
        assert gap is not None or not missing
        assert all(_within(row, gap) for row in missing)
        assert free and not engine.engine.state.postponed


def _within(row: tuple[Any, ...], gap: Incomplete | None) -> bool:
    assert gap is not None
    return (gap.after is None or row[1] > gap.after) and (gap.until is None or row[0] <= gap.until)


def test_counts_of_a_sample_are_too_low_only_where_it_says_so(tmp_path: Path) -> None:
    with opened(tmp_path, Budget(rows=40, at_limit=AtLimit.SAMPLE), COUNT) as engine:
        for number in range(20):
            epoch(engine, number, *((40, 2) if 8 <= number < 12 else (4, 50)))
        gap = engine.engine.query("mine").incomplete
        free, mine = ({row["window_start"]: row["count"] for row in engine.rows(id)} for id in ALL)
        wrong = {start for start in free if free[start] != mine.get(start, 0)}
        assert wrong and all(_within((start, start + 100), gap) for start in wrong)
        assert len(wrong) < len(free) and all(mine.get(start, 0) < free[start] for start in wrong)


# -- fail ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sql", [SQL, DEEP], ids=["two streams", "three streams"])
def test_a_query_that_fails_is_suspended_and_the_others_are_exact(tmp_path: Path, sql: str) -> None:
    with opened(tmp_path, Budget(rows=60, at_limit=AtLimit.FAIL), sql) as engine:
        epoch(engine, 0, tuples=2, keys=50)
        epoch(engine, 1, tuples=2, keys=50)
        before = watermarks(engine)[1]
        assert engine.engine.query("mine").state == QueryState.RUNNING
        for number in range(2, 5):
            epoch(engine, number)
        info = engine.engine.query("mine")
        assert info.state == QueryState.SUSPENDED and info.active_until == before
        assert info.suspended.startswith(OVER_BUDGET) and "epoch 3" in info.suspended
        delivered = rows(engine, "free")
        assert until(rows(engine, "mine"), before) == until(delivered, before)
    with opened(tmp_path / "alone", Budget(), sql) as engine:
        for number in range(2):
            epoch(engine, number, tuples=2, keys=50)
        for number in range(2, 5):
            epoch(engine, number)
        assert rows(engine, "free") == delivered


def test_resuming_keeps_the_budget(tmp_path: Path) -> None:
    budget = Budget(rows=60, at_limit=AtLimit.FAIL)
    with opened(tmp_path, budget) as engine:
        epoch(engine, 0)
        assert engine.engine.query("mine").state == QueryState.SUSPENDED
        resumed = engine.apply(ResumeQuery("mine"))
        assert resumed is not None and resumed.budget == budget and resumed.usage == Usage()
        for number in range(1, 6):
            epoch(engine, number)
        assert engine.engine.query("mine").state == QueryState.SUSPENDED


# -- what is counted ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("joins", [2, 3])
def test_who_wants_few_tuples_of_a_hot_key_is_not_held_up_by_those_who_want_all(tmp_path: Path, joins: int) -> None:
    sql = (SQL, DEEP)[joins - 2]
    few = sql.replace(WINDOW, f"WHERE A.n % 1000 < 2 AND B.x % 1000 < 2 {WINDOW}")
    with opened(tmp_path, Budget(rows=400 * 20 ** (joins - 2)), sql, partitions=1) as engine:
        engine.create_query(few, id="few", budget=Budget(rows=100 * 20 ** (joins - 2)))
        engine.create_query(few, id="any")
        for number in range(4):
            epoch(engine, number, tuples=(40, 20)[joins - 2], keys=1)
            assert engine.engine.query("few").epochs_behind == 0
        assert engine.engine.query("mine").epochs_behind > 0
        assert rows(engine, "few") == rows(engine, "any")
        assert len(rows(engine, "few")) > 4
        settle(engine)
        assert rows(engine, "mine") == rows(engine, "free")


# -- all of it ----------------------------------------------------------------------------------------------------

SELECTIVE = SQL.replace(WINDOW, f"WHERE A.n % 1000 < 3 AND B.x % 1000 < 4 {WINDOW}")
FINE = SQL.replace(WINDOW, "WINDOW HOPPING (SIZE 90 MS, ADVANCE BY 10 MS)")
TEXTS = (SQL, DEEP, HOPPING, FINE, FACTORIZED, COUNT, RARE, SELECTIVE)


@pytest.mark.parametrize("seed", range(16))
def test_whatever_happens_paused_rows_come(tmp_path: Path, seed: int) -> None:
    """Budgets that stop a query in the middle of anything, while plans change and the platform is killed."""
    rng = Random(seed)
    bounds: list[dict[str, Any]] = [
        {"rows": 3},
        {"rows": 40},
        {"bytes": 1000},
        {"seconds": 1e-4},
        {"rows": 9, "bytes": 99},
    ]
    budget, sql = Budget(**bounds[rng.randrange(5)]), TEXTS[seed % 8]
    with opened(tmp_path, budget, sql, pacing=Pacing(rng.choice((None, 50)), max_behind=1 << 30)) as engine:
        for other in rng.sample(TEXTS, 2):
            engine.create_query(other, id=f"other {TEXTS.index(other)}", budget=Budget(bytes=500))
        for number in range(5):
            epoch(engine, number, rng.randrange(2, 8), rng.choice((1, 3)))
            match rng.randrange(6):
                case 0:
                    engine.restart(kill=True)
                case 1:
                    engine.apply(ScaleTo(rng.randrange(1, 4)))
                case 2:
                    engine.apply(ForceGroups((("mine", rng.randrange(2)),)))
                case 3:
                    engine.apply(Optimize("full"))
        engine.raise_watermark(None)
        engine.run_epoch()
        settle(engine, 5000)
        assert rows(engine, "mine") == rows(engine, "free") and rows(engine, "free")
        state = engine.engine.state
        assert not state.pins and not state.postponed and watermarks(engine)[0] == watermarks(engine)[1]


@pytest.mark.parametrize("store", [None, "store"])
def test_budgets_hold_on_spark(tmp_path: Path, spark: Executor, store: str | None) -> None:
    place = None if store is None else str(tmp_path / store)
    with opened(tmp_path / "state", Budget(rows=90, bytes=3000, seconds=60), executor=spark, store=place) as engine:
        engine.create_query(SQL, id="sample", budget=Budget(rows=60, at_limit=AtLimit.SAMPLE))
        for number in range(2):
            epoch(engine, number)
        assert engine.engine.query("mine").epochs_behind > 0
        assert engine.engine.query("sample").incomplete is not None
        engine.restart(kill=True)
        settle(engine)
        assert rows(engine, "mine") == rows(engine, "free") > rows(engine, "sample")


# -- restarts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kill", [False, True], ids=["closed", "killed"])
@pytest.mark.parametrize("at_limit", AtLimit)
def test_a_restart_in_between_changes_nothing(tmp_path: Path, at_limit: AtLimit, kill: bool) -> None:
    budget = Budget(rows=60, retained_bytes=1 << 30, state_bytes=1 << 30, at_limit=at_limit)
    found = []
    for name in ("calm", "restarted"):
        with opened(tmp_path / name, budget) as engine:
            for number in range(4):
                epoch(engine, number, tuples=20 if number else 2)
                if name == "restarted":
                    before = engine.engine.query("mine")
                    engine.restart(kill=kill)
                    assert engine.engine.query("mine") == before
            settle(engine)
            info = engine.engine.query("mine")
            assert info.budget == budget
            comparable = replace(info, usage=info.usage._replace(seconds=0.0))
            found.append((comparable, rows(engine, "mine"), rows(engine, "free")))
    assert found[0] == found[1]
