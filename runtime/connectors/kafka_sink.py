"""Sink 'kafka': a topic per query, each epoch one transaction.

Guarantee: exactly once for readers with read_committed isolation. An epoch's messages become visible
together or not at all. Every message carries headers

    ajoin.query  ajoin.epoch  ajoin.sequence (its number within the epoch)  ajoin.digest (of the whole epoch)

so an epoch that is written again after a crash is recognised: before its first write the sink logs in under
the topic's transactional id, which ends whatever a dead predecessor left open, and then looks at the newest
messages of each partition. If they belong to this epoch and digest, the epoch is there already and is left
alone. The digest keeps a platform that starts over with an empty state directory, and so with low epoch
numbers, from taking somebody else's epoch for its own.

With guarantee=at-least-once (for clusters that do not allow transactions) messages are written by an
idempotent producer without a transaction: a reader may see part of an epoch, and a repeated epoch twice, and
can deduplicate by (ajoin.query, ajoin.epoch, ajoin.sequence).

One topic has one writer: a second platform that writes to it takes the transactional id over, and the first
one fails with KAFKA_FENCED instead of mixing its rows in.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from optimizer.errors import AJoinError, FailedPrecondition, ResourceExhausted
from runtime.connectors.kafka_connection import (
    CONNECTION_OPTIONS,
    Connection,
    consumer,
    explain,
    failures,
    library,
    parse_connection,
)
from runtime.connectors.kafka_messages import FORMATS
from runtime.connectors.options import Option, Settings

GUARANTEES = ("exactly-once", "at-least-once")
OPTIONS = (
    *CONNECTION_OPTIONS,
    Option("topic", "the topic; {query} stands for the query's id (default ajoin.{query})"),
    Option("format", "json (one object per row) or arrow (IPC streams of many rows) (default json)"),
    Option("key", "an output column whose value is the message key (default: none, all rows in partition 0)"),
    Option("guarantee", "exactly-once or at-least-once (default exactly-once)"),
    Option("max_message_bytes", "largest message; the topic must allow it (default 900000)"),
    Option("timeout_ms", "how long an epoch may wait for the brokers (default 30000)"),
)

_TAIL = 64
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SinkConfig:
    connection: Connection
    topic: str
    format: str
    key: str
    transactional: bool
    max_bytes: int
    timeout_ms: int

    def topic_of(self, query_id: str) -> str:
        return topic_name(self.topic.replace("{query}", query_id))


def topic_name(text: str) -> str:
    """A legal topic name, different for different texts: what is not allowed becomes _ and adds a digest."""
    name = re.sub(r"[^a-zA-Z0-9._-]", "_", text)
    if name == text and len(name) <= 249 and name not in (".", "..", ""):
        return name
    return f"{name[:230]}-{hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"


class KafkaSink:
    """Owns its producer. `write` raises when the epoch is not in the topic; writing it again is safe."""

    def __init__(self, config: SinkConfig) -> None:
        self._config = config
        self._producer: Any = None
        self._newest: dict[str, tuple[int, bytes]] = {}

    def write(self, query_id: str, epoch: int, table: pa.Table) -> None:
        if table.num_rows == 0:
            return
        c = self._config
        topic = c.topic_of(query_id)
        messages = self._messages(table)
        digest = _digest(query_id, epoch, messages)
        try:
            producer = self._open(topic)
            if self._newest.get(topic) == (epoch, digest):
                _LOG.info("epoch %d of query %s is in topic %s already", epoch, query_id, topic)
                return
            self._send(producer, topic, messages, _headers(query_id, epoch, digest))
            self._newest[topic] = (epoch, digest)
        except BaseException as failure:
            self._drop_producer()
            if isinstance(failure, failures()):
                raise _explain(failure, c.connection, topic) from failure
            raise

    def close(self) -> None:
        self._drop_producer()

    # -- messages --

    def _messages(self, table: pa.Table) -> list[tuple[bytes | None, bytes]]:
        """(key, value) each."""
        c = self._config
        if c.key and c.key not in table.column_names:
            raise FailedPrecondition(
                f"option key of connector kafka is {c.key!r}, which is no output of the query",
                reason="BAD_CONNECTOR_OPTION",
                hint="outputs are: " + ", ".join(table.column_names),
            )
        if c.format == "json":
            rows = _json_rows(table)
            keys = _keys(table, c.key)
            messages = [(key, _json(row)) for key, row in zip(keys, rows, strict=True)]
        elif c.key:
            raise FailedPrecondition(
                "option key of connector kafka needs format=json: an Arrow message holds many rows",
                reason="BAD_CONNECTOR_OPTION",
            )
        else:
            messages = [(None, value) for value in _arrow(table.combine_chunks(), c.max_bytes)]
        largest = max(len(value) for _, value in messages)
        if largest > c.max_bytes:
            raise ResourceExhausted(
                f"a row takes {largest} bytes as a Kafka message; max_message_bytes is {c.max_bytes}",
                reason="KAFKA_MESSAGE_TOO_LARGE",
                hint="raise max_message_bytes and the topic's max.message.bytes, or select less",
            )
        return messages

    # -- the producer --

    def _open(self, topic: str) -> Any:
        c = self._config
        if self._producer is None:
            self._producer = library().KafkaProducer(
                **c.connection.arguments,
                transactional_id=f"ajoin.{topic}" if c.transactional else None,
                transaction_timeout_ms=max(c.timeout_ms, 1_000),
                delivery_timeout_ms=c.timeout_ms,
                request_timeout_ms=min(c.timeout_ms, 10_000),
                max_block_ms=c.timeout_ms,
                bootstrap_timeout_ms=c.timeout_ms,
                max_request_size=c.max_bytes + 65_536,
                batch_size=1 << 17,
                linger_ms=5,
                reconnect_backoff_max_ms=1000,
                metrics_enabled=False,
            )
            if c.transactional:
                self._producer.init_transactions()
        if c.transactional and topic not in self._newest:
            self._producer.partitions_for(topic)  # creates the topic where brokers do that by themselves
            found = newest_epoch(c.connection, topic, c.timeout_ms)
            self._newest[topic] = found or (-1, b"")
        return self._producer

    def _send(
        self,
        producer: Any,
        topic: str,
        messages: Sequence[tuple[bytes | None, bytes]],
        headers: Sequence[tuple[str, bytes]],
    ) -> None:
        if self._config.transactional:
            producer.begin_transaction()
        sent = [
            producer.send(
                topic,
                value,
                key=key,
                headers=[*headers, ("ajoin.sequence", str(i).encode())],
                partition=None if key is not None else 0,
            )
            for i, (key, value) in enumerate(messages)
        ]
        producer.flush(self._config.timeout_ms / 1000)
        for future in sent:
            future.get(0)
        if self._config.transactional:
            producer.commit_transaction()

    def _drop_producer(self) -> None:
        """Without a commit: what was sent is aborted by the next login, or by the broker's own timeout."""
        producer, self._producer = self._producer, None
        self._newest.clear()
        if producer is not None:
            try:
                producer.close(timeout=1)
            except Exception as why:  # it is being thrown away; what broke it was raised already
                _LOG.debug("closing a Kafka producer: %s", why)


