"""What does it cost when executors share no files? The same epochs by reference and by value, in turn, in one session.

    python -m experiments.exchange [--tuples 50000 200000] [--epochs 8] [--window 2] [--master local[2]]

Two generated streams of four BIGINT columns, one two-way join that makes all its rows, and as many tuples per stream
and epoch as asked for: one epoch is one second of event time. A window of several seconds keeps older buckets open,
which by reference costs nothing and by value must be on the executors. The first two epochs of each life warm up and
are not counted. Both lives must deliver the same number of rows. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from ajoin.sql import parse_query
from optimizer.types import Column, ColumnType, StreamSchema
from runtime.api import CreateQuery
from runtime.connectors.base import ConnectorSpec
from runtime.engine import Engine, EngineConfig
from runtime.exchange import Exchange
from runtime.executor import Executor
from runtime.spark.executor import SparkExecutor

WARM, KEYS = 2, 100_000
COLUMNS = ("k", "a", "b")


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def life(executor: Executor, exchange: Exchange, tuples: int, epochs: int, window: int) -> tuple[float, int, int]:
    """(median seconds of an epoch, rows of the counted epochs, bytes of a bucket)."""
    with tempfile.TemporaryDirectory(prefix="ajoin-exchange-") as folder:
        clock = Clock()
        config = EngineConfig(partitions=executor.cores, exchange=exchange, pipelined=False)
        engine = Engine.open(Path(folder), executor, config, clock)
        for seed, name in enumerate(("V", "W")):
            engine.create_stream(*stream(name, seed, tuples))
        sql = f"SELECT V.k, V.a, W.b FROM V JOIN W ON V.k = W.k WINDOW TUMBLING (SIZE {window} SECONDS)"
        engine.apply([CreateQuery("q", parse_query(sql, engine.schemas()))])
        engine.run_epoch()
        taken: list[float] = []
        rows = 0
        for number in range(WARM + epochs):
            clock.now += 1000
            report = engine.run_epoch()
            assert report.tuples == 2 * tuples, report
            if number >= WARM:
                taken.append(engine.status().epoch_seconds)
                rows += report.rows
        size = max(ref.bytes for ref in engine.state.sources.values())
        engine.close()
        return statistics.median(taken), rows, size


def stream(name: str, seed: int, tuples: int) -> tuple[StreamSchema, ConnectorSpec]:
    typed = tuple(Column(c, ColumnType.BIGINT) for c in COLUMNS)
    options = {f"column.{c}": f"uniform(1,{KEYS})" for c in COLUMNS}
    options |= {"rate": str(tuples), "seed": str(seed), "batch": str(2 * tuples)}
    schema = StreamSchema(name, (*typed, Column("ts", ColumnType.TIMESTAMP)), "ts")
    return schema, ConnectorSpec("generator", tuple(sorted(options.items())))


def main(say: Callable[[str], None] = print) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.exchange", description=__doc__)
    parser.add_argument("--tuples", type=int, nargs="+", default=[50_000, 200_000], help="per stream and epoch")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--window", type=int, default=2, help="seconds, which is also epochs")
    parser.add_argument("--master", default="local[2]")
    asked = parser.parse_args()
    executor = SparkExecutor.start(asked.master, local_dir=Path(tempfile.mkdtemp(prefix="ajoin-spark-")))
    say("| tuples per stream and epoch | bucket | by reference | by value | ratio |\n|---|---|---|---|---|")
    try:
        for tuples in asked.tuples:
            seconds, rows, sizes = {}, {}, {}
            for exchange in ("reference", "value"):
                found = life(executor, exchange, tuples, asked.epochs, asked.window)
                seconds[exchange], rows[exchange], sizes[exchange] = found
            assert rows["reference"] == rows["value"], rows
            cells = [f"{s:.2f} s, {2 * tuples / s / 1e6:.2f} M tuples/s" for s in seconds.values()]
            ratio = seconds["reference"] / seconds["value"]
            say(f"| {tuples:,} | {sizes['value'] / 1e6:.1f} MB | {cells[0]} | {cells[1]} | {ratio:.2f} |")
    finally:
        executor.stop()


if __name__ == "__main__":
    main()
