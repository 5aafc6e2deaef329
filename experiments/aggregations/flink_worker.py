"""Flink's worker: window aggregations of all queries in one statement set, with the settings of the other experiments
and two-phase aggregation. Runs in Flink's own environment."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from experiments.aggregations.workload import COLUMNS, Aggregation
from experiments.systems.flink_worker import SETTINGS
from experiments.systems.protocol import Answer, Request, serve


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
    environment.execute_sql(
        f"CREATE TABLE S ({columns}, rt AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR rt AS rt - INTERVAL '0.001' SECOND) "
        f"WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet')"
    )
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


def _checked(environment: Any, q: Aggregation, until: int) -> list[int]:
    count = total = 0
    numbers = ", ".join(q.names)
    seconds = "TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_end)"
    ends = f"1000 * {seconds} + EXTRACT(MILLISECOND FROM window_end)"
    with environment.execute_sql(f"SELECT {ends}, {numbers} FROM ({q.flink()})").collect() as rows:
        for end, *values in rows:
            if end <= until:
                count, total = count + 1, total + sum(values)
    return [count, total]


def warm(_: Request) -> Answer:
    """Starts the JVM."""
    _environment()
    return {}


if __name__ == "__main__":
    serve({"warm": warm, "run": run})
