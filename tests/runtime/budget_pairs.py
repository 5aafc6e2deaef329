"""Two queries with the same statement side by side, one of them with a budget: what tests of budgets share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from ajoin.testing import LocalEngine
from runtime.api import (
    Budget,
)
from runtime.delivery.schedule import InStep
from runtime.engine.config import EngineConfig
from runtime.execution.executor import Executor

WINDOW = "WINDOW TUMBLING (SIZE 100 MS)"
SQL = f"SELECT A.n, B.x FROM A JOIN B ON A.k = B.k {WINDOW}"
DEEP = f"SELECT A.n, B.x, C.y FROM A JOIN B ON A.k = B.k JOIN C ON B.k = C.k {WINDOW}"
COLUMNS = {"A": {"n": "BIGINT"}, "B": {"x": "BIGINT"}, "C": {"y": "BIGINT"}}
ALL = ("free", "mine")
COUNT = f"SELECT COUNT(*) FROM A JOIN B ON A.k = B.k {WINDOW}"
HOPPING = SQL.replace(WINDOW, "WINDOW HOPPING (SIZE 150 MS, ADVANCE BY 60 MS)")
FACTORIZED = SQL + " EMIT FACTORIZED"
RARE = f"SELECT A.n, B.x FROM A JOIN B ON A.k = B.k WHERE (A.n + B.x) % 50 = 7 {WINDOW}"


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


def until(delivered: Counter[tuple[Any, ...]], mark: int) -> Counter[tuple[Any, ...]]:
    """Those of windows that end at `mark` or before."""
    return Counter({row: n for row, n in delivered.items() if row[1] <= mark})
