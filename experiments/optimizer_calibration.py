"""Do predicted and measured times agree, on a platform that runs?

    python -m experiments.optimizer_calibration [--workloads 24] [--epochs 12] [--executor local|spark]

Each workload is drawn at random: streams, rates, keys, 2- and 3-way queries with conditions. The platform runs it as it
is, with weights measured on this machine and statistics of its own, and in every epoch of the second half two numbers
are taken: what the cost model says the running plan costs, and the seconds that the source, join and sink stages took.
Printed are the means per workload and their correlation (target: at least 0.9), of the numbers and of their logarithms,
because a few large workloads would decide the former alone.

Stage times are those of a clock, so other work on the machine is in them. With the local executor everything runs on
one thread, and its processor time is compared, too.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ajoin.sql import parse_query
from experiments.similarity import QueryGenerator, pattern_query
from experiments.template import TIME, TemplateQuery, ajoin_sql, columns, used_streams
from optimizer.cost.calibration import calibrate, correlation
from optimizer.cost.model import Weights
from optimizer.errors import AJoinError
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import CreateQuery, Optimize
from runtime.connectors.base import ConnectorSpec
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import Executor, LocalExecutor
from runtime.kernels.warm import warm_up
from runtime.machine.calibrate import measure

STAGES = ("source", "join", "sink")


@dataclass(frozen=True, slots=True)
class Workload:
    queries: tuple[TemplateQuery, ...]
    batch: int
    keys: int


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds per epoch."""

    predicted: float
    stages: float
    processor: float


MOST_ROWS = 200_000
"""Of all queries in an epoch, as uniform keys would have it: larger workloads measure the copying of rows."""


def drawn(rng: random.Random) -> Workload:
    while True:
        ways, batch, count = rng.choice([2, 2, 3]), int(10 ** rng.uniform(3, 4.7)), rng.choice([1, 2, 5, 10])
        keys, share = max(10, int(batch / 10 ** rng.uniform(0, 1.2))), rng.choice([0.1, 0.3, 0.6])
        if count * (share * batch) ** ways / keys ** (ways - 1) <= MOST_ROWS:
            break
    streams = [f"S{i + 1}" for i in range(ways + 1)]
    generator = QueryGenerator(
        pattern_query(streams, ways, rng),
        streams,
        similarity=rng.choice([0.25, 0.5, 1.0]),
        selectivity=share,
        windows=(1,),
        keys=keys,
        rng=rng,
    )
    return Workload(tuple(generator.next() for _ in range(count)), batch, keys)


def run(workload: Workload, epochs: int, executor: Executor, weights: Weights) -> Times:
    with tempfile.TemporaryDirectory(prefix="ajoin-calibration-") as directory:
        engine = Engine.open(Path(directory), executor, EngineConfig(weights=weights))
        try:
            return _run(engine, workload, epochs)
        finally:
            engine.abandon()


def _run(engine: Engine, workload: Workload, epochs: int) -> Times:
    attributes = tuple(Column(c, ColumnType.BIGINT) for c in columns())
    for i, name in enumerate(used_streams(workload.queries)):
        options = {"rate": "max", "batch": str(workload.batch), "event_rate": str(workload.batch), "seed": str(i + 1)}
        options |= {f"column.{c}": f"uniform(0,{workload.keys - 1})" for c in columns()}
        schema = StreamSchema(name, (*attributes, Column(TIME, ColumnType.BIGINT)), TIME)
        engine.create_stream(schema, ConnectorSpec("generator", tuple(options.items())))
    created = [CreateQuery(q.id, parse_query(ajoin_sql(q), engine.schemas())) for q in workload.queries]
    refused = [o for o in engine.apply(created) if isinstance(o, AJoinError)]
    if refused:
        raise refused[0]
    found: list[Times] = []
    planner, last = engine.parts.planner, time.monotonic()
    for epoch in range(epochs):
        if epoch == epochs // 4:
            engine.apply([Optimize("full")])
        before, processor = dict(engine.state.seconds), time.process_time()
        engine.run_epoch()
        processor, now = time.process_time() - processor, time.monotonic()
        period, last = now - last, now
        if epoch >= epochs // 2:
            cost = planner.estimate(engine.plan, engine.state.running).cost  # per second in which epochs follow
            stages = sum(engine.state.seconds.get(s, 0.0) - before.get(s, 0.0) for s in STAGES)
            found.append(Times(cost * period, stages, processor))
    return Times(*(float(np.median([getattr(t, f) for t in found])) for f in ("predicted", "stages", "processor")))


def report(times: Sequence[Times], *, local: bool) -> list[str]:
    predicted = [t.predicted for t in times]
    lines = []
    for name in ("stages", "processor") if local else ("stages",):
        measured = [getattr(t, name) for t in times]
        plain, logs = correlation(predicted, measured), correlation(np.log(predicted), np.log(measured))
        ratio = float(np.median(np.array(measured) / np.array(predicted)))
        lines.append(
            f"{name:<10} correlation {plain:.3f}, of logarithms {logs:.3f}; measured / predicted, median {ratio:.2f}"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--executor", choices=("local", "spark"), default="local")
    args = parser.parse_args()
    warm_up()
    executor: Executor = LocalExecutor()
    if args.executor == "spark":
        from runtime.spark.executor import SparkExecutor

        executor = SparkExecutor.start("local[2]", local_dir=Path(tempfile.mkdtemp(prefix="ajoin-spark-")))
    try:
        found = calibrate(lambda work: measure(work, time.perf_counter))
        print(f"weights fitted to kernel probes, correlation there {found.correlation:.3f}")
        print("| queries | ways | tuples | keys | predicted ms | stages ms | processor ms |")
        print("|---|---|---|---|---|---|---|")
        rng, times = random.Random(3), []
        for _ in range(args.workloads):
            w = drawn(rng)
            times.append(run(w, args.epochs, executor, found.weights))
            t = times[-1]
            shown = " | ".join(f"{1000 * x:.1f}" for x in (t.predicted, t.stages, t.processor))
            print(f"| {len(w.queries)} | {len(w.queries[0].sources)} | {w.batch} | {w.keys} | {shown} |", flush=True)
        print(*report(times, local=args.executor == "local"), sep="\n")
    finally:
        executor.stop()


if __name__ == "__main__":
    main()
