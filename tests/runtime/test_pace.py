"""A query with too much to do: the others' epochs stay short, its own rows come later, and all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ajoin.sql import parse_query
from runtime.api import Budget, CreateQuery, Optimize, QueryState, ScaleTo
from runtime.control.budgets import OVER_BUDGET, Pacing
from runtime.control.state import State
from tests.runtime.rig import Rig

PACE = 400
ROWS = 60
"""Tuples of each stream in an epoch: 3,600 pairs of equal `h`, nine times what may be made."""

WINDOW = "WINDOW TUMBLING (SIZE 1 SECOND)"
HEAVY = f"SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.h = B.h {WINDOW}"
GOOD = f"SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k {WINDOW}"
THREE = f"SELECT A.n AS a, B.n AS b, C.n AS c FROM A JOIN B ON A.h = B.h JOIN C ON B.k = C.k {WINDOW}"
HOPPING = HEAVY.replace(WINDOW, "WINDOW HOPPING (SIZE 1 SECOND, ADVANCE BY 250 MILLISECONDS)")
MANY_SLICES = GOOD.replace(WINDOW, "WINDOW HOPPING (SIZE 100 MILLISECONDS, ADVANCE BY 1 MILLISECOND)")
UNTOLD = HEAVY.replace(WINDOW, f"WHERE A.n + B.n < 0 {WINDOW}")


def rig(directory: Path, pace: int | None = PACE, max_behind: int = 1000, **config: Any) -> Rig:
    made = Rig(directory, pacing=Pacing(pace, max_behind), **config)
    for name in "ABC":
        made.stream(name, k="BIGINT", h="BIGINT", n="BIGINT")
    made.create("good", GOOD)
    return made


def feed(r: Rig, number: int) -> Any:
    rows = [(i, 7, 1000 * number + i, 1000 * number + i) for i in range(ROWS)]
    return r.epoch(dict.fromkeys("ABC", rows))


def caught_up(r: Rig) -> int:
    epochs = 0
    while r.engine.state.behind:
        r.epoch()
        epochs += 1
    return epochs


def rows(r: Rig, id: str) -> Counter[Any]:
    return Counter(tuple(sorted(row.items())) for row in r.local.rows(id))


@pytest.fixture
def paced(tmp_path: Path) -> Iterator[Rig]:
    made = rig(tmp_path / "paced")
    yield made
    made.local.close()


@pytest.mark.parametrize("sql", [HEAVY, THREE, HOPPING, MANY_SLICES], ids=["two", "three", "hopping", "slices"])
def test_every_epoch_is_short_and_every_row_comes_once(tmp_path: Path, paced: Rig, sql: str) -> None:
    whole = rig(tmp_path / "whole", pace=None)
    for r in (paced, whole):
        r.create("heavy", sql)
    for number in range(3):
        made = [feed(r, number).rows for r in (paced, whole)]
        assert made[1] > 3 * PACE, "it must be too much for an epoch"
        assert made[0] <= 2 * PACE + ROWS, "what is done now, and a portion of what is left"
        assert rows(paced, "good") == rows(whole, "good"), "who has little to do waits for nothing"
    assert caught_up(paced) > 5
    assert rows(paced, "heavy") == rows(whole, "heavy")
    assert paced.engine.state.pins == {}


def test_nobody_is_told_that_a_window_is_complete_before_it_is(paced: Rig) -> None:
    paced.create("heavy", HEAVY)
    for number in range(3):
        feed(paced, number)
    assert paced.engine.query("good").watermark == 2000 + ROWS - 1
    heavy = paced.engine.query("heavy")
    assert heavy.watermark is None and heavy.epochs_behind == 3
    seen = []
    while paced.engine.state.behind:
        paced.epoch()
        mark = paced.engine.query("heavy").watermark or 0
        seen.append(mark)
        complete = {row["window_start"] for row in paced.local.rows("heavy") if row["window_end"] <= mark}
        per_window = Counter(row["window_start"] for row in paced.local.rows("heavy"))
        assert all(per_window[start] == ROWS * ROWS for start in complete)
    assert seen == sorted(seen) and len(set(seen)) >= 3 and seen[-1] == 2000 + ROWS - 1


def test_a_count_closes_its_windows_with_the_right_numbers(paced: Rig) -> None:
    paced.create("counted", f"SELECT COUNT(*) AS n FROM A JOIN B ON A.h = B.h WHERE A.n + B.n >= 0 {WINDOW}")
    for number in range(3):
        feed(paced, number)
    paced.local.raise_watermark(None)
    paced.epoch()
    caught_up(paced)
    assert [(row["window_start"], row["n"]) for row in paced.local.rows("counted")] == [
        (1000 * number, ROWS * ROWS) for number in range(3)
    ]


def test_pairs_that_lead_to_no_row_count_too(paced: Rig) -> None:
    paced.create("heavy", UNTOLD)
    feed(paced, 0)
    assert paced.engine.state.behind
    assert caught_up(paced) > 3
    assert paced.engine.query("heavy").rows == 0


def test_a_portion_is_of_what_is_looked_at_not_of_what_comes_out(paced: Rig) -> None:
    paced.create("heavy", UNTOLD)
    feed(paced, 0)
    few = 15  # 225 pairs: two such pieces are more than a portion
    for number in range(1, 9):
        rows = [(i, 7, 1000 * number + i, 1000 * number + i) for i in range(few)]
        paced.epoch(dict.fromkeys("ABC", rows))
    sizes = []
    while paced.engine.state.behind:
        sizes.append(len(paced.engine.state.postponed))
        paced.epoch()
    assert max(before - after for before, after in zip(sizes, [*sizes[1:], 0], strict=True)) <= 2


def test_it_survives_plan_changes_rescaling_and_restarts(tmp_path: Path, paced: Rig) -> None:
    whole = rig(tmp_path / "whole", pace=None)
    for r in (paced, whole):
        r.create("heavy", THREE)
    for number in range(4):
        for r in (paced, whole):
            feed(r, number)
        if number == 1:
            paced.control(ScaleTo(5))
            paced.reopen(kill=True)
        if number == 2:
            assert paced.engine.optimize("incremental").applied, "it gets a group of its own"
            assert "apart: heavy" in paced.engine.explain(id="heavy")
            paced.create("another", GOOD)
    caught_up(paced)
    assert rows(paced, "heavy") == rows(whole, "heavy") and rows(paced, "good") == rows(whole, "good")


def test_files_stay_as_long_as_they_are_needed(paced: Rig) -> None:
    paced.create("heavy", HEAVY)
    feed(paced, 0)
    paced.local.raise_watermark(None)
    paced.epoch()  # no open window is left: only postponed work needs these buckets
    state: State = paced.engine.state
    assert state.pins and not state.sources
    folder = paced.directory / "buckets"
    assert {f.name for f in folder.iterdir()} == state.bucket_files
    paced.reopen(kill=True)
    caught_up(paced)
    assert list(folder.iterdir()) == []
    assert sum(rows(paced, "heavy").values()) == ROWS * ROWS


def test_who_is_deleted_takes_its_work_along(paced: Rig) -> None:
    paced.create("heavy", HEAVY)
    feed(paced, 0)
    feed(paced, 1)
    paced.delete("heavy")
    assert paced.engine.query("heavy").active_until is None, "no window was complete"
    feed(paced, 2)
    assert not paced.engine.state.postponed and not paced.engine.state.pins
    assert sum(rows(paced, "good").values()) == 3 * ROWS


def test_who_cannot_catch_up_is_suspended(tmp_path: Path) -> None:
    r = rig(tmp_path / "s", max_behind=5)
    r.create("heavy", HEAVY)
    for number in range(8):
        feed(r, number)
    heavy = r.engine.query("heavy")
    assert heavy.state == QueryState.SUSPENDED and heavy.suspended.startswith(OVER_BUDGET)
    assert "max_epochs_behind" in heavy.suspended
    assert sum(rows(r, "good").values()) == 8 * ROWS
    assert not r.engine.state.pins
    r.local.close()


def test_several_that_are_behind_share_one_portion(paced: Rig) -> None:
    for n in range(4):
        paced.create(f"heavy{n}", HEAVY)
    feed(paced, 0)
    assert len(paced.engine.state.behind) == 4
    before = {n: paced.engine.query(f"heavy{n}").rows for n in range(4)}
    assert feed(paced, 1).rows <= PACE + ROWS
    after = {n: paced.engine.query(f"heavy{n}").rows for n in range(4)}
    assert all(after[n] > before[n] for n in range(4)), "nobody waits for the others to finish"
    caught_up(paced)
    assert all(sum(rows(paced, f"heavy{n}").values()) == 2 * ROWS * ROWS for n in range(4))


def test_work_whose_bucket_is_damaged_is_given_up_and_nothing_else(paced: Rig) -> None:
    paced.create("heavy", HEAVY)
    feed(paced, 0)
    paced.local.raise_watermark(900)
    paced.epoch()
    pinned = sorted(f for ref in paced.engine.state.pins.values() for f in ref.files)
    paced.reopen()
    for name in pinned:
        path = paced.directory / "buckets" / name
        data = bytearray(path.read_bytes())
        data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
        path.write_bytes(data)
    feed(paced, 1)
    heavy = paced.engine.query("heavy")
    assert heavy.state == QueryState.SUSPENDED and "damaged" in heavy.suspended
    feed(paced, 2)
    assert sum(rows(paced, "good").values()) == 3 * ROWS


def test_an_own_budget_is_tighter_than_the_pace(paced: Rig) -> None:
    query = parse_query(HEAVY, paced.engine.schemas())
    paced.control(CreateQuery("heavy", query, budget=Budget(rows=50)))
    feed(paced, 0)
    assert paced.engine.query("heavy").rows <= 50
    caught_up(paced)
    assert sum(rows(paced, "heavy").values()) == ROWS * ROWS
    paced.control(Optimize("full"))
