"""Create and delete queries by Kafka messages: an alternative to gRPC for programs that already speak Kafka.

What the messages look like is in control_messages.py. Replies go to the reply topic with the request id as key, when
the change has taken effect. Requests of one partition are carried out in their order; what is polled together and
may be done together (creates, or deletes, in a row) is one query batch and so one changelog.

Nothing is lost and nothing is done twice. Such a row of requests is carried out, its replies are written, and then its
place is committed to the consumer group, before the next row is looked at. So after a crash, or a lost broker, at most
one row of creates or of deletes is read again, and that changes nothing: creating a query that runs under this id with
this SQL, and deleting one that is deleted, are answered like the first time. A reply can come twice, never not at all.
That is why a request must name its query.

Every program that may write to the topic may create and delete; restrict that with the cluster's own access rights. One
platform reads a control topic: several of them would each carry out its requests.

`status` is a frozen value that is replaced, so metrics may read it from any thread.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ajoin.config import Settings as PlatformSettings
from ajoin.platform.budgets import repeats
from ajoin.platform.control_messages import Request, parse, reply
from ajoin.platform.periodic import Periodic
from ajoin.platform.platform import Outcome, Platform, Wanted
from optimizer.errors import AJoinError, InvalidRequest, NotFound, Unavailable
from runtime.api import QueryState
from runtime.connectors.kafka.connection import (
    CONNECTION_OPTIONS,
    Connection,
    explain,
    failures,
    library,
    parse_connection,
)
from runtime.connectors.options import Option, Settings, check_names

OPTIONS = (
    *CONNECTION_OPTIONS,
    Option("topic", "the topic to read requests from", required=True),
    Option("reply_topic", "where replies go (default <topic>.replies)"),
)

_POLL_MS = 200
_METADATA_MS = 5_000
"""How long a new partition may go unnoticed."""
_SILENCE_S = 5.0
"""How long without requests before the brokers are asked whether they are still there."""
_ASK_MS = 3_000
_PAUSES_S = (0.5, 30.0)

log = logging.getLogger("ajoin.control_topic")


@dataclass(frozen=True, slots=True)
class ControlOptions:
    connection: Connection
    topic: str
    reply_topic: str


@dataclass(frozen=True, slots=True)
class ControlStatus:
    """`up`: requests are being read. `done` and `refused` requests; `failures`: how often the brokers were lost."""

    up: bool = False
    done: int = 0
    refused: int = 0
    failures: int = 0


def parse_options(options: Mapping[str, str]) -> ControlOptions:
    """`bootstrap` and `topic`, optionally `reply_topic` and the security options of a kafka source."""
    check_names("control topic", tuple(options.items()), OPTIONS)
    s = Settings("control topic", options)
    connection = parse_connection(s, options, ())
    topic = s.text("topic", "") or s.refuse("topic", "the topic to read requests from")
    return ControlOptions(connection, topic, s.text("reply_topic", "") or f"{topic}.replies")


def from_settings(settings: PlatformSettings) -> ControlOptions | None:
    """The platform's settings control_*; None when there is no control topic."""
    if not settings.control_topic and not settings.control_brokers:
        return None
    options = {key: value for key, _, value in (text.partition("=") for text in settings.control_options)}
    options |= {"bootstrap": settings.control_brokers, "topic": settings.control_topic}
    if settings.control_replies:
        options["reply_topic"] = settings.control_replies
    try:
        return parse_options(options)
    except InvalidRequest as wrong:
        raise InvalidRequest(
            f"the settings control_topic, control_brokers, control_options: {wrong.message}",
            reason="CONFIG_CONTROL_TOPIC",
            hint=wrong.hint,
        ) from None


