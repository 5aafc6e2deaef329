"""Flink's worker: window joins of all queries in one statement set on a local mini cluster with two slots.

Runs in an environment of its own and imports only the standard library, PyFlink and two small modules of this
package. The configuration is what Flink's documentation recommends for throughput: object reuse, no checkpoints,
state on the heap, sources shared between statements (the default), parallelism as many as slots, a heap large enough
that garbage collection does not decide.

Fixed costs (planning, code generation, starting tasks) are not Flink's throughput: `run` executes the same statements
first over a short prefix and answers both times, and the driver counts the difference. That errs in Flink's favour,
because the first run also pays for cold code.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

from experiments.systems.protocol import Answer, Request, serve
from experiments.template import TIME, TemplateQuery, columns, flink_count, flink_insert, used_streams

SETTINGS = {
    "parallelism.default": "2",
    "taskmanager.numberOfTaskSlots": "2",
    "pipeline.object-reuse": "true",
    "state.backend.type": "hashmap",
    "taskmanager.memory.network.max": "512mb",
    "taskmanager.memory.network.fraction": "0.3",
    "table.exec.source.idle-timeout": "0 ms",
    "execution.runtime-mode": "streaming",
}

COUNTED_TOGETHER = 10
"""Queries whose rows one job counts: a union of a hundred joins does not start on two slots."""


def _environment() -> Any:
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, TableEnvironment

    configuration = Configuration()
    for key, value in SETTINGS.items():
        configuration.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    return TableEnvironment.create(settings)


def _tables(environment: Any, data: Path, queries: list[TemplateQuery]) -> None:
    attributes = ", ".join(f"{c} BIGINT" for c in columns())
    for stream in used_streams(queries):
        environment.execute_sql(f"DROP TABLE IF EXISTS {stream}")
        environment.execute_sql(
            f"CREATE TABLE {stream} ({attributes}, {TIME} BIGINT, rt AS TO_TIMESTAMP_LTZ({TIME}, 3), "
            f"WATERMARK FOR rt AS rt - INTERVAL '0.001' SECOND) "
            f"WITH ('connector' = 'filesystem', 'path' = '{(data / stream).as_uri()}', 'format' = 'parquet')"
        )
    for ways in {len(q.sources) for q in queries}:
        made = ", ".join(f"c{i} BIGINT" for i in range(ways * len(columns())))
        environment.execute_sql(f"CREATE TABLE IF NOT EXISTS rows_{ways} ({made}) WITH ('connector' = 'blackhole')")


def run(request: Request) -> Answer:
    queries = [TemplateQuery.from_json(q) for q in request["queries"]]
    environment = _environment()
    _tables(environment, Path(request["data"]), queries)
    if request["count"]:
        return {"rows": _count(environment, queries), "seconds": 0.0}
    statements = environment.create_statement_set()
    for q in queries:
        statements.add_insert_sql(flink_insert(q))
    began = time.perf_counter()
    statements.execute().wait()
    return {"seconds": time.perf_counter() - began}


def _count(environment: Any, queries: list[TemplateQuery]) -> dict[str, int]:
    """Per query and window the number of rows, added up here. Late tuples, if any, would show as missing rows."""
    counts: Counter[str] = Counter({q.id: 0 for q in queries})
    for at in range(0, len(queries), COUNTED_TOGETHER):
        union = " UNION ALL ".join(flink_count(q) for q in queries[at : at + COUNTED_TOGETHER])
        with environment.execute_sql(union).collect() as rows:
            for id, n in rows:
                counts[id] += n
    return dict(counts)


def warm(_: Request) -> Answer:
    """Starts the JVM."""
    _environment()
    return {}


if __name__ == "__main__":
    serve({"warm": warm, "run": run})