def newest_epoch(connection: Connection, topic: str, timeout_ms: int) -> tuple[int, bytes] | None:
    """The greatest epoch among the newest committed messages of each partition, with its digest."""
    found: list[tuple[int, bytes]] = []
    with consumer(connection, timeout_ms) as client:
        place = library().TopicPartition
        partitions = [place(topic, p) for p in sorted(client.partitions_for_topic(topic) or ())]
        if not partitions:
            return None
        first = client.beginning_offsets(partitions, timeout_ms=timeout_ms)
        ends = client.end_offsets(partitions, timeout_ms=timeout_ms)
        for at in partitions:
            back = _TAIL
            while first[at] < ends[at]:
                start = max(first[at], ends[at] - back)
                headers = [dict(r.headers) for r in _read(client, at, start, ends[at], timeout_ms)]
                ours = [(int(h["ajoin.epoch"]), h["ajoin.digest"]) for h in headers if "ajoin.digest" in h]
                if ours or start == first[at]:
                    found += ours[-1:]
                    break
                back *= 8  # only markers and aborted messages: look further back
    return max(found, default=None)


def _read(client: Any, at: Any, start: int, end: int, timeout_ms: int) -> list[Any]:
    client.assign([at])
    client.seek(at, start)
    records: list[Any] = []
    idle_ms = 0
    while (client.position(at) or start) < end:
        got = client.poll(250).get(at, [])
        records += got
        idle_ms = 0 if got else idle_ms + 250
        if idle_ms > timeout_ms:
            raise library().errors.KafkaTimeoutError(f"{at} gave nothing for {timeout_ms} ms")
    return records


