"""What people get who test their queries and connectors with `ajoin.testing`."""

from __future__ import annotations

import pytest

from ajoin.errors import SqlError
from ajoin.testing import LocalEngine
from runtime.api import QueryState
from runtime.connectors.base import ConnectorSpec
from runtime.engine.config import EngineConfig

COLUMNS = {"k": "BIGINT", "n": "INT", "ts": "TIMESTAMP"}
JOIN = "SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)"


@pytest.fixture
def engine():
    with LocalEngine() as made:
        made.create_stream("A", columns=COLUMNS)
        made.create_stream("B", columns=COLUMNS, idle_timeout_ms=60_000)
        yield made


def push(engine, ts=0):
    engine.push("A", {"k": 1, "n": 1, "ts": ts}, {"k": 1, "n": 2, "ts": ts + 1})
    engine.push("B", {"k": 1, "n": 3, "ts": ts + 2}, {"k": 2, "n": 4, "ts": ts + 2})
    engine.run_epoch()


def row(a, b, start=0):
    return {"window_start": start, "window_end": start + 1000, "a": a, "b": b}


@pytest.mark.parametrize("emit", ["ROWS", "FACTORIZED"])
def test_rows_are_dictionaries(engine, emit):
    engine.create_query(f"{JOIN} EMIT {emit}", id="q")
    push(engine)
    assert engine.rows("q") == [row(1, 3), row(2, 3)]


@pytest.mark.parametrize("kill", [False, True])
def test_a_restart_goes_on_where_it_was(engine, kill):
    engine.create_query(JOIN, id="q")
    push(engine)
    engine.restart(kill=kill)
    push(engine, ts=5000)
    assert engine.rows("q") == [row(1, 3), row(2, 3), row(1, 3, 5000), row(2, 3, 5000)]


def test_counts_come_when_the_watermark_is_raised(engine):
    engine.create_query("SELECT COUNT(*) FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)", id="q")
    push(engine)
    assert engine.rows("q") == []
    engine.raise_watermark(1000)
    engine.run_epoch()
    assert [(r["count"], r["revision"]) for r in engine.rows("q")] == [(2, 0)]


def test_the_clock_moves_only_by_hand(engine):
    engine.create_query(JOIN, id="q")
    push(engine)
    engine.push("A", {"k": 1, "n": 1, "ts": 9000})
    engine.run_epoch()
    assert engine.engine.query("q").watermark == 2
    engine.clock.advance(60_000)
    engine.push("A", {"k": 1, "n": 1, "ts": 9001})
    engine.run_epoch()
    assert engine.engine.query("q").watermark == 9001


def test_sinks_of_a_query_get_its_rows(tmp_path):
    with LocalEngine(tmp_path / "state", config=EngineConfig(allowed_roots=(tmp_path,))) as engine:
        for name in "AB":
            engine.create_stream(name, columns=COLUMNS)
        engine.create_query(JOIN, id="q", sinks=[ConnectorSpec("parquet", (("path", str(tmp_path / "out")),))])
        push(engine)
    assert [p.suffix for p in (tmp_path / "out").rglob("*") if p.is_file()] == [".parquet"]
    assert (tmp_path / "state").is_dir(), "a directory that the test named is the test's"


def test_errors_are_those_of_the_client(engine):
    with pytest.raises(SqlError) as refused:
        engine.create_query(JOIN.replace("A.k", "A.nope"), id="q")
    assert refused.value.reason == "UNKNOWN_COLUMN"
    engine.create_query(JOIN, id="q")
    assert engine.delete_query("q").state is QueryState.DELETED


def test_the_temporary_directory_goes_with_the_engine():
    with LocalEngine() as engine:
        directory = engine.directory
        assert directory.is_dir()
    assert not directory.exists()
