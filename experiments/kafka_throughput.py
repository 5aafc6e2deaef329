"""How fast do tuples come in from Kafka, as JSON messages and as Arrow batches?

    python -m experiments.kafka_throughput [--tuples 200000] [--executor local|spark] [--bootstrap host:port]

Two topics of six BIGINT columns each are filled, then read twice: by the source alone (fetch and decode), and by
the engine with one windowed join over both topics, until nothing waits. Filling is not measured. Without
--bootstrap a broker is started on loopback with the jars the Kafka tests use; it then shares the machine's cores
with the platform, as Flink's would.

Reported per format: messages/s and tuples/s of the source in one process, and tuples/s of the engine from the
first epoch to the last (the first one includes compiling the kernels unless they are cached).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from ajoin.sql import parse_query
from optimizer.types import Column, ColumnType, StreamSchema
from runtime.api import CreateQuery
from runtime.connectors.base import ConnectorSpec
from runtime.connectors.kafka_encode import encode_json
from runtime.connectors.kafka_source import KafkaSource, parse_config
from runtime.engine import Engine, EngineConfig
from runtime.executor import Executor, LocalExecutor

COLUMNS = ("k", "a", "b", "c", "d")
SQL = "SELECT V.a, W.b FROM V JOIN W ON V.k = W.k WINDOW TUMBLING (SIZE 1 SECOND)"


def schema(name: str) -> StreamSchema:
    typed = tuple(Column(c, ColumnType.BIGINT) for c in COLUMNS)
    return StreamSchema(name, (*typed, Column("ts", ColumnType.TIMESTAMP)), "ts", watermark_delay_ms=10_000)


def tuples(count: int, keys: int, rate: int, seed: int) -> pa.Table:
    """`rate` tuples per second of event time, in order; keys are uniform."""
    draw = np.random.default_rng(seed)
    columns = {"k": draw.integers(0, keys, count)}
    columns |= {c: draw.integers(0, 1_000_000, count) for c in COLUMNS[1:]}
    return pa.table({**columns, "ts": np.arange(count, dtype=np.int64) * 1000 // rate})


def fill(bootstrap: str, topic: str, table: pa.Table, format: str, partitions: int, batch: int) -> int:
    """Deal the messages out to the partitions in turn; answers how many there are."""
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions, 1)])
        admin.wait_for_topics([topic])
    values = [v for _, v in encode_json(table, "")] if format == "json" else list(_batches(table, batch))
    with KafkaProducer(bootstrap_servers=bootstrap, linger_ms=20, batch_size=1 << 18) as producer:
        for i, value in enumerate(values):
            producer.send(topic, value, partition=i % partitions)
        producer.flush()
    return len(values)


def _batches(table: pa.Table, rows: int) -> Iterator[bytes]:
    for start in range(0, table.num_rows, rows):
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_stream(buffer, table.schema) as writer:
            writer.write_table(table.slice(start, rows))
        yield buffer.getvalue().to_pybytes()


def read_alone(options: dict[str, str]) -> tuple[int, float]:
    source = KafkaSource(parse_config(options))
    at, read = source.initial(), 0
    began = time.perf_counter()
    while (end := source.latest(at, 0)) != at:
        for piece in source.reads(at, end):
            loaded = piece.load(schema("V"))
            assert not loaded.dead, loaded.dead[0]
            read += loaded.table.num_rows
        at = end
    return read, time.perf_counter() - began


def read_and_join(executor: Executor, sources: dict[str, dict[str, str]]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="ajoin-kafka-") as directory:
        engine = Engine.open(Path(directory), executor, EngineConfig())
        for name, options in sources.items():
            engine.create_stream(schema(name), ConnectorSpec("kafka", tuple(options.items())))
        engine.apply([CreateQuery("q", parse_query(SQL, engine.schemas()))])
        began = time.perf_counter()
        while engine.has_input():
            engine.run_epoch()
        seconds = time.perf_counter() - began
        status = engine.status()
        late = sum(s.late_dropped for s in engine.streams())
        engine.close()
    return {"tuples": status.tuples, "rows": status.rows, "late": late, "epochs": status.epoch, "seconds": seconds}


@contextmanager
def cluster(bootstrap: str) -> Iterator[str]:
    if bootstrap:
        yield bootstrap
        return
    from tests.kafka.broker import Broker, jars

    with tempfile.TemporaryDirectory(prefix="ajoin-kafka-broker-") as directory:
        broker = Broker(jars(), Path(directory))
        broker.start()
        try:
            yield broker.address
        finally:
            broker.stop()


@contextmanager
def executor(kind: str) -> Iterator[Executor]:
    if kind == "local":
        yield LocalExecutor()
        return
    from runtime.spark.executor import SparkExecutor

    with tempfile.TemporaryDirectory(prefix="ajoin-spark-") as directory:
        spark = SparkExecutor.start(local_dir=Path(directory))
        try:
            yield spark
        finally:
            spark.stop()


def measure(bootstrap: str, tasks: Executor, format: str, given: argparse.Namespace) -> dict[str, Any]:
    names = {s: f"throughput.{format}.{s.lower()}.{time.time_ns()}" for s in ("V", "W")}
    messages = {}
    for seed, (stream, topic) in enumerate(names.items()):
        table = tuples(given.tuples, given.keys, given.rate, seed)
        messages[stream] = fill(bootstrap, topic, table, format, given.partitions, given.batch)
    most = {"json": 100_000, "arrow": max(1, 200_000 // given.batch)}[format]
    common = {"bootstrap": bootstrap, "format": format, "start": "earliest", "max_messages": str(most)}
    options = {s: {**common, "topic": topic} for s, topic in names.items()}
    read, seconds = read_alone(options["V"])
    assert read == given.tuples, f"{read} of {given.tuples} tuples were read"
    joined = read_and_join(tasks, options)
    assert joined["tuples"] + joined["late"] == 2 * given.tuples
    return {
        "format": format,
        "source_messages_per_s": round(messages["V"] / seconds),
        "source_tuples_per_s": round(read / seconds),
        "engine_tuples_per_s": round(2 * given.tuples / joined["seconds"]),
        **{k: joined[k] for k in ("rows", "late", "epochs")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="throughput from Kafka, JSON and Arrow")
    parser.add_argument("--bootstrap", default="", help="host:port of a running broker (default: start one)")
    parser.add_argument("--tuples", type=int, default=200_000, help="per stream")
    parser.add_argument("--rate", type=int, default=50_000, help="tuples per second of event time and stream")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--batch", type=int, default=5_000, help="tuples per Arrow message")
    parser.add_argument("--executor", choices=("local", "spark"), default="local")
    parser.add_argument("--out", type=Path, help="also write the numbers to this JSON file")
    given = parser.parse_args()
    with cluster(given.bootstrap) as bootstrap, executor(given.executor) as tasks:
        results = [measure(bootstrap, tasks, format, given) for format in ("json", "arrow")]
    for result in results:
        print("  ".join(f"{k}={v:,}" if isinstance(v, int) else f"{k}={v}" for k, v in result.items()))
    if given.out:
        settings = {k: v for k, v in vars(given).items() if k not in ("out", "bootstrap")}
        given.out.write_text(json.dumps({"settings": settings, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
