"""Flink's worker for the Kafka experiment: a window join of two topics with JSON messages, read up to their end.

Like flink_worker.py it runs in Flink's own environment and imports only the standard library and PyFlink, with the
same settings. The connector is not part of Flink; its jar comes with the request. `scan.bounded.mode` makes the job
end with what was in the topics when it started, and the end closes all windows.
"""

from __future__ import annotations

import time
from typing import Any

from experiments.systems.flink_worker import SETTINGS
from experiments.systems.protocol import Answer, Request, serve


def _environment(jar: str) -> Any:
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, TableEnvironment

    configuration = Configuration()
    for key, value in (SETTINGS | ({"pipeline.jars": jar} if jar else {})).items():
        configuration.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    return TableEnvironment.create(settings)


def _tables(environment: Any, request: Request) -> None:
    columns = ", ".join(f"{c} BIGINT" for c in request["columns"])
    for stream, topic in request["topics"].items():
        environment.execute_sql(f"DROP TABLE IF EXISTS {stream}")
        options = {
            "connector": "kafka",
            "topic": topic,
            "properties.bootstrap.servers": request["bootstrap"],
            "properties.group.id": "experiment",
            "scan.startup.mode": "earliest-offset",
            "scan.bounded.mode": "latest-offset",
            "format": "json",
        }
        given = ", ".join(f"'{k}' = '{v}'" for k, v in options.items())
        delay = request["delay_ms"] / 1000
        environment.execute_sql(
            f"CREATE TABLE {stream} ({columns}, ts BIGINT, rt AS TO_TIMESTAMP_LTZ(ts, 3), "
            f"WATERMARK FOR rt AS rt - INTERVAL '{delay}' SECOND) WITH ({given})"
        )
    environment.execute_sql("CREATE TABLE IF NOT EXISTS nowhere (a BIGINT, b BIGINT) WITH ('connector' = 'blackhole')")


def _join(request: Request, select: str) -> str:
    sides = [
        f"(SELECT * FROM TABLE(TUMBLE(TABLE {s}, DESCRIPTOR(rt), INTERVAL '1' SECOND)))" for s in request["topics"]
    ]
    same = " AND ".join(f"L.{c} = R.{c}" for c in ("k", "window_start", "window_end"))
    return f"SELECT {select} FROM {sides[0]} L JOIN {sides[1]} R ON {same}"


def run(request: Request) -> Answer:
    environment = _environment(request["jar"])
    _tables(environment, request)
    if request["count"]:
        counted = _join(request, "L.window_start, L.window_end, L.a")
        per_window = f"SELECT COUNT(*) FROM ({counted}) GROUP BY window_start, window_end"
        with environment.execute_sql(per_window).collect() as rows:
            return {"rows": {"q": sum(n for (n,) in rows)}}
    began = time.perf_counter()
    environment.execute_sql(f"INSERT INTO nowhere {_join(request, 'L.a, R.b')}").wait()
    return {"seconds": time.perf_counter() - began}


def warm(_: Request) -> Answer:
    """Starts the JVM."""
    _environment("")
    return {}


if __name__ == "__main__":
    serve({"warm": warm, "run": run})
