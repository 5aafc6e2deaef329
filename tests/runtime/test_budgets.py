"""What a query does that is over its budget: it waits, leaves rows out or stops, and nobody else notices.

Two queries with the same statement run side by side, one of them with a budget; what the other delivers is what the
first would have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ajoin.testing import LocalEngine
from runtime.api import (
    AtLimit,
    Budget,
    Cursor,
    ForceGroups,
    Incomplete,
    Optimize,
    QueryState,
    ResumeQuery,
    ScaleTo,
    Usage,
)
from runtime.control.budgets import OVER_BUDGET, Pacing, state_bytes
from runtime.control.events import LostResults, ResultsExpired
from runtime.control.fold import handle
from runtime.delivery.schedule import InStep
from runtime.engine.config import EngineConfig
from runtime.execution.executor import Executor

WINDOW = "WINDOW TUMBLING (SIZE 100 MS)"
SQL = f"SELECT A.n, B.x FROM A JOIN B ON A.k = B.k {WINDOW}"
DEEP = f"SELECT A.n, B.x, C.y FROM A JOIN B ON A.k = B.k JOIN C ON B.k = C.k {WINDOW}"
COLUMNS = {"A": {"n": "BIGINT"}, "B": {"x": "BIGINT"}, "C": {"y": "BIGINT"}}
ALL = ("free", "mine")


@contextmanager
def opened(
    directory: Path,
    budget: Budget,
    sql: str = SQL,
    lateness: int = 0,
    executor: Executor | None = None,
    **config: Any,
) -> Iterator[LocalEngine]:
    """With the queries `free` and `mine`, which are alike but for the budget."""
    settings = {"delivery": InStep, "partitions": 2} | config
    with LocalEngine(directory, config=EngineConfig(**settings), executor=executor) as engine:
        for name, more in COLUMNS.items():
            columns = {"k": "BIGINT", **more, "ts": "TIMESTAMP"}
            engine.create_stream(name, columns=columns, allowed_lateness_ms=lateness)
        engine.create_query(sql, id="free")
        engine.create_query(sql, id="mine", budget=budget)
        yield engine


def epoch(engine: LocalEngine, number: int, tuples: int = 20, keys: int = 3) -> None:
    """One with tuples in [40 * number, 40 * number + 40)."""
    rng = Random(number)
    for name, more in COLUMNS.items():
        (column,) = more
        made = [
            {"k": rng.randrange(keys), column: 1000 * number + i, "ts": 40 * number + rng.randrange(40)}
            for i in range(tuples)
        ]
        engine.push(name, *made)
    engine.run_epoch()


def rows(engine: LocalEngine, id: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in engine.rows(id))


def settle(engine: LocalEngine, most: int = 2000) -> int:
    """Epochs without tuples until nobody is behind; how many."""
    for count in range(most):
        if not engine.engine.state.behind:
            return count
        engine.run_epoch()
    raise AssertionError("it never catches up")


def watermarks(engine: LocalEngine) -> tuple[int, int]:
    free, mine = (engine.engine.query(id).watermark for id in ALL)
    assert free is not None
    return free, -1 if mine is None else mine


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


def until(delivered: Counter[tuple[Any, ...]], mark: int) -> Counter[tuple[Any, ...]]:
    """Those of windows that end at `mark` or before."""
    return Counter({row: n for row, n in delivered.items() if row[1] <= mark})


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


COUNT = f"SELECT COUNT(*) FROM A JOIN B ON A.k = B.k {WINDOW}"
HOPPING = SQL.replace(WINDOW, "WINDOW HOPPING (SIZE 150 MS, ADVANCE BY 60 MS)")
FACTORIZED = SQL + " EMIT FACTORIZED"


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


# -- bytes, retention, seconds, state -----------------------------------------------------------------------------


def test_bytes_are_paced_by_what_a_row_took_so_far(tmp_path: Path) -> None:
    with opened(tmp_path, Budget()) as engine:
        for number in range(4):
            epoch(engine, number)
        per_epoch = engine.engine.query("mine").usage.bytes // 4
    with opened(tmp_path / "paced", Budget(bytes=per_epoch // 8)) as engine:
        taken = []
        for number in range(4):
            epoch(engine, number)
            taken.append(engine.engine.query("mine").usage.bytes)
        assert all(b - a < per_epoch / 2 for a, b in pairwise(taken)), "from the second epoch on"
        settle(engine)
        assert rows(engine, "mine") == rows(engine, "free")
        usage = engine.engine.query("mine").usage
        assert usage.bytes == usage.retained_bytes >= taken[-1]


RARE = f"SELECT A.n, B.x FROM A JOIN B ON A.k = B.k WHERE (A.n + B.x) % 50 = 7 {WINDOW}"
"""Of hundreds of rows that are counted, conditions leave a few."""


@pytest.mark.parametrize("sql", [RARE, COUNT, FACTORIZED], ids=["conditions", "counts", "lists"])
def test_who_delivers_less_than_its_bytes_is_not_held_up_by_rows_that_are_only_counted(
    tmp_path: Path, sql: str
) -> None:
    with opened(tmp_path, Budget(), sql) as engine:
        for number in range(6):
            epoch(engine, number)
        taken = engine.engine.query("mine").usage.bytes
        assert taken > 0
    with opened(tmp_path / "bounded", Budget(bytes=taken * 2), sql) as engine:
        for number in range(6):
            epoch(engine, number)
            assert not engine.engine.state.behind
        assert rows(engine, "mine") == rows(engine, "free")
        assert engine.engine.query("mine").usage.bytes == taken


def test_time_is_whose_work_it_was_and_not_whose_rows(tmp_path: Path) -> None:
    never = SQL.replace(WINDOW, f"WHERE A.n + B.x < 0 {WINDOW}")
    one = SQL.replace(WINDOW, f"WHERE A.k = 0 {WINDOW}")
    with opened(tmp_path, Budget(seconds=1e9), one, partitions=1) as engine:
        engine.create_query(never, id="never")
        epoch(engine, 0, tuples=200, keys=100)
        state = engine.engine.state
        mine, hidden = (state.queries[state.names[id]] for id in ("mine", "never"))
        assert mine.rows > 0 and hidden.rows == 0
        assert hidden.work > 10 * mine.work > 0
        assert hidden.usage.seconds > 10 * mine.usage.seconds


def test_a_query_waits_until_its_results_expire_and_goes_on(tmp_path: Path) -> None:
    with opened(tmp_path, Budget()) as engine:
        epoch(engine, 0)
        once = engine.engine.query("mine").usage.retained_bytes
    with opened(tmp_path / "kept", Budget(retained_bytes=once), retention_epochs=4) as engine:
        seen: dict[str, Counter[tuple[Any, ...]]] = {id: Counter() for id in ALL}
        cursors: dict[str, Cursor | None] = dict.fromkeys(ALL)
        waited = 0

        def read() -> None:
            nonlocal waited
            for id in ALL:
                while batches := engine.engine.read_results(id, cursors[id], 1 << 20):
                    seen[id].update(tuple(row.values()) for batch in batches for row in batch.rows.to_pylist())
                    cursors[id] = batches[-1].cursor
            waited += engine.engine.query("mine").usage.retained_bytes >= once

        for number in range(3):
            epoch(engine, number)
            read()
        assert seen["mine"] < seen["free"]
        for _ in range(60):
            if not engine.engine.state.behind:
                break
            engine.run_epoch()
            read()
        assert seen["mine"] == seen["free"] and waited > 4


def test_who_waits_too_long_for_results_to_expire_is_told_so(tmp_path: Path) -> None:
    with opened(tmp_path, Budget(retained_bytes=1), pacing=Pacing(None, max_behind=2)) as engine:
        for number in range(6):
            epoch(engine, number)
        info = engine.engine.query("mine")
        assert info.state == QueryState.SUSPENDED and "less than 1 bytes of its results are kept" in info.suspended
        assert info.rows > 0 and info.active_until is not None
        assert until(rows(engine, "mine"), info.active_until) == until(rows(engine, "free"), info.active_until)


def test_results_of_which_nobody_knows_the_size_do_not_count_for_ever(tmp_path: Path) -> None:
    with opened(tmp_path, Budget()) as engine:
        epoch(engine, 0)
        state = engine.engine.state
        uid = state.names["mine"]
        record = state.queries[uid]
        assert record.usage.retained_bytes > 0 and record.last is not None
        expired = handle(state, ResultsExpired(epochs=(1,), lost=(LostResults(uid, record.last, 0),))).state
        assert expired.queries[uid].usage == replace_retained(record.usage, 0)


def replace_retained(usage: Usage, size: int) -> Usage:
    return usage._replace(retained_bytes=size)


def test_seconds_pace_a_query_that_takes_more_than_it_may(tmp_path: Path) -> None:
    with opened(tmp_path, Budget(seconds=1e-5)) as engine:
        epoch(engine, 0, tuples=60)
        first = engine.engine.query("mine")
        assert first.usage.seconds > 1e-5, "its first rows tell what a row takes"
        per_row = first.usage.seconds / first.rows
        epoch(engine, 1, tuples=60)
        epoch(engine, 2, tuples=60)
        paced = engine.engine.query("mine")
        assert paced.epochs_behind > 0
        assert (paced.rows - first.rows) / 2 <= 1e-5 / per_row + 20 * 2, "and so many fit, or one item of each task"
        assert paced.rows < engine.engine.query("free").rows / 2


def test_a_share_of_the_state_that_is_too_large_ends_a_query(tmp_path: Path) -> None:
    with opened(tmp_path, Budget(state_bytes=1 << 40), sql=DEEP) as engine:
        epoch(engine, 0)
        state = engine.engine.state
        (held,) = state_bytes(state).values()
        sources = sum(r.bytes for r in state.sources.values())
        joined = sum(r.bytes for r in state.joined.values())
        assert held == pytest.approx((sources + joined) / 2, abs=1), "two queries use all of it"
    with opened(tmp_path / "small", Budget(state_bytes=held // 2), sql=DEEP) as engine:
        epoch(engine, 0)
        info = engine.engine.query("mine")
        assert info.state == QueryState.SUSPENDED and f"{held // 2:,} are allowed" in info.suspended
        epoch(engine, 1)
        assert engine.engine.query("free").state == QueryState.RUNNING


def test_postponed_work_counts_as_state(tmp_path: Path) -> None:
    with opened(tmp_path, Budget(rows=1, state_bytes=1 << 40)) as engine:
        for number in range(12):
            epoch(engine, number)
        state = engine.engine.state
        (held,) = state_bytes(state).values()
        assert held > sum(r.bytes for r in state.sources.values()), "what the others need is less than what it pins"


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
