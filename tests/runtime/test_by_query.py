"""Folding per query is decided by what was counted: many queries with conditions that have nothing to do with each
other, or with conditions that are alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ajoin.testing import LocalEngine
from runtime.operators import by_query

QUERIES, TUPLES, GROUPS = 12, 20_000, 10
WINDOW = "WINDOW HOPPING (SIZE 3 SECONDS, ADVANCE BY 1 SECOND)"


def run(directory: Path, condition: str) -> tuple[list[object], LocalEngine]:
    """Five seconds of tuples; `condition`: of query i."""
    rng = np.random.default_rng(7)
    engine = LocalEngine(directory / "state")
    columns = {"k": "BIGINT", "v": "BIGINT", **{f"c{i}": "INT" for i in range(QUERIES)}, "ts": "TIMESTAMP"}
    engine.create_stream("S", columns=columns)
    for i in range(QUERIES):
        where = condition.format(i=i)
        sql = f"SELECT k, SUM(v) AS s, COUNT(*) AS n, LAST(v) AS l FROM S WHERE {where} GROUP BY k {WINDOW}"
        engine.create_query(sql, id=f"q{i}")
    for second in range(5):
        choices = {f"c{i}": rng.integers(0, 2, TUPLES).astype(np.int32) for i in range(QUERIES)}
        times = pa.array(1000 * second + np.arange(TUPLES) * 1000 // TUPLES, pa.timestamp("ms"))
        values = {"k": rng.integers(0, GROUPS, TUPLES), "v": rng.integers(0, 1000, TUPLES)}
        pq.write_table(pa.table({**values, **choices, "ts": times}), directory / f"{second}.parquet")
        engine.engine.push_file("S", directory / f"{second}.parquet")
        engine.run_epoch()
    rows = [tuple(row.values()) for i in range(QUERIES) for row in engine.rows(f"q{i}")]
    return rows, engine


def entries(engine: LocalEngine) -> list[int]:
    return [ref.entries for ref in engine.engine.state.partials.values()]


def test_conditions_of_their_own_are_folded_per_query(tmp_path, monkeypatch):
    (tmp_path / "counted").mkdir()
    rows, engine = run(tmp_path / "counted", "c{i} = 0")
    assert max(entries(engine)) == QUERIES * GROUPS
    said = engine.engine.explain(format="text")
    assert "query by query" in said
    engine.close()
    monkeypatch.setattr(by_query, "FEW", 1 << 60)  # never
    (tmp_path / "by-set").mkdir()
    same, other = run(tmp_path / "by-set", "c{i} = 0")
    assert min(entries(other)) > 5_000
    assert "query by query" not in other.engine.explain(format="text")
    assert sorted(rows) == sorted(same) and len(rows) == QUERIES * GROUPS * 4
    other.close()


@pytest.mark.parametrize("condition", ["c0 = 0 AND v >= {i}", "k < 1000 + {i}"])
def test_conditions_that_are_alike_share_entries(tmp_path, condition):
    _, engine = run(tmp_path, condition)
    assert max(entries(engine)) <= (QUERIES + 1) * GROUPS
    assert "query by query" not in engine.engine.explain(format="text")
    engine.close()
