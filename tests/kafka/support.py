"""Streams over Kafka topics, and reading a source without an engine."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa

from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.connectors.base import ConnectorSpec, DeadLetter, Offset
from runtime.connectors.kafka.source import KafkaSource, parse_config
from tests.kafka.broker import Broker

SCHEMA = StreamSchema("V", (Column("k", ColumnType.BIGINT), Column("ts", ColumnType.TIMESTAMP)), "ts")


def options(broker: Broker, topic: str, **more: object) -> dict[str, str]:
    return {"bootstrap": broker.address, "topic": topic, **{k: str(v) for k, v in more.items()}}


def spec(broker: Broker, topic: str, **more: object) -> ConnectorSpec:
    return ConnectorSpec("kafka", tuple(options(broker, topic, **{"start": "earliest", **more}).items()))


def source(broker: Broker, topic: str, **more: object) -> KafkaSource:
    return KafkaSource(parse_config(options(broker, topic, **{"start": "earliest", **more})))


def message(k: int, ts: int = 0) -> bytes:
    return json.dumps({"k": k, "ts": ts}).encode()


def arrow_message(*ks: int, ts: int = 0) -> bytes:
    table = pa.table({"k": pa.array(ks, pa.int64()), "ts": pa.array([ts] * len(ks), pa.int64())})
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    return buffer.getvalue().to_pybytes()


def load(source: KafkaSource, start: Offset, end: Offset) -> tuple[list[int], list[DeadLetter]]:
    """The range as tasks would read it: offsets went through the log, reads through a pickle."""
    start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
    keys: list[int] = []
    dead: list[DeadLetter] = []
    for read in source.reads(start, end):
        loaded = pickle.loads(pickle.dumps(read)).load(SCHEMA)
        keys += loaded.table["k"].to_pylist()
        dead += loaded.dead
    return keys, dead


def take(source: KafkaSource, start: Offset | None = None, now_ms: int = 0) -> tuple[list[int], list[Any], Offset]:
    """Everything one epoch would read, and the offset after it."""
    start = source.initial() if start is None else start
    end = source.latest(start, now_ms)
    return *load(source, start, end), end