class ControlTopic(Collector):
    """A thread that owns its Kafka clients. `start` it beside a started platform."""

    def __init__(self, platform: Platform, options: ControlOptions) -> None:
        self._platform = platform
        self._options = options
        self._pause = 0.0
        self._thread = Periodic(f"control topic {options.topic}", self._read, lambda: self._pause)
        self.status = ControlStatus()

    def start(self) -> ControlTopic:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Finish the requests at hand; what comes later waits in the topic."""
        self._thread.stop(_PAUSES_S[1])  # brokers that went away a moment ago can hold it up

    def __enter__(self) -> ControlTopic:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def collect(self) -> list[Metric]:
        s = self.status
        requests = CounterMetricFamily(
            "ajoin_control_requests_total", "Requests of the control topic that were answered.", labels=["outcome"]
        )
        requests.add_metric(["done"], s.done)
        requests.add_metric(["refused"], s.refused)
        return [
            GaugeMetricFamily("ajoin_control_up", "1 while the control topic is read.", value=float(s.up)),
            requests,
            CounterMetricFamily("ajoin_control_failures_total", "Lost connections to its brokers.", value=s.failures),
        ]

    # -- its thread --

    def _read(self) -> None:
        """Until the end, or until something goes wrong; then after a pause again."""
        try:
            self._serve()
        except failures() as failure:
            where = self._options.connection
            self.status = replace(self.status, failures=self.status.failures + 1)
            if isinstance(failure, library().errors.UnknownTopicOrPartitionError):
                raise Unavailable(f"Kafka at {where} has no such topic", reason="KAFKA_UNAVAILABLE") from failure
            raise explain(failure, where) from failure
        finally:
            self._pause = min(max(2 * self._pause, _PAUSES_S[0]), _PAUSES_S[1])
            self.status = replace(self.status, up=False)

    def _serve(self) -> None:
        """Until the end, or until the brokers are lost."""
        kafka = library()
        o = self._options
        quick = {"bootstrap_timeout_ms": 3_000, "metrics_enabled": False, "reconnect_backoff_max_ms": 1000}
        with kafka.KafkaConsumer(
            **o.connection.arguments,
            **quick,
            group_id=f"ajoin.{o.topic}",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            metadata_max_age_ms=_METADATA_MS,
        ) as consumer:
            self._assign(consumer)
            producer = kafka.KafkaProducer(
                **o.connection.arguments,
                **quick,
                max_block_ms=10_000,
                delivery_timeout_ms=15_000,
                request_timeout_ms=10_000,
            )
            heard = time.monotonic()
            try:
                while not self._thread.stopped:
                    polled = consumer.poll(_POLL_MS)
                    if polled or time.monotonic() - heard > _SILENCE_S:
                        if not polled:  # a poll does not tell whether the brokers answer
                            consumer.end_offsets(consumer.assignment(), timeout_ms=_ASK_MS)
                        heard = time.monotonic()
                    if not self.status.up:
                        self.status = replace(self.status, up=True)
                        log.info("requests are read from control topic %s", o.topic)
                    for place, records in polled.items():
                        self._carry_out(consumer, producer, place, records)
                    self._pause = 0.0
                    self._assign(consumer)
            finally:
                producer.close(timeout=1)

    def _assign(self, consumer: Any) -> None:
        """All partitions, also those that were added since.

        The consumer group only stores the place; partitions are assigned here and not by the group, so a platform that
        comes back after a crash does not wait until the group drops its predecessor.
        """
        kafka, topic = library(), self._options.topic
        partitions = {kafka.TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic) or ()}
        if not partitions:
            raise kafka.errors.UnknownTopicOrPartitionError(topic)
        if partitions != consumer.assignment():
            consumer.assign(sorted(partitions))

    def _carry_out(self, consumer: Any, producer: Any, place: Any, records: Sequence[Any]) -> None:
        """Row by row: done, answered, committed."""
        committed = library().structs.OffsetAndMetadata
        for row in rows_of([parse(r.value) for r in records]):
            outcomes = carry_out(self._platform, row)
            self._answer(producer, row, outcomes)
            records, next_offset = records[len(row) :], records[len(row) - 1].offset + 1
            consumer.commit({place: committed(next_offset, "", -1)})

    def _answer(self, producer: Any, requests: Sequence[Request], outcomes: Sequence[Outcome]) -> None:
        sent = [
            producer.send(
                self._options.reply_topic,
                json.dumps(reply(r, o), ensure_ascii=False).encode(),
                key=r.request_id.encode(),
            )
            for r, o in zip(requests, outcomes, strict=True)
        ]
        producer.flush(15)
        for future in sent:
            future.get(0)
        refused = 0
        for r, o in zip(requests, outcomes, strict=True):
            if isinstance(o, AJoinError):
                refused += 1
                log.warning(
                    "control request %r is refused: %s: %s", r.request_id, o.reason, o, extra={"query": r.query_id}
                )
        s = self.status
        self.status = replace(s, done=s.done + len(requests) - refused, refused=s.refused + refused)


def rows_of(requests: Sequence[Request]) -> list[list[Request]]:
    """Requests next to each other that may be one query batch."""
    return [list(row) for _, row in groupby(requests, key=lambda r: r.verb)]


def carry_out(platform: Platform, row: Sequence[Request]) -> list[Outcome]:
    """One outcome per request of a row. Raises Unavailable when the platform can answer no more."""
    verb = row[0].verb
    if verb == "create":
        answers = platform.create_queries([Wanted(r.query_id, r.sql, r.sinks, r.budget) for r in row]).result()
    elif verb == "delete":
        answers = platform.delete_queries([r.query_id for r in row]).result()
    else:
        return [r.refused for r in row if r.refused is not None]
    return [_repeated(platform, r, a) for r, a in zip(row, answers, strict=True)]


def _repeated(platform: Platform, request: Request, outcome: Outcome) -> Outcome:
    """A request that fails because it was carried out before gets the answer it had then."""
    if not isinstance(outcome, AJoinError):
        return outcome
    try:
        query = platform.query(request.query_id)
    except NotFound:
        return outcome
    if request.verb == "create":
        same = query.sql == request.sql and repeats(request.budget, query.budget)
        return query if query.state == QueryState.RUNNING and same else outcome
    return query if query.state == QueryState.DELETED else outcome
