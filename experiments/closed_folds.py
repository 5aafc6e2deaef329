"""Aggregates over a join: folded from closed lists, or from the joined rows, how much faster is that?

    python -m experiments.closed_folds [--quick] [--runs 3]

Two streams of tuples with few different keys in one window, so that their join stands for 80 million pairs. The same
aggregate twice: as it is, and with a condition that is always true but reads both streams, so that every row is made
and looked at:

    SELECT A.k, SUM(A.x * 1) AS s FROM A JOIN B ON A.k = B.k GROUP BY A.k
    SELECT A.k, SUM(A.x * 1) AS s FROM A JOIN B ON A.k = B.k WHERE A.x + B.y IS NOT NULL GROUP BY A.k

and so for COUNT(*). In this process, one task per stage, each run in fresh state, after one run of everything with few
tuples that loads the kernels. Rows are compared first. Told are the seconds of the epoch that reads all tuples, joins
them, closes the window and delivers its rows, and of the join stage in it; median and spread of the runs, and the ratio
of the medians.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ajoin.sql import parse_query
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import CreateQuery
from runtime.connectors.base import ConnectorSpec
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor

WINDOW_MS = 1000
UNSEEN = "WHERE A.x + B.y IS NOT NULL"
WHAT = {"SUM(A.x * 1)": "SUM(A.x * 1) AS s", "COUNT(*)": "COUNT(*) AS n"}


class Spent(NamedTuple):
    """Seconds of the epoch, and of its join stage with what is done there for queries."""

    epoch: float
    join: float


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.closed_folds", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer tuples")
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="ajoin-closed-folds-") as folder:
        for what in WHAT.values():
            for condition in ("", UNSEEN):
                run(Path(folder), what, condition, 100, 1, 0)
        for keys in (1, 100):
            pairs = 1_000_000 if asked.quick else 80_000_000
            for name in WHAT:
                report(Path(folder), name, pairs, keys, asked.runs)


def report(folder: Path, name: str, pairs: int, keys: int, runs: int) -> None:
    tuples = keys * round((pairs / keys) ** 0.5)
    closed: list[Spent] = []
    opened: list[Spent] = []
    for number in range(runs):
        mine, spent = run(folder, WHAT[name], "", tuples, keys, number)
        closed.append(spent)
        theirs, spent = run(folder, WHAT[name], UNSEEN, tuples, keys, number)
        opened.append(spent)
        assert mine == theirs and len(mine) == keys, f"{len(mine)} rows from closed lists, {len(theirs)} from rows"
    print(f"{name}, {tuples:,} tuples a stream with {keys} keys, {tuples**2 // keys:,} pairs; the same {keys} rows:")
    for part in Spent._fields:
        ours, others = [getattr(s, part) for s in closed], [getattr(s, part) for s in opened]
        ratio = statistics.median(others) / statistics.median(ours)
        print(f"  {part:<6} closed {_told(ours)}, rows {_told(others)}: {ratio:.0f} times")


def _told(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.4f} s ({min(seconds):.4f} to {max(seconds):.4f})"


def run(folder: Path, what: str, condition: str, tuples: int, keys: int, seed: int) -> tuple[list[Any], Spent]:
    """(rows, seconds)"""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory(dir=folder) as state:
        engine = Engine.open(Path(state) / "state", LocalExecutor(), EngineConfig(partitions=1), lambda: 0)
        for name, value in (("A", "x"), ("B", "y")):
            columns = (*(Column(c, ColumnType.BIGINT) for c in ("k", value)), Column("ts", ColumnType.TIMESTAMP))
            engine.create_stream(StreamSchema(name, columns, "ts"), ConnectorSpec("push"))
        sql = f"SELECT A.k AS k, {what} FROM A JOIN B ON A.k = B.k {condition} GROUP BY A.k"
        text = f"{sql} WINDOW TUMBLING (SIZE {WINDOW_MS} MILLISECONDS)"
        engine.apply([CreateQuery("q", parse_query(text, engine.schemas()))])
        for name, value in (("A", "x"), ("B", "y")):
            path = Path(state) / f"{name}.parquet"
            pq.write_table(_tuples(rng, tuples, keys, value), path)
            engine.push_file(name, path)
        engine.raise_watermark("A", WINDOW_MS)
        engine.raise_watermark("B", WINDOW_MS)
        began = time.perf_counter()
        done = engine.run_epoch()
        spent = time.perf_counter() - began
        rows = [row for batch in engine.read_results("q", None, 1 << 30) for row in batch.rows.to_pylist()]
        stages = done.seconds
        engine.abandon()
    return sorted(rows, key=lambda row: row["k"]), Spent(spent, stages["join"] + stages["sink"])


def _tuples(rng: np.random.Generator, tuples: int, keys: int, value: str) -> pa.Table:
    return pa.table({
        "k": np.arange(tuples, dtype=np.int64) % keys,
        value: rng.integers(0, 1000, tuples),
        "ts": pa.array(rng.integers(0, WINDOW_MS, tuples), pa.timestamp("ms")),
    })  # fmt: skip


if __name__ == "__main__":
    main()
