"""Entries that are the same to a bunch of queries are combined first where that saves steps, and rows stay the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ajoin.testing import LocalEngine
from runtime.operators import alike

QUERIES, TUPLES, GROUPS, VALUES = 60, 20_000, 5, 300
COLUMNS = {"k": "BIGINT", "c": "BIGINT", "v": "BIGINT", "d": "DOUBLE", "ts": "TIMESTAMP"}
SELECTED = "k, SUM(v) AS s, COUNT(*) AS n, MAX(v) AS m, LAST(v) AS l, MEDIAN(v) AS q, SUM(d) AS f"

OTHERS = ("TUMBLING (SIZE 2 SECONDS)", "TUMBLING (SIZE 3 SECONDS)")
"""Queries with other windows are closed apart, and each bunch tells fewer sets apart than all together."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(3)
    for second in range(4):
        ts = pa.array(1000 * second + np.arange(TUPLES) * 1000 // TUPLES, pa.timestamp("ms"))
        k, c, v = (rng.integers(0, n, TUPLES) for n in (GROUPS, VALUES, 1000))
        table = pa.table({"k": k, "c": c, "v": v, "d": v * 0.25, "ts": ts})
        pq.write_table(table, folder / f"{second}.parquet")
    return folder


def run(folder: Path, data: Path, window: str, having: str = "") -> list[tuple[object, ...]]:
    engine = LocalEngine(folder)
    engine.create_stream("S", columns=COLUMNS)
    for i in range(QUERIES):
        where, mine = f"c >= {4 * i} AND c < {4 * i + 60}", window if i % 3 == 0 else OTHERS[i % 3 - 1]
        engine.create_query(f"SELECT {SELECTED} FROM S WHERE {where} GROUP BY k {having} WINDOW {mine}", id=f"q{i}")
    for second in range(4):
        engine.engine.push_file("S", data / f"{second}.parquet")
        engine.run_epoch()
    rows = [(i, *row.values()) for i in range(QUERIES) for row in engine.rows(f"q{i}")]
    engine.close()
    return sorted(rows)


@pytest.mark.parametrize("window", ["TUMBLING (SIZE 1 SECOND)", "HOPPING (SIZE 2 SECONDS, ADVANCE BY 1 SECOND)"])
@pytest.mark.parametrize("having", ["", "HAVING MAX(v) > 990"])
def test_rows_are_the_same(tmp_path, data, window, having, monkeypatch):
    combined: list[int] = []
    real = alike._combined

    def counting(open, *more):
        dealt = real(open, *more)
        combined.append(len(open.place) / max(1, len(dealt.codes)))
        return dealt

    monkeypatch.setattr(alike, "_combined", counting)
    first = run(tmp_path / "combined", data, window, having)
    assert combined and max(combined) > 4, "entries were not combined"
    monkeypatch.setattr(alike, "GAIN", 1 << 60)
    assert run(tmp_path / "apart", data, window, having) == first
    assert len(first) > QUERIES * GROUPS / 2
