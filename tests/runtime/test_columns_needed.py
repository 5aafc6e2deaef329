"""Columns nobody asks for are not read from Parquet files, unless reading them decides which tuples there are."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ajoin.testing import LocalEngine
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.connectors.formats import load_file

SCHEMA = StreamSchema(
    "S",
    (
        Column("ts", ColumnType.TIMESTAMP),
        Column("k", ColumnType.BIGINT),
        Column("x", ColumnType.DOUBLE),
        Column("t", ColumnType.STRING),
    ),
    "ts",
)


def write(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def load(path, needed):
    return load_file(path, "parquet", SCHEMA, "f", needed=None if needed is None else frozenset(needed))


TIMES = pa.array([1, 2, 3], pa.timestamp("ms"))


def test_what_is_not_needed_is_not_read(tmp_path):
    path = write(tmp_path / "f.parquet", ts=TIMES, k=[1, 2, 3], x=[0.5, 1.5, 2.5], t=["a", "b", "c"])
    assert load(path, {"ts", "k"}).table.column_names == ["ts", "k", "t"]
    assert load(path, None).table.column_names == ["ts", "k", "x", "t"]


@pytest.mark.parametrize("k", [[1.0, 2.5, 3.0], ["1", "two", "3"]], ids=["fractions", "texts"])
def test_a_column_that_may_make_dead_letters_is_read(tmp_path, k):
    path = write(tmp_path / "f.parquet", ts=TIMES, k=k, x=[0.5, 1.5, 2.5])
    some, whole = load(path, {"ts"}), load(path, None)
    assert "k" in some.table.column_names
    assert [d.reason for d in some.dead] == [d.reason for d in whole.dead] != []
    assert some.table.num_rows == whole.table.num_rows


def test_a_dead_letter_shows_all_columns_and_queries_see_their_own(tmp_path):
    engine = LocalEngine(tmp_path / "state")
    columns = {"ts": "TIMESTAMP", "k": "BIGINT", "x": "DOUBLE", "v": "BIGINT"}
    (tmp_path / "in").mkdir()
    engine.create_stream("S", columns=columns, source="files", options={"path": str(tmp_path / "in")})
    engine.create_query("SELECT k, SUM(v) AS s FROM S WHERE x > 1 GROUP BY k WINDOW TUMBLING (SIZE 1 SECOND)", id="q")
    times = pa.array([100, None, 200, 5000], pa.timestamp("ms"))
    write(tmp_path / "in" / "1.parquet", ts=times, k=[1, 7, 1, 2], x=[2.0, 2.0, 3.0, 0.0], v=[10, 77, 20, 1])
    engine.run_epoch()
    assert [(r["k"], r["s"]) for r in engine.rows("q")] == [(1, 30)]
    (letter,) = engine.engine.state.letters
    assert '"k": 7' in letter.letter.text and '"v": 77' in letter.letter.text
    engine.close()
