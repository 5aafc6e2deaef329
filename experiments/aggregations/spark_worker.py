"""Spark's worker: one windowed streaming aggregation, with the settings of the other experiments."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from experiments.aggregations.data import HALVES
from experiments.aggregations.workload import COLUMNS, Aggregation
from experiments.systems.protocol import Answer, Request, serve
from experiments.systems.spark_worker import session, warm


def _rows(q: Aggregation, data: Path) -> Any:
    from pyspark.sql import functions as F

    schema = ", ".join(f"{c} BIGINT" for c in (*COLUMNS, "ts"))
    rows = session().readStream.schema(schema).option("maxFilesPerTrigger", HALVES).parquet(str(data / "chunks"))
    rows = rows.withColumn("rt", F.timestamp_millis("ts")).withWatermark("rt", "0 seconds")
    values = [F.sum("v").alias("s"), F.count("*").alias("n"), F.max("v").alias("m")][: q.values]
    return rows.groupBy(F.window("rt", f"{q.size} seconds").alias("w"), q.key).agg(*values)


def run(request: Request) -> Answer:
    (q,) = [Aggregation.from_json(q) for q in request["queries"]]
    assert not q.session and q.condition is None, "one plain tumbling query"
    found, until = [0, 0], request["until"]
    scratch = Path(tempfile.mkdtemp(prefix="spark-aggregation-"))

    def add(batch: Any, _: int) -> None:
        from pyspark.sql import functions as F

        closed = batch.where(F.unix_millis(F.col("w.end")) <= until)
        counted = closed.agg(F.count("*"), *(F.sum(n) for n in q.names)).collect()[0]
        found[0] += counted[0]
        found[1] += sum(value or 0 for value in counted[1:])

    began = time.perf_counter()
    try:
        writer = _rows(q, Path(request["data"])).writeStream.option("checkpointLocation", str(scratch))
        writer = writer.outputMode("append").trigger(availableNow=True)
        sink = writer.foreachBatch(add) if request["count"] else writer.format("noop")
        sink.start().awaitTermination()
        seconds = time.perf_counter() - began
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return {"seconds": seconds} | ({"rows": {q.id: found}} if request["count"] else {})


if __name__ == "__main__":
    serve({"warm": warm, "run": run})
