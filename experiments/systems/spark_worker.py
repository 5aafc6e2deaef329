"""Spark's worker: one stream-stream join per query, all running at the same time in one session.

Configured as Spark's documentation recommends for stateful queries: RocksDB state with changelog checkpoints, as many
shuffle partitions as cores, one file of each stream per micro-batch, noop sink. Both inputs have a watermark and the
window is part of the join key, so state is dropped when a window is over.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from experiments.systems.protocol import Answer, Request, serve
from experiments.template import TIME, TemplateQuery, columns

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "4g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.scheduler.mode": "FAIR",
}


@cache
def session() -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("stream-stream joins")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _source(q: TemplateQuery, i: int, data: Path, per_batch: int) -> Any:
    from pyspark.sql import functions as F

    stream, selection = q.sources[i], q.selections[i]
    schema = ", ".join(f"{c} BIGINT" for c in (*columns(), TIME))
    rows = session().readStream.schema(schema).option("maxFilesPerTrigger", per_batch).parquet(str(data / stream))
    if selection is not None:
        rows = rows.where(selection.sql())
    rows = rows.withColumn("rt", F.timestamp_millis(TIME)).withWatermark("rt", "0 seconds")
    window = F.window("rt", f"{q.window_seconds} seconds").alias(f"w{i}")
    return rows.select(window, *(F.col(c).alias(f"{stream}_{c}") for c in columns()))


def _rows(q: TemplateQuery, data: Path, per_batch: int) -> Any:
    from pyspark.sql import functions as F

    joined = _source(q, 0, data, per_batch)
    for i, (l, r) in enumerate(q.links):
        right = _source(q, i + 1, data, per_batch)
        on = (F.col(f"w{i}") == F.col(f"w{i + 1}")) & (
            F.col(f"{q.sources[i]}_a{l}") == F.col(f"{q.sources[i + 1]}_a{r}")
        )
        joined = joined.join(right, on)
    return joined.select(*(f"{s}_{c}" for s in q.sources for c in columns()))


def run(request: Request) -> Answer:
    queries = [TemplateQuery.from_json(q) for q in request["queries"]]
    data, counting = Path(request["data"]), bool(request["count"])
    per_batch = int(request["options"].get("engine.chunks_per_epoch", 1))
    counts: Counter[str] = Counter({q.id: 0 for q in queries})
    lock = threading.Lock()
    scratch = Path(tempfile.mkdtemp(prefix="spark-streams-"))

    def counter(id: str) -> Any:
        def add(batch: Any, _: int) -> None:
            n = batch.count()
            with lock:
                counts[id] += n

        return add

    began = time.perf_counter()
    try:
        running = []
        for q in queries:
            writer = _rows(q, data, per_batch).writeStream.option("checkpointLocation", str(scratch / q.id))
            writer = writer.trigger(availableNow=True)
            sink = writer.foreachBatch(counter(q.id)) if counting else writer.format("noop")
            running.append(sink.start())
        for query in running:
            query.awaitTermination()
        seconds = time.perf_counter() - began
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return {"seconds": seconds} | ({"rows": dict(counts)} if counting else {})


def warm(_: Request) -> Answer:
    session().range(1000).groupBy().count().collect()
    return {}


if __name__ == "__main__":
    serve({"warm": warm, "run": run})
