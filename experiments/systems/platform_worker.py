"""This platform's worker: one executor for its whole life, a new engine in an empty directory for every run.

The engine is configured as `ajoin serve` configures it by default: calibrated weights, pacing, and an optimizer that
is asked every few seconds for a better plan, with hysteresis, and for a better partition function. Different are only
the state directory (a memory file system when that has room, as Flink keeps its state on the heap), how long results
are kept, and what the experiment's own parameters say.

A run begins with a warm-up, which stands for the first minutes of a service: the optimizer is asked after every epoch
instead of every ten seconds, until it has left the plan alone for some epochs. From then on it is asked on the clock.
Timed is what a user would wait for: from the next epoch until the last one is committed, with every row of every query
made and read back from the result log. Runs in which queries arrive ad hoc, and those that count rows, have no warm-up.
All kernels are loaded and Spark's own code is warm before.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, cast

from ajoin.config import Settings
from ajoin.sql import parse_query
from experiments.systems import live, plan_changes
from experiments.systems.base import MEMORY
from experiments.systems.plans import aspects as plans_now
from experiments.systems.protocol import Answer, Request, serve
from experiments.template import TIME, TemplateQuery, ajoin_sql, columns, used_streams
from optimizer.errors import AJoinError
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import Control, CreateQuery, EpochReport, ForceGroups, Optimize
from runtime.connectors.base import ConnectorSpec
from runtime.control.budgets import Pacing
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import Executor, LocalExecutor
from runtime.execution.sharing import SharingName
from runtime.kernels.warm import warm_up
from runtime.machine.calibrate import calibrated

_RUNS = itertools.count()

SYSTEM = os.environ.get("AJOIN_BENCH_SHARING", "cost")
SHARING_OF = {"eager": "cost"}
"""The engine's mode, where it is not the system's name."""

CALIBRATION = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ajoin"
"""Where `ajoin serve` keeps its own."""

CALM = 5
"""Epochs without another plan, after which it is taken to stay."""

ROOM = 8 << 30
"""Free bytes a memory file system must have to be used."""


@cache
def _executor() -> Executor:
    """Started with the first request; Spark takes about ten seconds, for which the driver waits outside
    of any limit.
    """
    warm_up()
    if os.environ.get("AJOIN_BENCH_EXECUTOR") == "local":
        return LocalExecutor()
    from runtime.spark.executor import SparkExecutor

    return SparkExecutor.start("local[2]", local_dir=Path(tempfile.mkdtemp(prefix="ajoin-spark-")))


def warm(_: Request) -> Answer:
    """A few epochs over next to nothing."""
    with engine_for({}) as engine:
        options = (("rate", "max"), ("batch", "1000"), ("limit", "5000"))
        for name in ("S1", "S2"):
            engine.create_stream(stream_schema(name), ConnectorSpec("generator", options))
        create(engine, [TemplateQuery("warm", ("S1", "S2"), ((0, 0),), (None, None), 1)])
        while engine.has_input():
            engine.run_epoch()
    return {}


def stream_schema(name: str) -> StreamSchema:
    attributes = tuple(Column(c, ColumnType.BIGINT) for c in columns())
    return StreamSchema(name, (*attributes, Column(TIME, ColumnType.BIGINT)), TIME)


@contextmanager
def engine_for(options: Mapping[str, Any]) -> Iterator[Engine]:
    scratch = Path(tempfile.gettempdir())  # the driver's, which removes it and its namesake in memory
    roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM
    directory = (MEMORY / scratch.name if roomy else scratch) / f"state-{next(_RUNS)}"
    executor, usual = _executor(), Settings()
    config = EngineConfig(
        partitions=int(options.get("engine.partitions", usual.partitions)),
        sharing=cast(SharingName, options.get("engine.sharing") or SHARING_OF.get(SYSTEM, SYSTEM)),
        pipelined=bool(options.get("engine.pipelined", True)),
        retention_epochs=8,  # results are read right after their epoch, and 500 queries make gigabytes of them
        retention_bytes=6 << 30,
        pacing=Pacing(int(options.get("engine.epoch_rows", usual.epoch_rows)) or None, usual.max_epochs_behind),
        weights=None
        if isinstance(executor, LocalExecutor)
        else calibrated(CALIBRATION, time.perf_counter, executor).weights,
    )
    try:
        engine = Engine.open(directory, executor, config)
        try:
            yield engine
        finally:
            engine.abandon()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def create(engine: Engine, queries: list[TemplateQuery], *, times: bool = False) -> None:
    schemas = engine.schemas()
    batch = [CreateQuery(q.id, parse_query(ajoin_sql(q, times=times), schemas)) for q in queries]
    check(engine, cast(list[Control], batch))


def check(engine: Engine, controls: list[Control]) -> None:
    for outcome in engine.apply(controls):
        if isinstance(outcome, AJoinError):
            raise outcome


def run(request: Request) -> Answer:
    queries = [TemplateQuery.from_json(q) for q in request["queries"]]
    options = request["options"]
    data = Path(request["data"])
    with engine_for(options) as engine:
        for stream in used_streams(queries):
            source = {"path": str(data / stream), "max_files": str(options.get("engine.chunks_per_epoch", 1))}
            engine.create_stream(stream_schema(stream), ConnectorSpec("files", tuple(source.items())))
        answer = _Run(engine, queries, request).answer()
        if options.get("measure") == "memory":
            answer["values"] |= memory(engine)
        return answer


class _Run:
    """All queries at the start, or ('adhoc') in equal batches between the first epochs."""

    def __init__(self, engine: Engine, queries: list[TemplateQuery], request: Request) -> None:
        self.engine, self.queries, options = engine, queries, request["options"]
        self.settle, self.epochs = int(request["settle"]), int(request["epochs"])
        self.adhoc = options.get("engine.submit", "at_start") == "adhoc"
        self.batches = max(1, int(options.get("engine.submit_epochs", 4))) if self.adhoc else 1
        self.groups = int(options.get("engine.groups", 0))
        self.every = 0.0 if SYSTEM != "cost" else float(options.get("engine.optimize_every", 0))
        self.calm = self.settle if options.get("data.phase_chunks") else CALM  # phases begin at the same epoch for all
        self.read = 0

    def answer(self) -> Answer:
        engine = self.engine
        waiting = [self.queries[i :: self.batches] for i in range(self.batches)]
        create(engine, waiting.pop(0))
        if not self.adhoc:
            self._force_groups()
        settled = self._settle()
        plans = {"warm": plans_now(engine)} if self.settle else {}
        work = planning = 0.0
        optimized = tuples = epochs = 0
        before = dict(engine.state.seconds)
        began = last = time.perf_counter()
        while engine.has_input() and (epochs < self.epochs or waiting):
            at = time.perf_counter()
            if waiting:
                create(engine, waiting.pop(0))
            if self.every and at - last >= self.every:
                optimize(engine)
                last, optimized = at, optimized + 1
            planning += time.perf_counter() - at
            report = self._epoch()
            work += report.tuples * live.uses(engine)
            tuples, epochs = tuples + report.tuples, epochs + 1
        seconds = time.perf_counter() - began
        rows = {q.id: q.rows for q in engine.queries()}
        if self.read != sum(rows.values()):
            raise RuntimeError(f"{sum(rows.values())} rows were made and {self.read:.0f} were read")
        values = {
            "epochs": epochs,
            "settling_epochs": settled,
            "timed_tuples": tuples,
            "overall_tuples": work,
            "groups": len(engine.plan.groups),
            "joins": len(engine.plan.nodes),
            "plan_version": engine.plan.version,
            "optimizations": optimized,
            "planning_seconds": planning,
            "rows_read": self.read,
        }
        values |= {f"seconds_{stage}": spent - before.get(stage, 0.0) for stage, spent in engine.state.seconds.items()}
        return {"seconds": seconds, "rows": rows, "values": values, "plans": plans | {"end": plans_now(engine)}}

    def _force_groups(self) -> None:
        """As the experiment says; or as AStream does, for which queries with other join predicates are other jobs."""
        if self.groups:
            check(self.engine, [ForceGroups(tuple((q.id, i % self.groups) for i, q in enumerate(self.queries)))])
        elif SYSTEM == "astream":
            jobs: dict[object, int] = {}
            placed = tuple((q.id, jobs.setdefault((q.sources, q.links), len(jobs))) for q in self.queries)
            check(self.engine, [ForceGroups(placed)])

    def _settle(self) -> int:
        """Epochs until the plan stays as it is."""
        engine, calm, epochs = self.engine, 0, 0
        while epochs < self.settle and calm < self.calm and engine.has_input():
            version = engine.plan.version
            if self.every:
                optimize(engine)
            self._epoch()
            epochs += 1
            calm = calm + 1 if engine.plan.version == version else 0
        return epochs

    def _epoch(self) -> EpochReport:
        report = self.engine.run_epoch()
        for batch in self.engine.delivered(report.epoch):
            self.read += batch.rows.num_rows
        return report


def optimize(engine: Engine) -> None:
    """As the service asks for it."""
    check(engine, [Optimize("incremental", force=False, rescale=True)])


def memory(engine: Engine) -> dict[str, float]:
    """Bytes of the source buckets that are open now, by what they are for, and per tuple."""
    tuples = indexes = sets = raw = rows = 0
    for ref in engine.state.sources.values():
        rows += ref.rows
        raw += ref.rows * 8 * (len(columns()) + 1)
        for name, array in engine.parts.exchange.files.open(ref.file).arrays.items():
            if not name.startswith("v"):
                tuples += array.nbytes
            elif name.count(":") == 1:
                sets += array.nbytes
            else:
                indexes += array.nbytes
    joined = sum(r.bytes for r in engine.state.joined.values())
    per = 1 / max(rows, 1)
    return {
        "tuple_bytes": tuples,
        "index_bytes": indexes,
        "queryset_bytes": sets,
        "joined_bytes": joined,
        "buffered_tuples": rows,
        "bytes_per_tuple": (tuples + indexes + sets) * per,
        "raw_bytes_per_tuple": raw * per,
        "bytes_over_raw": (tuples + indexes + sets) / max(raw, 1),
        "index_bytes_per_tuple": indexes * per,
    }


def run_live(request: Request) -> Answer:
    with engine_for(request["options"]) as engine:
        return live.run(engine, request, stream_schema, Random(request["seed"]))


def run_changes(request: Request) -> Answer:
    def opened() -> Any:
        return engine_for(request["options"])

    return plan_changes.run(opened, request, stream_schema, create, check)


if __name__ == "__main__":
    serve({"warm": warm, "run": run, "live": run_live, "changes": run_changes})
