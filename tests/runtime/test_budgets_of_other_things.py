"""What a budget may limit beside rows: bytes, results that are kept, seconds, and a share of the state."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from runtime.api import (
    Budget,
    Cursor,
    QueryState,
    Usage,
)
from runtime.control.budgets import Pacing, state_bytes
from runtime.control.events import LostResults, ResultsExpired
from runtime.control.fold import handle
from tests.runtime.budget_pairs import (
    ALL,
    COUNT,
    DEEP,
    FACTORIZED,
    RARE,
    SQL,
    WINDOW,
    epoch,
    opened,
    rows,
    settle,
    until,
)


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
