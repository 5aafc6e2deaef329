"""What does it save that joins on one key run in one stage? The same engine with its joins in stages of their own.

    python -m experiments.one_key [--tuples 1000,200000] [--epochs 10] [--runs 3] [--local]

Four streams joined on one key, V ⋈ W ⋈ C ⋈ D in this order, on Spark in local mode with two cores (`--local`: in this
process). Both engines read the same tuples; every epoch brings so many of each stream, one second of event time, and a
window is four of these. `apart` is the engine with every join in a stage after those it reads from, its input hashed,
sorted and read again. They take turns, `runs` times so many epochs, and what they deliver must be the same rows.

Prints a Markdown table: milliseconds per epoch, all of it and what the driver waited for joins and sinks, medians of
the runs with (smallest to largest), and how many times as fast one stage is; and what a stage takes that does nothing,
as the cost model is told.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ajoin.testing import LocalEngine
from optimizer.model.plan import JoinNode
from optimizer.model.stages import Stages
from runtime.api import ForceOrder
from runtime.execution import compile as compiling
from runtime.execution.executor import Executor, LocalExecutor
from runtime.kernels import hashing
from runtime.machine.calibrate import stage_seconds
from runtime.spark.executor import SparkExecutor

STREAMS = "VWCD"
SECONDS = 4
SQL = (
    "SELECT V.k, V.n AS a, W.n AS b, C.n AS c, D.n AS d FROM V JOIN W ON V.k = W.k JOIN C ON W.k = C.k "
    f"JOIN D ON C.k = D.k WINDOW TUMBLING (SIZE {SECONDS} SECONDS)"
)


class Apart(Stages):
    """Every join asks for its inputs to be exchanged."""

    def _add(self, node: JoinNode, split: bool) -> None:
        super()._add(node, split)
        self.partition[node] = ()  # by nothing that anybody could use


@contextmanager
def apart() -> Iterator[None]:
    known = compiling.stages_of
    compiling.stages_of = lambda plan: Apart(plan.nodes)  # type: ignore[assignment]
    try:
        yield
    finally:
        compiling.stages_of = known


class Counting:
    """The executor, and how many stages it was given."""

    def __init__(self, executor: Executor) -> None:
        self._executor, self.stages = executor, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def run(self, *args: Any) -> Any:
        self.stages += 1
        return self._executor.run(*args)


class Side:
    def __init__(self, directory: Path, executor: Executor, tuples: int, without: bool) -> None:
        self.executor: Any = Counting(executor)
        self.engine, self.without = LocalEngine(directory, executor=self.executor), without
        for stream in STREAMS:
            options = {"rate": "max", "batch": str(tuples), "event_rate": str(tuples), "start_ms": "0"}
            options |= {"column.k": f"uniform(0,{SECONDS * tuples - 1})", "column.n": "seq()"}
            columns = {"k": "BIGINT", "n": "BIGINT", "ts": "TIMESTAMP"}
            self.engine.create_stream(stream, columns=columns, source="generator", options=options)
        self.engine.create_query(SQL, id="q")
        self.engine.apply(ForceOrder("q", ((("V", "W"), "C"), "D")))

    def run(self, epochs: int) -> tuple[float, float, float]:
        """Milliseconds per epoch: all of it, joins and sinks; and stages per epoch."""
        stages, joining = self.executor.stages, 0.0
        began = time.perf_counter()
        for _ in range(epochs):
            with apart() if self.without else nullcontext():
                report = self.engine.run_epoch()
            joining += sum(report.seconds.get(stage, 0.0) for stage in ("join", "sink"))
        spent = time.perf_counter() - began
        return 1000 * spent / epochs, 1000 * joining / epochs, (self.executor.stages - stages) / epochs

    def rows(self) -> tuple[int, int]:
        """How many there are, and the sum of a hash of each."""
        count, total, after = 0, 0, None
        while batches := self.engine.engine.read_results("q", after, 1 << 26):
            for batch in batches:
                columns = [c.cast(pa.int64()).to_numpy() for c in batch.rows.columns]
                total += int(hashing.combine([hashing.hash_integers(c) for c in columns]).sum(dtype=np.uint64))
                count += batch.rows.num_rows
            after = batches[-1].cursor
        return count, total


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):,.1f} ({min(values):,.1f} to {max(values):,.1f})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tuples", default="1000,200000")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--local", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ajoin-one-key-") as place:
        executor: Executor = (
            LocalExecutor() if args.local else SparkExecutor.start("local[2]", local_dir=Path(place, "spark"))
        )
        try:
            print(f"an empty stage: {1000 * stage_seconds(executor, time.perf_counter):.1f} ms\n", flush=True)
            print("| tuples | | apart | one stage | times |\n|---|---|---|---|---|", flush=True)
            for tuples in map(int, args.tuples.split(",")):
                measure(Path(place, str(tuples)), executor, tuples, args.epochs, args.runs)
        finally:
            executor.stop()


def measure(place: Path, executor: Executor, tuples: int, epochs: int, runs: int) -> None:
    sides = {name: Side(place / name, executor, tuples, name == "apart") for name in ("apart", "one stage")}
    for side in sides.values():
        side.run(SECONDS)  # from here on there are old buckets to meet
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in sides}
    for _ in range(runs):
        for name, side in sides.items():
            found[name].append(side.run(epochs))
    mine, other = (side.rows() for side in sides.values())
    assert mine == other and mine[0], "both must deliver the same rows"
    for side in sides.values():
        side.engine.close()
    for at, what in enumerate(("epoch", "joins and sinks", "stages")):
        slow, fast = ([run[at] for run in found[name]] for name in sides)
        times = [a / b for a, b in zip(slow, fast, strict=True)]
        print(f"| {tuples:,} | {what} | {spread(slow)} | {spread(fast)} | {spread(times)} |", flush=True)


if __name__ == "__main__":
    main()
