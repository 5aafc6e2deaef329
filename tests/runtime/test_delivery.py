"""A query's own sink gets every row, also when the platform dies before handing over, or the sink fails for a while;
and no sink holds up another one. Here sinks are in step with epochs; test_delivery_threads.py has the threads."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ajoin.sql import parse_query
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import CreateQuery, DeleteQuery
from runtime.connectors.base import ConnectorSpec
from runtime.delivery.deliveries import Deliveries
from runtime.delivery.delivery import ATTEMPTS_AFTER_END
from runtime.delivery.progress import Progress, ProgressFile, SinkId
from runtime.delivery.schedule import InStep
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor

SQL = "SELECT A.k FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)"


def open_engine(directory: Path, **config: Any) -> Engine:
    settings = EngineConfig(**{"delivery": InStep} | config)
    return Engine.open(directory / "state", LocalExecutor(), settings, lambda: 0)


def begin(directory: Path, **config: Any) -> Engine:
    engine = open_engine(directory, **config)
    for name in "AB":
        columns = (Column("ts", ColumnType.TIMESTAMP), Column("k", ColumnType.BIGINT))
        engine.create_stream(StreamSchema(name, columns, "ts"), ConnectorSpec("push"))
    return engine


def create(engine: Engine, id: str, *folders: Path) -> None:
    sinks = tuple(ConnectorSpec("parquet", (("path", str(folder)),)) for folder in folders)
    engine.apply([CreateQuery(id, parse_query(SQL, engine.schemas()), sinks)])


def feed(engine: Engine, key: int) -> None:
    engine.push("A", [{"ts": 1000 * key, "k": key}])
    engine.push("B", [{"ts": 1000 * key + 1, "k": key}])
    assert engine.run_epoch().rows > 0


def written(folder: Path) -> list[int]:
    return sorted(k for f in folder.rglob("*.parquet") for k in pq.read_table(f).column("k").to_pylist())


def blocked(folder: Path) -> Path:
    """No folder can be made where a file is."""
    folder.write_text("a file")
    return folder


def unblock(folder: Path) -> None:
    folder.unlink()
    folder.mkdir()


class Died(Exception):
    pass


def test_an_epoch_that_was_committed_but_not_handed_over_is_handed_over_on_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = begin(tmp_path)
    create(engine, "q", tmp_path / "out")
    feed(engine, 1)

    def die(self: Deliveries, state: Any) -> None:
        raise Died

    with monkeypatch.context() as m:
        m.setattr(Deliveries, "announce", die)
        with pytest.raises(Died):
            feed(engine, 2)
    engine.abandon()
    assert written(tmp_path / "out") == [1]
    engine = open_engine(tmp_path)
    assert written(tmp_path / "out") == [1, 2]
    feed(engine, 3)
    engine.close()
    assert written(tmp_path / "out") == [1, 2, 3]


def test_a_sink_that_fails_is_tried_again_and_misses_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = begin(tmp_path)
    create(engine, "q", blocked(tmp_path / "out"))
    with caplog.at_level(logging.INFO, "ajoin.delivery"):
        for key in (1, 2, 3):
            feed(engine, key)
        unblock(tmp_path / "out")
        feed(engine, 4)
        feed(engine, 5)
    assert written(tmp_path / "out") == [1, 2, 3, 4, 5]
    assert len(list((tmp_path / "out" / "q").iterdir())) == 5, "one file an epoch"
    began, ended = [r.getMessage() for r in caplog.records if r.name == "ajoin.delivery"]
    assert "failed in epoch 1" in began and "works again after 3 failed attempts" in ended
    engine.close()


def test_a_failing_sink_stops_no_other_one_nor_after_its_query_was_deleted_nor_after_a_restart(tmp_path: Path) -> None:
    engine = begin(tmp_path)
    create(engine, "bad", blocked(tmp_path / "blocked"), tmp_path / "beside")
    create(engine, "good", tmp_path / "out")
    feed(engine, 1)
    assert written(tmp_path / "out") == written(tmp_path / "beside") == [1]
    (bad, beside) = engine.query("bad").deliveries
    assert (bad.epochs_behind, bad.rows_behind, bad.attempts, bad.failing_since_ms) == (1, 1, 1, 0)
    assert "NotADirectoryError" in bad.error
    assert (beside.epochs_behind, beside.error, beside.failing_since_ms) == (0, "", None)
    assert (engine.status().sinks, engine.status().sinks_behind) == (3, (bad,))
    engine.apply([DeleteQuery("bad")])
    feed(engine, 2)
    engine.abandon()
    engine = open_engine(tmp_path)
    feed(engine, 3)
    assert written(tmp_path / "out") == [1, 2, 3] and written(tmp_path / "beside") == [1]
    unblock(tmp_path / "blocked")
    feed(engine, 4)
    assert written(tmp_path / "blocked") == [1], "all rows until its query was deleted"
    assert engine.status().sinks == 1, "the sinks of a deleted query are forgotten when they have everything"
    engine.close()
    engine = open_engine(tmp_path)
    assert engine.status().sinks == 1, "and nothing is handed over to them again"
    engine.close()


def test_a_deleted_querys_sink_that_keeps_failing_is_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = begin(tmp_path)
    create(engine, "bad", blocked(tmp_path / "blocked"))
    create(engine, "good", tmp_path / "out")
    feed(engine, 1)
    engine.apply([DeleteQuery("bad")])
    for key in range(2, 2 + ATTEMPTS_AFTER_END):
        assert engine.status().sinks == 2
        feed(engine, key)
    feed(engine, 2 + ATTEMPTS_AFTER_END)
    assert engine.status().sinks == 1
    assert caplog.text.count("given up") == 1
    unblock(tmp_path / "blocked")
    engine.close()
    open_engine(tmp_path).close()
    assert written(tmp_path / "blocked") == [], "given up for good"


def test_rows_that_leave_the_retention_first_are_skipped_counted_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = begin(tmp_path, retention_epochs=2)
    create(engine, "q", blocked(tmp_path / "out"), tmp_path / "other")
    for key in range(1, 6):
        feed(engine, key)
    status, other = engine.query("q").deliveries
    assert status.lost_epochs + status.epochs_behind == 5 and status.lost_epochs > 0
    assert (other.lost_epochs, other.epochs_behind) == (0, 0)
    unblock(tmp_path / "out")
    feed(engine, 6)
    lost = engine.query("q").deliveries[0].lost_epochs
    assert written(tmp_path / "out") == [key for key in range(1, 7) if key > lost]
    assert written(tmp_path / "other") == [1, 2, 3, 4, 5, 6]
    assert caplog.text.count("left the result log before") == 1
    engine.close()


def test_each_sink_goes_on_from_its_own_place(tmp_path: Path) -> None:
    engine = begin(tmp_path)
    create(engine, "q", tmp_path / "one", blocked(tmp_path / "two"))
    feed(engine, 1)
    feed(engine, 2)
    engine.abandon()
    places = json.loads((tmp_path / "state" / "log" / "delivered").read_text())
    assert places == [{"query": "q#1", "sink": 0, "epoch": 2, "rows": 2}]
    for file in (tmp_path / "one").rglob("*.parquet"):
        file.unlink()
    unblock(tmp_path / "two")
    engine = open_engine(tmp_path)
    assert written(tmp_path / "one") == [] and written(tmp_path / "two") == [1, 2]
    feed(engine, 3)
    engine.close()
    assert written(tmp_path / "one") == [3] and written(tmp_path / "two") == [1, 2, 3]


@pytest.mark.parametrize("content", ["", "4", '[{"query": "q#1"}]', "\x00\x00"])
def test_a_progress_file_that_cannot_be_read_means_that_more_is_handed_over(tmp_path: Path, content: str) -> None:
    engine = begin(tmp_path)
    create(engine, "q", tmp_path / "out")
    feed(engine, 1)
    engine.close()
    (tmp_path / "state" / "log" / "delivered").write_text(content)
    engine = open_engine(tmp_path)
    feed(engine, 2)
    engine.close()
    assert written(tmp_path / "out") == [1, 2]


def test_a_progress_file_that_cannot_be_written_holds_up_nothing(tmp_path: Path) -> None:
    engine = begin(tmp_path)
    create(engine, "q", tmp_path / "out")
    (tmp_path / "state" / "log" / ".delivered.tmp").mkdir()
    feed(engine, 1)
    feed(engine, 2)
    assert written(tmp_path / "out") == [1, 2]
    engine.close()


def test_the_progress_file_forgets_queries_and_is_not_written_after_its_end(tmp_path: Path) -> None:
    saved: list[bytes] = []
    file = ProgressFile(tmp_path / "delivered", saved.append)
    file.put(SinkId("a#1", 0), Progress(1, 10))
    file.keep({"b#2"})
    file.put(SinkId("b#2", 1), Progress(2, 20))
    assert saved[-1] == (tmp_path / "delivered").read_bytes()
    file.close()
    file.put(SinkId("b#2", 1), Progress(3, 30))
    again = ProgressFile(tmp_path / "delivered")
    assert again.get(SinkId("a#1", 0)) is None and again.get(SinkId("b#2", 1)) == Progress(2, 20)
