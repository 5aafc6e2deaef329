"""A full disk is waited out: the epoch is tried again, and not a row is lost or repeated."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path
from typing import Any

import pytest

from ajoin.sql import parse_query
from optimizer.errors import SqlError, Unavailable
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import CreateQuery
from runtime.buckets import file as bucket_file
from runtime.connectors.base import ConnectorSpec
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from runtime.log import log as log_module

SQL = "SELECT A.k FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)"


def open_engine(directory: Path) -> Engine:
    return Engine.open(directory, LocalExecutor(), EngineConfig(), lambda: 0)


def begin(directory: Path) -> Engine:
    engine = open_engine(directory)
    for name in "AB":
        columns = (Column("ts", ColumnType.TIMESTAMP), Column("k", ColumnType.BIGINT))
        engine.create_stream(StreamSchema(name, columns, "ts"), ConnectorSpec("push"))
    engine.apply([CreateQuery("q", parse_query(SQL, engine.schemas()))])
    return engine


def rows(engine: Engine) -> list[int]:
    return [k for b in engine.read_results("q") for k in b.rows.column("k").to_pylist()]


def full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_an_epoch_without_room_for_its_buckets_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = begin(tmp_path)
    for name in "AB":
        engine.push(name, [{"ts": 5, "k": 1}])
    with monkeypatch.context() as m:
        m.setattr(bucket_file.os, "replace", full)
        for _ in range(3):
            with pytest.raises(Unavailable) as caught:
                engine.run_epoch()
            assert caught.value.reason == "DISK_FULL"
    assert engine.has_input(), "the planned epoch is still to be run"
    assert engine.run_epoch().rows == 1
    assert rows(engine) == [1]
    engine.close()


def test_a_record_that_did_not_fit_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = begin(tmp_path)
    for name in "AB":
        engine.push(name, [{"ts": 5, "k": 1}])
    with monkeypatch.context() as m:
        m.setattr(log_module.os, "fsync", full)
        with pytest.raises(Unavailable):
            engine.run_epoch()
    engine.abandon()
    engine = open_engine(tmp_path)
    while engine.has_input():
        engine.run_epoch()
    assert rows(engine) == [1]
    engine.close()


def test_errors_keep_their_class_and_place_when_they_travel() -> None:
    error = pickle.loads(pickle.dumps(SqlError("no", reason="X", hint="h", line=2, column=3, token="t")))
    assert (type(error), error.reason, error.hint, error.line, error.token) == (SqlError, "X", "h", 2, "t")
