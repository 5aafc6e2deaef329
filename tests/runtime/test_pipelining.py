"""The source stage of the next epoch runs ahead of this epoch's joins; nobody can tell from the rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ajoin.sql import parse_query
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import CreateQuery, DeleteQuery, ForceOrder
from runtime.connectors.base import ConnectorSpec
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor

SQL = {
    "q1": "SELECT * FROM A JOIN B ON A.k = B.k WHERE A.x < 60 WINDOW TUMBLING (SIZE 1 SECOND)",
    "q2": (
        "SELECT * FROM A JOIN B ON A.k = B.k JOIN C ON B.j = C.j WINDOW HOPPING (SIZE 2 SECONDS, ADVANCE BY 1 SECOND)"
    ),
}


class Watching(LocalExecutor):
    """A local executor with two cores that remembers the order of stages."""

    cores = 2

    def __init__(self) -> None:
        self.stages: list[str] = []

    def run(self, name: str, stage: Any, shared: Any, tasks: Any) -> Any:
        self.stages.append(name)
        return super().run(name, stage, shared, tasks)


def open_engine(directory: Path, pipelined: bool) -> tuple[Engine, Watching]:
    executor = Watching()
    engine = Engine.open(directory, executor, EngineConfig(pipelined=pipelined), lambda: 0)
    return engine, executor


def declare(engine: Engine, **bounds: int) -> None:
    for seed, name in enumerate("ABC"):
        columns = tuple(Column(c, ColumnType.BIGINT) for c in ("k", "j", "x"))
        typed = (Column("ts", ColumnType.TIMESTAMP), *columns)
        schema = StreamSchema(name, typed, "ts", watermark_delay_ms=200, **bounds)
        options = {
            "rate": "max", "batch": "200", "seed": str(seed), "event_rate": "400", "start_ms": "0",
            "disorder_ms": "500", "limit": "2000",
            "column.k": "uniform(0,199)", "column.j": "uniform(0,199)", "column.x": "uniform(0,100)",
        }  # fmt: skip
        engine.create_stream(schema, ConnectorSpec("generator", tuple(options.items())))


def live(
    directory: Path, pipelined: bool, restart_after: int | None = None
) -> tuple[dict[str, Counter[Any]], list[str]]:
    engine, executor = open_engine(directory, pipelined)
    declare(engine)
    rows: dict[str, Counter[Any]] = {}
    for epoch in range(1, 12):
        if epoch == 1:
            engine.apply([CreateQuery("q1", parse_query(SQL["q1"], engine.schemas()))])
        if epoch == 3:
            engine.apply([CreateQuery("q2", parse_query(SQL["q2"], engine.schemas()))])
        if epoch == 6:
            engine.apply([ForceOrder("q2", ("A", ("B", "C")))])
        if epoch == 8:
            engine.apply([DeleteQuery("q1")])
        if epoch == restart_after:
            engine.abandon()
            engine, executor = open_engine(directory, pipelined)
        engine.run_epoch()
        for batch in engine.delivered(engine.epoch):
            found = rows.setdefault(batch.query_id, Counter())
            found.update(tuple(r.values()) for r in batch.rows.to_pylist())
    for stream in engine.streams():
        assert stream.tuples + stream.late_dropped == 2000
    engine.close()
    return rows, executor.stages


def test_rows_are_the_same_with_and_without(tmp_path: Path) -> None:
    plain, _ = live(tmp_path / "plain", pipelined=False)
    ahead, stages = live(tmp_path / "ahead", pipelined=True)
    assert plain == ahead
    assert sum(plain["q1"].values()) > 100 and sum(plain["q2"].values()) > 100
    # the pipeline did run ahead: some epoch's source stage began before the joins of the epoch before it
    order = {name: i for i, name in reversed(list(enumerate(stages)))}
    assert any(order.get(f"epoch {e + 1}: source", 99) < order.get(f"epoch {e}: join 1", -1) for e in range(1, 11))


@pytest.mark.parametrize("epoch", [2, 5, 7])
def test_a_crash_forgets_what_ran_ahead(tmp_path: Path, epoch: int) -> None:
    plain, _ = live(tmp_path / "plain", pipelined=False)
    crashed, _ = live(tmp_path / "crashed", pipelined=True, restart_after=epoch)
    assert plain == crashed
