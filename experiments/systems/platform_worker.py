"""This platform's worker: one executor for its whole life, a new engine in an empty directory for every run.

Timed is what a user would wait for: from the first epoch until the last one is committed, with every row of every
query made and read back from the result log. Starting Spark and creating streams and queries is not timed; all
kernels are loaded and Spark's own code is warm before (a few epochs over a tiny stream). The state directory is a
memory file system when that has room, as Flink keeps its state on the heap.
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

from ajoin.sql import parse_query
from experiments.systems import live, plan_changes
from experiments.systems.base import MEMORY
from experiments.systems.protocol import Answer, Request, serve
from experiments.template import TIME, TemplateQuery, ajoin_sql, columns, used_streams
from optimizer.errors import AJoinError
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import Control, CreateQuery, ForceGroups, Optimize
from runtime.connectors.base import ConnectorSpec
from runtime.control.budgets import Pacing
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import Executor, LocalExecutor
from runtime.execution.sharing import SharingName
from runtime.kernels.warm import warm_up

_RUNS = itertools.count()

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
    config = EngineConfig(
        partitions=int(options.get("engine.partitions", 2)),
        sharing=cast(SharingName, options.get("engine.sharing") or os.environ.get("AJOIN_BENCH_SHARING", "cost")),
        pipelined=bool(options.get("engine.pipelined", True)),
        retention_epochs=8,  # results are read right after their epoch, and 500 queries make gigabytes of them
        retention_bytes=6 << 30,
        pacing=Pacing(int(options.get("engine.epoch_rows", 0)) or None),
    )
    try:
        engine = Engine.open(directory, _executor(), config)
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
        answer = _run(engine, queries, options)
        if options.get("measure") == "memory":
            answer["values"] |= memory(engine)
        return answer


def _run(engine: Engine, queries: list[TemplateQuery], options: Mapping[str, Any]) -> Answer:
    """All queries at the start, or ('adhoc') in equal batches between the first epochs."""
    adhoc = options.get("engine.submit", "at_start") == "adhoc"
    batches = max(1, int(options.get("engine.submit_epochs", 4))) if adhoc else 1
    waiting = [queries[i::batches] for i in range(batches)]
    create(engine, waiting.pop(0))
    groups = int(options.get("engine.groups", 0))
    if groups and not adhoc:
        check(engine, [ForceGroups(tuple((q.id, i % groups) for i, q in enumerate(queries)))])
    every = float(options.get("engine.optimize_every", 0))
    work = planning = optimized = read = 0.0
    began = last = time.perf_counter()
    while engine.has_input():
        at = time.perf_counter()
        if waiting:
            create(engine, waiting.pop(0))
        if every and at - last >= every:
            check(engine, [Optimize("incremental")])
            last, optimized = at, optimized + 1
        planning += time.perf_counter() - at
        report = engine.run_epoch()
        work += report.tuples * live.uses(engine)
        for batch in engine.delivered(report.epoch):
            read += batch.rows.num_rows
    seconds = time.perf_counter() - began
    values = {
        "epochs": engine.epoch,
        "overall_tuples": work,
        "groups": len(engine.plan.groups),
        "joins": len(engine.plan.nodes),
        "optimizations": optimized,
        "planning_seconds": planning,
        "rows_read": read,
    }
    rows = {q.id: q.rows for q in engine.queries()}
    if read != sum(rows.values()):
        raise RuntimeError(f"{sum(rows.values())} rows were made and {read:.0f} were read")
    values |= {f"seconds_{stage}": spent for stage, spent in engine.state.seconds.items()}
    return {"seconds": seconds, "rows": rows, "values": values}


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
