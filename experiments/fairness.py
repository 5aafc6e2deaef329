"""One query explodes: how long do the others wait?

    python -m experiments.fairness [--quick] [--runs 3]

Twenty joins with few rows share two streams with one query that joins on a column which is the same everywhere, so each
epoch stands for `tuples` squared rows of it. On Spark with two cores, each run in fresh state:

    alone      the twenty without the exploding query
    paced      with it, as `ajoin serve` runs: what exceeds `epoch_rows` is postponed
    at once    with it, and every row made in the epoch of its last tuple, as if there were no pace

Told are the seconds per epoch (median over the epochs of a run, the first one left out), which is what the twenty wait
for their rows, as a multiple of `alone`; median and spread of the runs. The rows of the twenty are compared with those
of `alone` first. `at once` can win: if the exploding query has little to do, postponing only adds work.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ajoin.config import Settings
from ajoin.sql import parse_query
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import CreateQuery
from runtime.connectors.base import ConnectorSpec
from runtime.control.budgets import Pacing
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.spark.executor import SparkExecutor

OTHERS = 20
WINDOW = "WINDOW TUMBLING (SIZE 1 SECOND)"
EXPLODING = f"SELECT A.v AS a, B.v AS b FROM A JOIN B ON A.h = B.h {WINDOW}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.fairness", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer tuples")
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args(arguments)
    pace = Settings().epoch_rows
    sizes = (5_000,) if asked.quick else (1_000, 10_000, 100_000)
    with tempfile.TemporaryDirectory(prefix="ajoin-fairness-") as folder:
        executor = SparkExecutor.start("local[2]", local_dir=Path(folder))
        try:
            for tuples in sizes:
                report(executor, Path(folder), tuples, pace, asked.runs)
        finally:
            executor.stop()


def report(executor: SparkExecutor, folder: Path, tuples: int, pace: int, runs: int) -> None:
    seconds: dict[str, list[float]] = {"alone": [], "paced": [], "at once": []}
    for number in range(runs):
        rows, alone = run(executor, folder, tuples, False, None, number)
        seconds["alone"].append(alone)
        for name, rows_an_epoch in (("paced", pace), ("at once", None)):
            if rows_an_epoch is None and tuples > 20_000:
                continue  # ten thousand million rows: it would not end
            mine, spent = run(executor, folder, tuples, True, rows_an_epoch, number)
            assert mine == rows, f"the others have {mine} rows with the exploding query, {rows} without"
            seconds[name].append(spent)
    print(f"{tuples:,} tuples of each stream in an epoch, {tuples**2:,} rows of the exploding query:")
    base = statistics.median(seconds["alone"])
    for name, spent in seconds.items():
        if spent:
            middle, spread = statistics.median(spent), f"{min(spent):.2f} to {max(spent):.2f}"
            print(f"  {name:<8} {middle:6.2f} s an epoch ({spread}), {middle / base:5.1f} x alone")
        else:
            print(f"  {name:<8} not run")


def run(
    executor: SparkExecutor, folder: Path, tuples: int, exploding: bool, pace: int | None, seed: int
) -> tuple[int, float]:
    """(rows of the others, median seconds of an epoch)"""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory(dir=folder) as state:
        config = EngineConfig(partitions=2, retention_epochs=1, pacing=Pacing(pace, max_behind=1 << 30))
        engine = Engine.open(Path(state) / "state", executor, config, lambda: 0)
        columns = (*(Column(c, ColumnType.BIGINT) for c in "khv"), Column("ts", ColumnType.TIMESTAMP))
        for name in "AB":
            engine.create_stream(StreamSchema(name, columns, "ts"), ConnectorSpec("push"))
        others = [
            f"SELECT A.v AS a, B.v AS b FROM A JOIN B ON A.k = B.k WHERE A.v % {OTHERS} = {n} {WINDOW}"
            for n in range(OTHERS)
        ]
        texts = {f"q{n}": sql for n, sql in enumerate(others)} | ({"exploding": EXPLODING} if exploding else {})
        engine.apply([CreateQuery(id, parse_query(sql, engine.schemas())) for id, sql in texts.items()])
        spent = []
        for epoch in range(3 if exploding and pace is None else 6):
            for name in "AB":
                path = Path(state) / f"{name}{epoch}.parquet"
                pq.write_table(_tuples(rng, tuples, epoch), path)
                engine.push_file(name, path)
            began = time.perf_counter()
            engine.run_epoch()
            spent.append(time.perf_counter() - began)
            if epoch == 2:
                rows = sum(engine.query(f"q{n}").rows for n in range(OTHERS))
        engine.abandon()
    return rows, statistics.median(spent[1:])


def _tuples(rng: np.random.Generator, tuples: int, epoch: int) -> pa.Table:
    ts = np.sort(rng.integers(1000 * epoch, 1000 * (epoch + 1), tuples))
    return pa.table({
        "k": rng.integers(0, 4 * tuples, tuples),
        "h": np.zeros(tuples, np.int64),
        "v": rng.integers(0, 1000, tuples),
        "ts": pa.array(ts, pa.timestamp("ms")),
    })  # fmt: skip


if __name__ == "__main__":
    main()
