"""A query's own sink gets every row, also when the platform dies before handing over, or the sink fails for a while."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ajoin.sql import parse_query
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import CreateQuery
from runtime.connectors import sinks
from runtime.connectors.base import ConnectorSpec
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from runtime.results.delivery import Delivery

SQL = "SELECT A.k FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)"


def open_engine(directory: Path) -> Engine:
    return Engine.open(directory / "state", LocalExecutor(), EngineConfig(), lambda: 0)


def begin(directory: Path) -> Engine:
    engine = open_engine(directory)
    for name in "AB":
        columns = (Column("ts", ColumnType.TIMESTAMP), Column("k", ColumnType.BIGINT))
        engine.create_stream(StreamSchema(name, columns, "ts"), ConnectorSpec("push"))
    sink = ConnectorSpec("parquet", (("path", str(directory / "out")),))
    engine.apply([CreateQuery("q", parse_query(SQL, engine.schemas()), (sink,))])
    return engine


def feed(engine: Engine, key: int) -> None:
    engine.push("A", [{"ts": 1000 * key, "k": key}])
    engine.push("B", [{"ts": 1000 * key + 1, "k": key}])


def written(directory: Path) -> list[int]:
    files = sorted((directory / "out").rglob("*.parquet"))
    return sorted(k for f in files for k in pq.read_table(f).column("k").to_pylist())


class Died(Exception):
    pass


def test_an_epoch_that_was_committed_but_not_handed_over_is_handed_over_on_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = begin(tmp_path)
    feed(engine, 1)
    engine.run_epoch()

    def die(self: Delivery, state: Any) -> None:
        raise Died

    feed(engine, 2)
    with monkeypatch.context() as m:
        m.setattr(Delivery, "catch_up", die)
        with pytest.raises(Died):
            engine.run_epoch()
    engine.abandon()
    assert written(tmp_path) == [1]
    engine = open_engine(tmp_path)
    assert written(tmp_path) == [1, 2]
    feed(engine, 3)
    engine.run_epoch()
    engine.close()
    assert written(tmp_path) == [1, 2, 3]


def test_a_sink_that_fails_is_tried_again_and_misses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = begin(tmp_path)
    real = sinks.ParquetSink.write

    def full(self: Any, query_id: str, epoch: int, table: Any) -> None:
        raise OSError(28, "No space left on device")

    for key in (1, 2):
        feed(engine, key)
        monkeypatch.setattr(sinks.ParquetSink, "write", full)
        assert engine.run_epoch().rows == 1
    assert written(tmp_path) == []
    monkeypatch.setattr(sinks.ParquetSink, "write", real)
    engine.run_epoch()
    assert written(tmp_path) == [1, 2]
    engine.close()
