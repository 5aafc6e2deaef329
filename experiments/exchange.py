"""What does a store cost? The same epochs in the state directory and with a store, in turn, in one session.

    python -m experiments.exchange [--store URI] [--tuples 50000 200000] [--epochs 8] [--window 2] [--master local[2]]

Two generated streams of four BIGINT columns, one two-way join that makes all its rows, and as many tuples per stream
and epoch as asked for: one epoch is one second of event time. A window of several seconds keeps older buckets open.
Without `--store` the store is a path beside the state directory, so that it is mapped in place. The first two epochs of
each life warm up and are not counted. Both lives must deliver the same number of rows. Prints a Markdown table; the
ratio is the median over pairs of epochs.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

from ajoin.sql import parse_query
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import CreateQuery
from runtime.connectors.base import ConnectorSpec
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import Executor
from runtime.spark.executor import SparkExecutor
from runtime.store.objects import below

WARM, KEYS = 2, 100_000
COLUMNS = ("k", "a", "b")


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


class Life:
    """One engine over two streams with one join; every step is an epoch with a second of event time."""

    def __init__(self, folder: Path, executor: Executor, store: str | None, tuples: int, window: int) -> None:
        self.tuples, self.clock, self.rows = tuples, Clock(), 0
        self.taken: list[float] = []
        config = EngineConfig(partitions=executor.cores, store=store, pipelined=False)
        self.engine = Engine.open(folder / ("state" if store is None else "near"), executor, config, self.clock)
        for seed, name in enumerate(("V", "W")):
            self.engine.create_stream(*stream(name, seed, tuples))
        sql = f"SELECT V.k, V.a, W.b FROM V JOIN W ON V.k = W.k WINDOW TUMBLING (SIZE {window} SECONDS)"
        self.engine.apply([CreateQuery("q", parse_query(sql, self.engine.schemas()))])
        self.engine.run_epoch()

    def step(self) -> None:
        self.clock.now += 1000
        report = self.engine.run_epoch()
        assert report.tuples == 2 * self.tuples, report
        self.taken.append(self.engine.status().epoch_seconds)
        self.rows += report.rows


def compare(executor: Executor, given: str | None, tuples: int, epochs: int, window: int) -> str:
    """A row of the table. The two lives take turns, epoch by epoch, so that both meet the same machine."""
    with tempfile.TemporaryDirectory(prefix="ajoin-exchange-") as folder:
        store = str(Path(folder) / "store") if given is None else below(given, f"exchange-{uuid.uuid4().hex[:8]}")
        lives = [Life(Path(folder), executor, where, tuples, window) for where in (None, store)]
        for _ in range(WARM + epochs):
            for life in lives:
                life.step()
        size = max(ref.bytes for ref in lives[0].engine.state.sources.values())
        for life in lives:
            life.engine.close()
    assert len({life.rows for life in lives}) == 1, [life.rows for life in lives]
    counted = [life.taken[WARM:] for life in lives]
    cells = [f"{s:.2f} s, {2 * tuples / s / 1e6:.2f} M tuples/s" for s in map(statistics.median, counted)]
    ratio = statistics.median(r / v for r, v in zip(*counted, strict=True))
    return f"| {tuples:,} | {size / 1e6:.1f} MB | {cells[0]} | {cells[1]} | {ratio:.2f} |"


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
    parser.add_argument("--store", help="URI of a store instead of a path beside the state directory")
    asked = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="ajoin-spark-"))
    executor = SparkExecutor.start(asked.master, local_dir=scratch, options={})
    say("| tuples per stream and epoch | bucket | state directory | store | ratio |\n|---|---|---|---|---|")
    try:
        for tuples in asked.tuples:
            say(compare(executor, asked.store, tuples, asked.epochs, asked.window))
    finally:
        executor.stop()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
