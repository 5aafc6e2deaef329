"""A load that changes: does the platform follow, and how long are rows late?

    python -m experiments.scaling [--cores 2] [--phase 40] [--work 4] [--out FOLDER]

The platform runs on embedded Spark as `ajoin serve` runs it, but with one partition at first and without a pace (with
one, what is more than `epoch_rows` would be postponed, and more tasks do not help there); the periodic optimizer looks
every three seconds. Tuples of two streams come as files twice a second, and one query computes something of every pair.
After a phase of a steady load the work doubles, falls again, then one key takes nearly all of it, and
then it falls again. Plotted over time: the age of the oldest tuple of each epoch when its rows could be read, and how
many tasks the join has, as ranges and as ways of a split. Written are `scaling.csv` and `scaling.png`.

`--work` is the first phase's work in million pairs of tuples a second. What a small machine cannot show: machines that
are asked for and given back (that is tests/cluster/fleet.py), and a throughput that grows with the number of tasks once
all cores are busy.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ajoin.config import Settings
from ajoin.platform.launch import executor, platform
from ajoin.platform.platform import Platform
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.connectors.base import ConnectorSpec

SQL = (
    "SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k WHERE SQRT(A.n + B.n) * LN(2 + A.n) + POWER(B.n, 0.3) < 0.1 "
    "WINDOW TUMBLING (SIZE 1 SECOND)"
)
TICK = 0.5
KEYS = 20


class Phase(NamedTuple):
    """`work`: as a multiple of the first phase's; `hot`: one key has nearly all of it."""

    name: str
    work: float
    hot: bool = False


PHASES = (Phase("steady", 1), Phase("twice the work", 2), Phase("little", 0.05), Phase("hot key", 2, True),
          Phase("little", 0.05))  # fmt: skip


class Point(NamedTuple):
    seconds: float
    phase: str
    latency: float
    partitions: int
    tasks: int
    epoch: int


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.scaling", description=__doc__)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--phase", type=float, default=40.0, help="seconds")
    parser.add_argument("--work", type=float, default=0.8, help="million pairs a second at first")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "scaling")
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    settings = Settings(
        spark_master=f"local[{asked.cores}]", partitions=1, optimize_period=3.0, max_latency=3.0, epoch_rows=0
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        executor(settings) as spark,
        platform(settings, spark, Path(folder) / "state") as running,
    ):
        points = observe(running, Path(folder), asked.phase, asked.work * 1e6)
    with (asked.out / "scaling.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Point._fields)
        writer.writerows(points)
    plot(points, asked.out / "scaling.png")
    print(asked.out / "scaling.png")


def observe(running: Platform, folder: Path, seconds: float, work: float) -> list[Point]:
    columns = (Column("ts", ColumnType.TIMESTAMP), Column("k", ColumnType.BIGINT), Column("n", ColumnType.BIGINT))
    for name in "AB":
        (folder / name).mkdir()
        source = ConnectorSpec("files", (("max_files", "4"), ("path", str(folder / name))))
        running.create_stream(StreamSchema(name, columns, "ts"), source).result()
    running.create_query(SQL, id="q")
    points: list[Point] = []
    began, ticks = time.monotonic(), 0
    for number, phase in enumerate(PHASES):
        while (now := time.monotonic() - began) < (number + 1) * seconds:
            for name in "AB":
                made = folder / name / f".{ticks:06d}.parquet"
                pq.write_table(tuples(ticks, phase, work * TICK), made)
                made.rename(made.with_name(made.name[1:]))
            ticks += 1
            at = running._engine.plan.partitioning
            tasks = sum(map(at.ways, range(at.count)))
            latest = running.statistics(1).epochs
            age = latest[-1].latency_seconds if latest else 0.0
            points.append(Point(round(now, 2), phase.name, round(age, 3), at.count, tasks, running.epoch))
            time.sleep(max(0.0, began + ticks * TICK - time.monotonic()))
    for event in running.plan_events():
        print(event.epoch, "; ".join(event.changes))
    return points


def tuples(tick: int, phase: Phase, pairs: float) -> pa.Table:
    """As many tuples of one stream as make so many pairs with as many of the other."""
    wanted = phase.work * pairs
    count = int(wanted**0.5) if phase.hot else int((wanted * KEYS) ** 0.5)
    n = np.arange(count)
    ts = pa.array(np.full(count, 1000 * tick)).cast(pa.timestamp("ms"))
    return pa.table({"ts": ts, "k": np.full(count, 7) if phase.hot else n % KEYS, "n": n})


def plot(points: list[Point], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    at = [p.seconds for p in points]
    figure, (above, below) = pyplot.subplots(2, 1, figsize=(8, 4.8), sharex=True, layout="constrained")
    above.plot(at, [p.latency for p in points], color="#1b6ca8")
    above.set_ylabel("age of rows, s")
    below.step(at, [p.tasks for p in points], color="#c0392b", where="post", label="tasks")
    below.step(at, [p.partitions for p in points], color="#4c4c4c", where="post", linestyle="--", label="ranges")
    below.set_ylabel("of the join")
    below.set_xlabel("seconds")
    below.legend(fontsize=8)
    changes = [
        p for before, p in zip([None, *points], points, strict=False) if before is None or before.phase != p.phase
    ]
    for p in changes:
        for axes in (above, below):
            axes.axvline(p.seconds, color="#bbbbbb", linewidth=0.8)
        above.annotate(p.phase, (p.seconds, 1.0), xycoords=("data", "axes fraction"), fontsize=8, va="bottom")
    above.grid(axis="y", alpha=0.3)
    below.grid(axis="y", alpha=0.3)
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    main()
