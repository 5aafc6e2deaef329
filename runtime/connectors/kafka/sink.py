"""Sink 'kafka': a topic per query, each epoch one transaction.

Guarantee: an epoch handed to `write` any number of times is in the topic exactly once, for readers with
read_committed isolation; its messages become visible together or not at all. Every message carries headers

    ajoin.query   ajoin.epoch   ajoin.sequence (its number within the epoch)   ajoin.digest (of the epoch)

so an epoch that is written again after a crash is recognised. Before its first write the sink logs in under a
transactional id made of topic and query, which ends whatever a dead predecessor left open, and then reads the
query's newest messages, back to the epoch before the one it is about to write. The digest keeps a platform
that starts over with an empty state directory, and so with low epoch numbers, from taking an epoch of its
earlier life for the one it has now.

With guarantee=at-least-once (for clusters that do not allow transactions) messages are written by an
idempotent producer without a transaction: a reader may see part of an epoch, or a repeated epoch twice, and
can deduplicate by (ajoin.query, ajoin.epoch, ajoin.sequence).

A second platform that writes the same query's topic takes the transactional id over; the first one then fails
with KAFKA_FENCED instead of mixing its rows in. Costs one connection and two threads per query with this sink.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from optimizer.errors import AJoinError, FailedPrecondition, ResourceExhausted
from runtime.connectors.kafka.connection import (
    CONNECTION_OPTIONS,
    Connection,
    consumer,
    explain,
    failures,
    library,
    make_client,
    new_consumer,
    parse_connection,
)
from runtime.connectors.kafka.encode import Message, digest, encode_arrow, encode_json
from runtime.connectors.kafka.messages import FORMATS
from runtime.connectors.options import Option, Root, Settings, bad_option

GUARANTEES = ("exactly-once", "at-least-once")
OPTIONS = (
    *CONNECTION_OPTIONS,
    Option("topic", "the topic; {query} stands for the query's id (default ajoin.{query})"),
    Option("format", "json (one object per row) or arrow (IPC streams of many rows) (default json)"),
    Option("key", "with json: the output column that is the message key (default: none, all in partition 0)"),
    Option("guarantee", "exactly-once or at-least-once (default exactly-once)"),
    Option("max_message_bytes", "largest message; the topic must allow it (default 900000)"),
    Option("timeout_ms", "how long an epoch may wait for the brokers (default 30000)"),
)

PROBE_MS = 3_000
"""How long brokers may take to answer when a query is created."""

_TAIL = 64
_TAIL_LIMIT = 65_536
"""How far back (in offsets per partition) the newest messages are looked for, at first and at most."""

Written = set[tuple[int, bytes]]
"""(epoch, digest) of what is in the topic."""

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


def topic_name(template: str, query_id: str) -> str:
    """A legal topic name, different for different ids: what is not allowed becomes _ and adds a digest."""
    text = template.replace("{query}", query_id)
    name = re.sub(r"[^a-zA-Z0-9._-]", "_", text)
    if name == text and len(name) <= 249 and name not in (".", ".."):
        return name
    return f"{name[:230]}-{hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"


class KafkaSink:
    """Owns its producer. `write` raises when the epoch is not in the topic; writing it again is safe."""

    def __init__(self, config: SinkConfig) -> None:
        self._config = config
        self._producer: Any = None
        self._owner = ""
        self._written: Written = set()

    def check(self, columns: Sequence[str]) -> None:
        key = self._config.key
        if key and key not in columns:
            raise bad_option(
                f"option key of connector kafka is {key!r}, which is no output of the query",
                "outputs are: " + ", ".join(columns),
            )

    def reach(self) -> None:
        """Do the brokers let us in within `PROBE_MS`? A new client: an idle one might not know that they left."""
        try:
            new_consumer(self._config.connection, PROBE_MS).close()
        except failures() as failure:
            raise explain(failure, self._config.connection) from None

    def write(self, query_id: str, epoch: int, table: pa.Table) -> None:
        if table.num_rows == 0:
            return
        c = self._config
        messages = self._encode(table)
        sign = (epoch, digest(query_id, epoch, messages))
        topic = topic_name(c.topic, query_id)
        try:
            producer = self._open(topic, query_id, epoch)
            if sign in self._written:
                _LOG.info("epoch %d of query %s is in topic %s already", epoch, query_id, topic)
                return
            self._send(producer, topic, messages, _headers(query_id, sign))
        except BaseException as failure:
            self.close()
            if isinstance(failure, failures()):
                raise _explain(failure, c.connection, topic) from failure
            raise
        self._written = {x for x in self._written if x[0] > epoch} | {sign}

    def close(self) -> None:
        """Without a commit: what an unfinished epoch sent is aborted by the next login or the broker."""
        producer, self._producer = self._producer, None
        self._written = set()
        if producer is not None:
            try:
                producer.close(timeout=1)
            except Exception as why:  # it is being thrown away; what broke it was raised already
                _LOG.debug("closing a Kafka producer: %s", why)

    def _encode(self, table: pa.Table) -> list[Message]:
        c = self._config
        self.check(table.column_names)
        messages = encode_json(table, c.key) if c.format == "json" else encode_arrow(table, c.max_bytes)
        largest = max(len(value) for _, value in messages)
        if largest > c.max_bytes:
            raise ResourceExhausted(
                f"a row takes {largest} bytes as a Kafka message; max_message_bytes is {c.max_bytes}",
                reason="KAFKA_MESSAGE_TOO_LARGE",
                hint="raise max_message_bytes and the topic's max.message.bytes, or select less",
            )
        return messages

    def _open(self, topic: str, query_id: str, epoch: int) -> Any:
        """The producer, logged in; `_written` then knows everything of this query from `epoch` on."""
        c = self._config
        owner = f"ajoin.{topic}.{query_id}"
        if self._producer is not None and self._owner == owner:
            return self._producer
        self.close()
        self._producer = make_client(
            "KafkaProducer",
            **c.connection.arguments,
            transactional_id=owner if c.transactional else None,
            transaction_timeout_ms=c.timeout_ms,
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
        self._owner = owner
        if c.transactional:
            self._producer.init_transactions()
            self._producer.partitions_for(topic)  # creates the topic, where brokers do that by themselves
            self._written = written_since(c.connection, topic, query_id, epoch, c.timeout_ms)
        return self._producer

    def _send(self, producer: Any, topic: str, messages: Sequence[Message], headers: list[tuple[str, bytes]]) -> None:
        seconds = self._config.timeout_ms / 1000
        if self._config.transactional:
            producer.begin_transaction()
        sent = [
            producer.send(
                topic,
                value,
                key=key,
                headers=[*headers, ("ajoin.sequence", str(i).encode())],
                partition=0 if key is None else None,
            )
            for i, (key, value) in enumerate(messages)
        ]
        producer.flush(seconds)
        for future in sent:
            future.get(0)
        if self._config.transactional:
            _within(seconds, producer.commit_transaction)


def _within(seconds: float, call: Callable[[], None]) -> None:
    """The library waits for a commit without a limit. If time runs out the outcome is unknown here, and found
    out by the next login."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as failure:
            failed.append(failure)

    thread = threading.Thread(target=run, name="ajoin-kafka-commit", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise library().errors.KafkaTimeoutError(f"the transaction was not committed within {seconds:.0f} s")
    if failed:
        raise failed[0]


def written_since(connection: Connection, topic: str, query_id: str, epoch: int, timeout_ms: int) -> Written:
    """What the topic holds of this query from `epoch` on."""
    written: Written = set()
    with consumer(connection, timeout_ms) as client:
        place = library().TopicPartition
        partitions = [place(topic, p) for p in sorted(client.partitions_for_topic(topic) or ())]
        if not partitions:
            return written
        first = client.beginning_offsets(partitions, timeout_ms=timeout_ms)
        ends = client.end_offsets(partitions, timeout_ms=timeout_ms)
        for at in partitions:
            back, start = _TAIL, ends[at]
            while start > first[at] and back <= _TAIL_LIMIT:
                start = max(first[at], ends[at] - back)
                mine = _signs(_read(client, at, start, ends[at], timeout_ms), query_id)
                written |= mine
                if any(e < epoch for e, _ in mine):
                    break
                back *= 8
    return {x for x in written if x[0] >= epoch}


def _signs(records: Sequence[Any], query_id: str) -> Written:
    headers = (dict(r.headers) for r in records)
    name = query_id.encode("utf-8", "replace")
    return {(int(h["ajoin.epoch"]), h["ajoin.digest"]) for h in headers if h.get("ajoin.query") == name}


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


def _headers(query_id: str, sign: tuple[int, bytes]) -> list[tuple[str, bytes]]:
    epoch, digest = sign
    return [
        ("ajoin.query", query_id.encode("utf-8", "replace")),
        ("ajoin.epoch", str(epoch).encode()),
        ("ajoin.digest", digest),
    ]


def _explain(failure: BaseException, connection: Connection, topic: str) -> AJoinError:
    errors = library().errors
    if isinstance(failure, errors.ProducerFencedError | errors.InvalidProducerEpochError):
        return FailedPrecondition(
            f"another program writes to topic {topic} under the same transactional id",
            reason="KAFKA_FENCED",
            hint="give each platform topics of its own (option topic)",
        )
    return explain(failure, connection)


def open_kafka(options: Mapping[str, str], allowed_roots: Sequence[Root]) -> KafkaSink:
    s = Settings("kafka", options)
    topic = s.text("topic", "ajoin.{query}")
    if not topic:
        s.refuse("topic", "a topic name; {query} stands for the query's id")
    config = SinkConfig(
        connection=parse_connection(s, options, allowed_roots),
        topic=topic,
        format=s.choice("format", "json", FORMATS),
        key=s.text("key", ""),
        transactional=s.choice("guarantee", GUARANTEES[0], GUARANTEES) == GUARANTEES[0],
        max_bytes=s.integer("max_message_bytes", 900_000, 1_000, 100_000_000),
        timeout_ms=s.integer("timeout_ms", 30_000, 1_000, 600_000),
    )
    if config.key and config.format == "arrow":
        raise bad_option(
            "option key of connector kafka needs format=json", "an Arrow message holds many rows and has no key"
        )
    return KafkaSink(config)
