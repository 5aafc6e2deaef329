"""Count windows that overlap, in the engine: what does an epoch cost that closes many of them?

    python -m experiments.count_windows [--quick] [--runs 3]

One stream, tuples in order of time, all in one epoch:

    SELECT g, COUNT(*) AS n, SUM(v) AS s, MAX(v) AS m FROM S GROUP BY g WINDOW COUNT (SIZE n ADVANCE BY m)

In this process, one task per stage, each run in fresh state, after one with few tuples that loads the kernels. The rows
are compared with those of numpy first. Told are the seconds of the stage that closes windows, median and spread.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ajoin.sql import parse_query
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import CreateQuery
from runtime.connectors.base import ConnectorSpec
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor

CASES = ((1_000, 1_000), (1_000, 100), (10_000, 100), (100_000, 100), (100_000, 1_000), (1_000_000, 1_000))
GROUPS = 2
COLUMNS = (*(Column(c, ColumnType.BIGINT) for c in ("g", "v")), Column("ts", ColumnType.TIMESTAMP))

Row = tuple[int, int, int, int, int]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.count_windows", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer tuples, small windows")
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args(arguments)
    tuples = 200_000 if asked.quick else 4_000_000
    run(2_000, 100, 10)
    for size, advance in CASES:
        if size > tuples // (2 * GROUPS):
            continue
        spent = [run(tuples, size, advance) for _ in range(asked.runs)]
        seconds = [s for _, s in spent]
        told = f"{statistics.median(seconds):.3f} s ({min(seconds):.3f} to {max(seconds):.3f})"
        window = f"COUNT (SIZE {size} ADVANCE BY {advance})"
        print(f"{window}, {tuples:,} tuples, {spent[0][0]:,} windows: {told}", flush=True)


def run(tuples: int, size: int, advance: int) -> tuple[int, float]:
    """(windows, seconds)"""
    rng = np.random.default_rng(7)
    values = rng.integers(0, 1_000_000, tuples)
    groups = rng.integers(0, GROUPS, tuples)
    times = np.arange(tuples, dtype=np.int64) // 100
    with tempfile.TemporaryDirectory(prefix="ajoin-count-windows-") as folder:
        engine = Engine.open(Path(folder) / "state", LocalExecutor(), EngineConfig(partitions=1), lambda: 0)
        engine.create_stream(StreamSchema("S", COLUMNS, "ts"), ConnectorSpec("push"))
        select = "SELECT g, COUNT(*) AS n, SUM(v) AS s, MAX(v) AS m FROM S GROUP BY g"
        text = f"{select} WINDOW COUNT (SIZE {size} ADVANCE BY {advance})"
        engine.apply([CreateQuery("q", parse_query(text, engine.schemas()))])
        path = Path(folder) / "S.parquet"
        pq.write_table(pa.table({"g": groups, "v": values, "ts": pa.array(times, pa.timestamp("ms"))}), path)
        engine.push_file("S", path)
        engine.raise_watermark("S", int(times[-1]) + 1)
        done = engine.run_epoch()
        found = [row for batch in engine.read_results("q", None, 1 << 30) for row in batch.rows.to_pylist()]
        engine.abandon()
    rows = sorted((r["g"], r["window_start"], r["n"], r["s"], r["m"]) for r in found)
    assert rows == expected(groups, values, size, advance), "the engine's rows are not those of numpy"
    return len(rows), done.seconds["close"]


def expected(groups: npt.NDArray[np.int64], values: npt.NDArray[np.int64], size: int, advance: int) -> list[Row]:
    rows: list[Row] = []
    for g in range(GROUPS):
        mine = values[groups == g]
        sums = np.append(0, np.cumsum(mine))
        for start in range(0, len(mine) - size + 1, advance):
            window = mine[start : start + size]
            rows.append((g, start, size, int(sums[start + size] - sums[start]), int(window.max())))
    return rows


if __name__ == "__main__":
    main()
