"""Flink's worker: window aggregations of all queries in one statement set, with the settings of the other experiments
and two-phase aggregation. Runs in Flink's own environment."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from experiments.aggregations.workload import COLUMNS, Aggregation
from experiments.systems.flink_worker import SETTINGS
from experiments.systems.protocol import Answer, Request, serve

_END = (
    "1000 * TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_end) + EXTRACT(MILLISECOND FROM window_end)"
)
"""In milliseconds."""


def _environment() -> Any:
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, TableEnvironment

    configuration = Configuration()
    for key, value in (SETTINGS | {"table.optimizer.agg-phase-strategy": "TWO_PHASE"}).items():
        configuration.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    return TableEnvironment.create(settings)


def run(request: Request) -> Answer:
    queries = [Aggregation.from_json(q) for q in request["queries"]]
    environment = _environment()
    path = (Path(request["data"]) / "readers").as_uri()
    columns = ", ".join(f"{c} BIGINT" for c in (*COLUMNS, "ts"))
    endless = any(q.hop is not None for q in queries)
    waiting = ", 'source.monitor-interval' = '1 s'" if endless else ""
    environment.execute_sql(
        f"CREATE TABLE S ({columns}, rt AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR rt AS rt - INTERVAL '0.001' SECOND) "
        f"WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet'{waiting})"
    )
    if endless:
        (q,) = queries
        began = time.perf_counter()
        found = _until(environment, q, request["last"])
        return {"rows": {q.id: found}, "seconds": time.perf_counter() - began}
    if request["count"]:
        return {"rows": {q.id: _checked(environment, q, request["until"]) for q in queries}, "seconds": 0.0}
    statements = environment.create_statement_set()
    for values in {q.values for q in queries}:
        made = ", ".join(f"v{i} BIGINT" for i in range(values))
        environment.execute_sql(
            f"CREATE TABLE rows_{values} (window_end TIMESTAMP(3), grouped BIGINT, {made}) "
            "WITH ('connector' = 'blackhole')"
        )
    for q in queries:
        statements.add_insert_sql(f"INSERT INTO rows_{q.values} {q.flink()}")
    began = time.perf_counter()
    statements.execute().wait()
    return {"seconds": time.perf_counter() - began}


def _until(environment: Any, q: Aggregation, last: int) -> list[int]:
    """Every window's rows counted and added up by Flink itself, until the window that ends at or after `last`."""
    inner = q.flink().replace("SELECT window_end,", "SELECT window_start, window_end,", 1)
    total = " + ".join(f"SUM({name})" for name in q.names)
    sql = f"SELECT {_END}, COUNT(*), {total} FROM ({inner}) GROUP BY window_start, window_end"
    count = added = 0
    with environment.execute_sql(sql).collect() as rows:
        for end, groups, some in rows:
            if end <= last:
                count, added = count + groups, added + some
            if end + 1000 * (q.hop or 1) > last:
                return [count, added]
    return [count, added]


def _checked(environment: Any, q: Aggregation, until: int) -> list[int]:
    """Through files: to collect a hundred thousand rows in Python takes minutes."""
    folder = Path(tempfile.mkdtemp(prefix="flink-rows-"))
    made = ", ".join(f"{name} BIGINT" for name in q.names)
    table = f"checked_{q.id}"
    environment.execute_sql(
        f"CREATE TABLE {table} (window_end BIGINT, {made}) "
        f"WITH ('connector' = 'filesystem', 'path' = '{folder.as_uri()}', 'format' = 'csv')"
    )
    try:
        environment.execute_sql(f"INSERT INTO {table} SELECT {_END}, {', '.join(q.names)} FROM ({q.flink()})").wait()
        count = total = 0
        for file in folder.rglob("*part-*"):
            for line in file.read_text().splitlines():
                end, *values = map(int, line.split(","))
                if end <= until:
                    count, total = count + 1, total + sum(values)
        return [count, total]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def warm(_: Request) -> Answer:
    """Starts the JVM."""
    _environment()
    return {}


if __name__ == "__main__":
    serve({"warm": warm, "run": run})
