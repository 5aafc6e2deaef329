"""The platform's worker: all queries created first, then timed from the first epoch until the last is committed and
every row was read back from the result log. One chunk is one epoch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

import pyarrow.compute as pc

from ajoin.sql import parse_query
from experiments.aggregations.data import HALVES
from experiments.aggregations.workload import COLUMNS, Aggregation
from experiments.systems.platform_worker import check, engine_for
from experiments.systems.protocol import Answer, Request, serve
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import Control, CreateQuery
from runtime.connectors.base import ConnectorSpec
from runtime.engine.engine import Engine

SCHEMA = StreamSchema("S", tuple(Column(c, ColumnType.BIGINT) for c in (*COLUMNS, "ts")), "ts")


def run(request: Request) -> Answer:
    queries = [Aggregation.from_json(q) for q in request["queries"]]
    with engine_for({}) as engine:
        path = str(Path(request["data"]) / "chunks")
        engine.create_stream(SCHEMA, ConnectorSpec("files", (("path", path), ("max_files", str(HALVES)))))
        schemas = engine.schemas()
        check(engine, cast(list[Control], [CreateQuery(q.id, parse_query(q.ajoin(), schemas)) for q in queries]))
        return _checked(engine, queries, request["until"]) if request["count"] else _timed(engine)


def _timed(engine: Engine) -> Answer:
    began = time.perf_counter()
    read = 0
    while engine.has_input():
        report = engine.run_epoch()
        read += sum(batch.rows.num_rows for batch in engine.delivered(report.epoch))
    seconds = time.perf_counter() - began
    values = {f"seconds_{stage}": spent for stage, spent in engine.state.seconds.items()}
    return {"seconds": seconds, "values": {**values, "rows": read, "epochs": engine.epoch}}


def _checked(engine: Engine, queries: list[Aggregation], until: int) -> Answer:
    found = {q.id: [0, 0] for q in queries}
    names = {q.id: q.names for q in queries}
    while engine.has_input():
        report = engine.run_epoch()
        for batch in engine.delivered(report.epoch):
            ends = batch.rows["window_end"].view("int64")
            rows = batch.rows.filter(pc.less_equal(ends, until))
            found[batch.query_id][0] += rows.num_rows
            found[batch.query_id][1] += sum(pc.sum(rows[n]).as_py() or 0 for n in names[batch.query_id])
    return {"rows": found, "seconds": 0.0}


def warm(_: Request) -> Answer:
    with engine_for({}) as engine:
        options = (("rate", "max"), ("batch", "1000"), ("limit", "5000"))
        engine.create_stream(SCHEMA, ConnectorSpec("generator", options))
        made = parse_query(Aggregation("warm", "g", 3, 1).ajoin(), engine.schemas())
        check(engine, cast(list[Control], [CreateQuery("warm", made)]))
        while engine.has_input():
            engine.run_epoch()
    return {}


if __name__ == "__main__":
    serve({"warm": warm, "run": run})
