"""A few tuples through the real operators, so that compiled code is loaded in exactly the variants that epochs use.

Numba compiles a kernel per kind of argument: memory-mapped (read-only) arrays are another kind than fresh ones, one
word of query sets the same kind as many. Running two epochs of a handful of tuples through source, join and sink
loads everything an ordinary epoch needs. A Spark daemon does this before it forks its workers; `make setup` does it
to fill the cache.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from optimizer.model.expressions import Aggregate, ColumnRef, Compare, Expr, Literal
from optimizer.model.query import EquiPredicate, Output, Query, Source
from optimizer.model.types import Column, ColumnType, StreamSchema
from optimizer.model.windows import PeriodicWindow
from runtime.api import CreateQuery
from runtime.connectors.base import ConnectorSpec
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from runtime.kernels import warm

_COLUMNS = (("ts", ColumnType.TIMESTAMP), ("k", ColumnType.BIGINT), ("j", ColumnType.INT), ("s", ColumnType.STRING))


def warm_up() -> None:
    """Takes a second or two; the first time on a machine, as long as compilation takes."""
    warm.warm_up()
    with tempfile.TemporaryDirectory(prefix="ajoin-warm-") as directory:
        engine = Engine.open(Path(directory), LocalExecutor(), EngineConfig(partitions=1), lambda: 0)
        for name in "ABC":
            columns = tuple(Column(c, type) for c, type in _COLUMNS)
            engine.create_stream(StreamSchema(name, columns, "ts"), ConnectorSpec("push"))
        engine.apply([CreateQuery(f"q{i}", query) for i, query in enumerate(_queries())])
        for epoch in range(2):
            for name in "ABC":
                rows = [{"ts": 700 * epoch + i, "k": i % 3, "j": i % 2, "s": "x"} for i in range(9)]
                engine.push(name, rows)
            engine.run_epoch()
        engine.close()


def _queries() -> list[Query]:
    short, long = PeriodicWindow(1000, 1000), PeriodicWindow(2000, 500)
    more = Compare(">", _column("A", "k"), Literal(0, ColumnType.BIGINT))
    two = (_equal("A", "B", "k"),)
    return [
        _query("AB", short, (), two, _column("A", "k")),
        _query("AB", long, (("A", more),), two, _column("B", "s")),
        _query("AB", short, (), two, Aggregate("COUNT", (), ColumnType.BIGINT)),
        _query("ABC", short, (), (*two, _equal("B", "C", "j")), _column("C", "k")),
        _query("AC", short, (), (_equal("A", "C", "s"),), _column("C", "k")),
    ]


def _column(alias: str, name: str) -> ColumnRef:
    return ColumnRef(alias, name, dict(_COLUMNS)[name])


def _equal(left: str, right: str, column: str) -> EquiPredicate:
    return EquiPredicate(_column(left, column), _column(right, column), dict(_COLUMNS)[column])


def _query(
    sources: str,
    window: PeriodicWindow,
    selections: tuple[tuple[str, Expr], ...],
    equi: tuple[EquiPredicate, ...],
    output: Expr,
) -> Query:
    names = tuple(Source(s, s) for s in sources)
    return Query("", names, window, selections, equi, (), (Output("x", output),))


if __name__ == "__main__":
    warm_up()