def _explain(failure: BaseException, connection: Connection, topic: str) -> AJoinError:
    errors = library().errors
    if isinstance(failure, errors.ProducerFencedError | errors.InvalidProducerEpochError):
        return FailedPrecondition(
            f"another program writes to topic {topic} with the same transactional id",
            reason="KAFKA_FENCED",
            hint="give each platform topics of its own (option topic)",
        )
    return explain(failure, connection)


# -- rows to bytes -------------------------------------------------------------------------------------------


def _json_rows(table: pa.Table) -> list[dict[str, Any]]:
    columns = [
        c.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(c.type) else c.to_pylist() for c in table.columns
    ]
    names = table.column_names
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _json(row: dict[str, Any]) -> bytes:
    try:
        return json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:  # JSON knows no NaN and no infinity
        plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()


def _keys(table: pa.Table, column: str) -> list[bytes | None]:
    if not column:
        return [None] * table.num_rows
    values = table.column(column)
    plain = values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values
    return [b"" if v is None else str(v).encode("utf-8", "replace") for v in plain.to_pylist()]


def _arrow(table: pa.Table, most: int) -> list[bytes]:
    """Halved until each part fits; a single row that does not is the caller's to refuse."""
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    value = buffer.getvalue().to_pybytes()
    if len(value) <= most or table.num_rows == 1:
        return [value]
    half = table.num_rows // 2
    return _arrow(table.slice(0, half), most) + _arrow(table.slice(half), most)


def _digest(query_id: str, epoch: int, messages: Sequence[tuple[bytes | None, bytes]]) -> bytes:
    hash = hashlib.blake2b(f"{query_id}\0{epoch}\0{len(messages)}".encode("utf-8", "replace"), digest_size=8)
    for _, value in messages:
        hash.update(value)
    return hash.hexdigest().encode()


def _headers(query_id: str, epoch: int, digest: bytes) -> list[tuple[str, bytes]]:
    return [
        ("ajoin.query", query_id.encode("utf-8", "replace")),
        ("ajoin.epoch", str(epoch).encode()),
        ("ajoin.digest", digest),
    ]


def open_kafka(options: Mapping[str, str], allowed_roots: Sequence[Path]) -> KafkaSink:
    s = Settings("kafka", options)
    topic = s.text("topic", "ajoin.{query}")
    if not topic:
        s.refuse("topic", "a topic name; {query} stands for the query's id")
    return KafkaSink(
        SinkConfig(
            connection=parse_connection(s, options, allowed_roots),
            topic=topic,
            format=s.choice("format", "json", FORMATS),
            key=s.text("key", ""),
            transactional=s.choice("guarantee", GUARANTEES[0], GUARANTEES) == GUARANTEES[0],
            max_bytes=s.integer("max_message_bytes", 900_000, 1_000, 100_000_000),
            timeout_ms=s.integer("timeout_ms", 30_000, 1_000, 600_000),
        )
    )
