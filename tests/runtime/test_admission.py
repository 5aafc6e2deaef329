"""Admission control: a query that would cost too much is refused, and the running ones do not notice."""

from __future__ import annotations

from pathlib import Path

from ajoin.sql import parse_query
from optimizer.errors import ResourceExhausted
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import CreateQuery, QueryInfo
from runtime.connectors.base import ConnectorSpec
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor

TWO = "SELECT A.k FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)"
MORE = "SELECT A.k FROM A JOIN B ON A.k = B.k JOIN C ON B.k = C.k WINDOW TUMBLING (SIZE 60 SECONDS)"


def open_engine(directory: Path, max_cost: float | None) -> Engine:
    engine = Engine.open(directory, LocalExecutor(), EngineConfig(max_cost=max_cost), lambda: 0)
    for name in "ABC":
        if name not in engine.schemas():
            columns = (Column("ts", ColumnType.TIMESTAMP), Column("k", ColumnType.BIGINT))
            engine.create_stream(StreamSchema(name, columns, "ts"), ConnectorSpec("push"))
    return engine


def test_what_costs_too_much_is_refused_and_nothing_else_changes(tmp_path: Path) -> None:
    free = open_engine(tmp_path / "free", None)
    free.apply([CreateQuery("q1", parse_query(TWO, free.schemas()))])
    one = free.parts.planner.estimate(free.plan, free.state.running).cost
    free.close()

    engine = open_engine(tmp_path / "limited", 1.01 * one)
    accepted, refused = engine.apply(
        [CreateQuery(id, parse_query(sql, engine.schemas())) for id, sql in (("q1", TWO), ("q2", MORE))]
    )
    assert isinstance(accepted, QueryInfo)
    assert isinstance(refused, ResourceExhausted) and refused.reason == "COST_LIMIT"
    assert list(engine.plan.by_uid) == [accepted.uid]
    version = engine.plan.version
    engine.push("A", [{"ts": 1, "k": 7}])
    engine.push("B", [{"ts": 2, "k": 7}])
    assert engine.run_epoch().rows == 1
    assert engine.plan.version == version
    engine.close()
