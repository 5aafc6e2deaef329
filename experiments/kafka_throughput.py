"""How fast do tuples come in from Kafka, as JSON messages and as Arrow batches? And in Flink, from the same topics?

    python -m experiments.kafka_throughput [--quick] [--executor spark|local] [--no-flink] [--bootstrap host:port]

Two topics of six BIGINT columns each are filled, then read: by the source alone (fetch and decode, one process), by
the engine with one windowed join over both topics, until nothing waits, and, as JSON, by Flink with the same join
(experiments.kafka_flink says what is counted there). Filling is not measured. Without --bootstrap a broker is started
on loopback with the jars the Kafka tests use; it then shares the machine's cores with whoever reads.

Source and engine read a short pair of topics first, so that kernels are compiled and workers started, as Flink's
are; after that the engine is charged for everything from its first epoch to its last commit.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from ajoin.sql import parse_query
from experiments import kafka_flink
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import CreateQuery
from runtime.connectors.base import ConnectorSpec
from runtime.connectors.kafka.encode import encode_json
from runtime.connectors.kafka.source import KafkaSource, parse_config
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import Executor, LocalExecutor

RESULTS = Path(__file__).parent / "results" / "kafka"
COLUMNS = ("k", "a", "b", "c", "d")
DELAY_MS = 10_000
SQL = "SELECT V.a, W.b FROM V JOIN W ON V.k = W.k WINDOW TUMBLING (SIZE 1 SECOND)"


def schema(name: str) -> StreamSchema:
    typed = tuple(Column(c, ColumnType.BIGINT) for c in COLUMNS)
    return StreamSchema(name, (*typed, Column("ts", ColumnType.TIMESTAMP)), "ts", watermark_delay_ms=DELAY_MS)


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


@dataclass(frozen=True, slots=True)
class Topics:
    """A short and a long pair of topics, by stream, and how many messages each pair holds."""

    short: dict[str, str]
    long: dict[str, str]
    few: int
    messages: int


def fill_both(bootstrap: str, format: str, count: int, given: argparse.Namespace) -> tuple[dict[str, str], int]:
    """Two new topics by stream, and how many messages they hold."""
    names = {s: f"throughput.{format}.{s.lower()}.{time.time_ns()}" for s in ("V", "W")}
    messages = 0
    for seed, topic in enumerate(names.values()):
        table = tuples(count, given.keys, given.rate, seed)
        messages += fill(bootstrap, topic, table, format, given.partitions, given.batch)
    return names, messages


def measure(bootstrap: str, tasks: Executor, format: str, given: argparse.Namespace) -> tuple[dict[str, Any], Topics]:
    long, messages = fill_both(bootstrap, format, given.tuples, given)
    short, few = fill_both(bootstrap, format, given.tuples // 10, given)
    most = {"json": given.epoch, "arrow": max(1, given.epoch // given.batch)}[format]
    common = {"bootstrap": bootstrap, "format": format, "start": "earliest", "max_messages": str(most)}
    options = {s: {**common, "topic": topic} for s, topic in long.items()}
    read_alone({**common, "topic": short["V"]})
    read, seconds = read_alone(options["V"])
    assert read == given.tuples, f"{read} of {given.tuples} tuples were read"
    read_and_join(tasks, {s: {**common, "topic": topic} for s, topic in short.items()})
    joined = read_and_join(tasks, options)
    assert joined["tuples"] + joined["late"] == 2 * given.tuples
    found = {
        "format": format,
        "messages": messages,
        "source_messages_per_s": round(messages / 2 / seconds),
        "source_tuples_per_s": round(read / seconds),
        "engine_messages_per_s": round(messages / joined["seconds"]),
        "engine_tuples_per_s": round(2 * given.tuples / joined["seconds"]),
        **{k: joined[k] for k in ("rows", "late", "epochs")},
    }
    return found, Topics(short, long, few, messages)


def compare(bootstrap: str, ours: dict[str, Any], topics: Topics, log: Path) -> dict[str, Any]:
    """Flink over the same topics; its rows must be as many."""
    sizes = (topics.few, topics.messages)
    flink = kafka_flink.measure(bootstrap, topics.short, topics.long, sizes, COLUMNS, DELAY_MS, log)
    same = flink.status != "ok" or flink.rows == ours["rows"]
    found: dict[str, Any] = {"status": flink.status if same else f"other rows: {flink.rows:,}, not {ours['rows']:,}"}
    if flink.status == "ok":
        found |= {"messages_per_s": round(flink.rate), "rows": flink.rows}
        found["ratio"] = round(ours["engine_messages_per_s"] / flink.rate, 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="throughput from Kafka, JSON and Arrow, and of Flink")
    parser.add_argument("--bootstrap", default="", help="host:port of a running broker (default: start one)")
    parser.add_argument("--quick", action="store_true", help="a fifth of the tuples")
    parser.add_argument("--tuples", type=int, help="per stream (default 1,000,000; quick 200,000)")
    parser.add_argument("--rate", type=int, default=50_000, help="tuples per second of event time and stream")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--batch", type=int, default=5_000, help="tuples per Arrow message")
    parser.add_argument("--epoch", type=int, default=250_000, help="most tuples per stream that an epoch reads")
    parser.add_argument("--executor", choices=("spark", "local"), default="spark")
    parser.add_argument("--no-flink", action="store_true", help="only the platform")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for report.md and results.json")
    given = parser.parse_args()
    given.tuples = given.tuples or (200_000 if given.quick else 1_000_000)
    given.out.mkdir(parents=True, exist_ok=True)
    with cluster(given.bootstrap) as bootstrap:
        with executor(given.executor) as tasks:
            measured = [measure(bootstrap, tasks, format, given) for format in ("json", "arrow")]
        ours = [found for found, _ in measured]
        # Alone on the machine: the platform's Spark has ended.
        flink = None if given.no_flink else compare(bootstrap, *measured[0], given.out / "flink.log")
    settings = {k: v for k, v in vars(given).items() if k not in ("out", "bootstrap", "quick", "no_flink")}
    (given.out / "results.json").write_text(
        json.dumps({"settings": settings, "ours": ours, "flink": flink}, indent=2) + "\n"
    )
    text = report(settings, ours, flink)
    (given.out / "report.md").write_text(text)
    print(text)


def report(settings: dict[str, Any], ours: list[dict[str, Any]], flink: dict[str, Any] | None) -> str:
    lines = [
        "# Throughput from Kafka",
        "",
        f"Two topics with {settings['tuples']:,} tuples of six BIGINT columns each in {settings['partitions']} "
        f"partitions; `{SQL}`. One broker on the same machine. The platform reads at most "
        f"{settings['epoch']:,} tuples of a stream per epoch; its executor: {settings['executor']}.",
        "",
        "| system | messages | messages/s, source alone | messages/s, joined | tuples/s, joined | rows |",
        "|---|---|---|---|---|---|",
    ]
    for r in ours:
        numbers = ("source_messages_per_s", "engine_messages_per_s", "engine_tuples_per_s", "rows")
        lines.append(f"| ajoin | {r['format']} | " + " | ".join(f"{r[n]:,}" for n in numbers) + " |")
    if flink is None:
        return "\n".join([*lines, ""])
    if flink["status"] != "ok":
        return "\n".join([*lines, "", f"Flink: {flink['status']}", ""])
    lines.append(f"| flink | json | | {flink['messages_per_s']:,} | {flink['messages_per_s']:,} | {flink['rows']:,} |")
    arrow = ours[1]["engine_tuples_per_s"] / flink["messages_per_s"]
    return "\n".join(
        [
            *lines,
            "",
            f"JSON: {flink['ratio']:.2f} x Flink. Both counted {flink['rows']:,} rows.",
            "",
            f"Flink has no Arrow format. Tuples/s of the platform from Arrow batches: {arrow:.1f} x Flink's from JSON.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
