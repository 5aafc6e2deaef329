"""Queries that make more rows than they may: spread over epochs, cut to a sample that says so, or suspended.

The joins are exact squares of equal keys, so how many rows there must be is known without an oracle.
"""

# ruff: noqa: E501  (one kind a line reads better)
from __future__ import annotations

from collections.abc import Generator
from typing import Any

from runtime.api import AtLimit, Budget, QueryState
from runtime.control.budgets import OVER_BUDGET
from tests.poison.kinds import SERVED, Ending, How, Kind, invalid, one_call
from tests.poison.scene import Scene
from tests.poison.service import EPOCH_ROWS, QUERY_ROWS

Steps = Generator[None, None, Ending]
MANY = 300
SQUARE = MANY * MANY


def _exploding(scene: Scene, **budget: Any) -> None:
    """A query with `SQUARE` rows in its next epoch."""
    left, right = scene.own("-l", judged=False), scene.own("-r", judged=False)
    sql = scene.over(left, right, select="a.d AS l, b.d AS r")
    scene.hostile.create_query(sql, id=scene.name, budget=Budget(**budget))
    scene.told.readers[scene.name] = scene.hostile
    for stream in (left, right):
        scene.push(stream, [{"k": 7, "d": n, "ts": 100 + n} for n in range(MANY)])


def _all_rows(scene: Scene) -> Steps:
    """They come over several epochs, each once."""
    yield from scene.arrival(scene.name, SQUARE)
    rows = [(row["l"], row["r"]) for row in scene.rows(scene.name)]
    assert len(rows) == len(set(rows)) == SQUARE, f"{len(rows):,} rows, {len(set(rows)):,} of them different"
    info = scene.info(scene.name)
    assert info.state == QueryState.RUNNING and info.epochs_behind == 0 and info.incomplete is None
    return SERVED


def _paced(scene: Scene) -> Steps:
    """More rows than any query may make in an epoch, by the setting epoch_rows."""
    _exploding(scene)
    return (yield from _all_rows(scene))


def _pauses(scene: Scene) -> Steps:
    _exploding(scene, rows=SQUARE // 5)
    return (yield from _all_rows(scene))


def _samples(scene: Scene) -> Steps:
    _exploding(scene, rows=SQUARE // 5, at_limit=AtLimit.SAMPLE)
    yield
    scene.until(lambda: scene.info(scene.name).rows > 0, "no sample comes")
    yield
    rows = {(row["l"], row["r"]) for row in scene.rows(scene.name)}
    info = scene.info(scene.name)
    assert 0 < len(rows) == info.rows < SQUARE and info.state == QueryState.RUNNING, f"{len(rows):,} rows"
    return Ending(How.LIMITED, "", "a sample, and it says so" if info.incomplete is not None else "a silent sample")


def _fails(scene: Scene) -> Steps:
    _exploding(scene, rows=SQUARE // 5, at_limit=AtLimit.FAIL)
    yield
    ending = scene.suspension(scene.name)
    return Ending(ending.how, "", OVER_BUDGET if ending.reason.startswith(OVER_BUDGET) else ending.reason)


def _asks(budget: Budget) -> Any:
    return lambda scene: scene.hostile.create_query(scene.join(), id=scene.name, budget=budget)


BUDGETS = (
    one_call("budget-of-nothing", "a budget of no rows", invalid("BUDGET_INVALID"), _asks(Budget(rows=0))),
    one_call("budget-negative", "a budget of less than no seconds", invalid("BUDGET_INVALID"), _asks(Budget(seconds=-1.0))),
    one_call("budget-too-large", "a budget beyond the cap", invalid("BUDGET_TOO_LARGE"), _asks(Budget(rows=QUERY_ROWS + 1))),
    Kind("explodes", f"{SQUARE:,} rows, where an epoch has room for {EPOCH_ROWS:,}", SERVED, _paced),
    Kind("over-budget-pause", "five times its budget, at_limit pause", SERVED, _pauses),
    Kind("over-budget-sample", "the same, at_limit sample", Ending(How.LIMITED, "", "a sample, and it says so"), _samples),
    Kind("over-budget-fail", "the same, at_limit fail", Ending(How.SUSPENDED, "", OVER_BUDGET), _fails),
)  # fmt: skip
