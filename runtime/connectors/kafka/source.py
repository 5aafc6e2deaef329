"""Source 'kafka': a topic, each message read exactly once.

An offset is {"topic": the topic's own id, "next": {partition: next offset}}. The epoch log owns it: no
consumer group, no commits to Kafka. A range is read with read_committed isolation up to the last stable
offset, and what lies below that never changes, so a range brings the same messages for ever (on a compacted
topic: minus what was compacted away since; a committed epoch is never read again).

Partitions that appear later start at their first message: all of it is younger than the stream. Per epoch at
most `max_messages` are taken, in proportion to what waits in each partition: partitions that cover the same
time are then caught up at the same speed, and none makes the others late.

While the brokers are away, `latest` answers "nothing new" and asks again after a pause that doubles up to 30 s;
it never raises. A task that loses the brokers half-way waits for them for `timeout_ms` and then fails with
Unavailable; the epoch, whose range is logged, can be run again.

A gap is never silent. Messages that expired, or were cut off, before they were read are one dead letter that
names partition and offsets. A topic that was deleted and created again has another id: reading goes on at its
beginning, with a dead letter that says so.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from optimizer.errors import InvalidRequest, NotFound
from runtime.connectors.base import Offset, Read, Source, bad_offset
from runtime.connectors.kafka.connection import (
    CONNECTION_OPTIONS,
    Connection,
    admin,
    explain,
    failures,
    library,
    parse_connection,
)
from runtime.connectors.kafka.messages import FORMATS
from runtime.connectors.kafka.offsets import deal, make_offset, positions, recreated, shares
from runtime.connectors.kafka.read import KafkaRead, Piece
from runtime.connectors.options import Option, Root, Settings

OPTIONS = (
    *CONNECTION_OPTIONS,
    Option("topic", "the topic to read", required=True),
    Option("format", "json (one object per message) or arrow (an IPC stream per message) (default json)"),
    Option(
        "start",
        "where a new stream starts: earliest, latest, a time (2026-01-31T12:00:00Z or milliseconds), or "
        "offsets such as 0:17,1:4 (default latest)",
    ),
    Option("max_messages", "most messages per epoch (default 200000 for json, 1000 for arrow)"),
    Option("parallelism", "most parallel reads per epoch (default 4)"),
    Option("timeout_ms", "how long a task waits for brokers that went away (default 60000)"),
)

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_LEAST = {"json": 2_000, "arrow": 4}
"""Messages that are worth a task of their own."""
_MOST = {"json": 200_000, "arrow": 1_000}
_ASK_MS = 2_000
"""How long the driver waits for an answer. It serves all streams, so not long."""
_PAUSES_MS = (500, 30_000)
_UNKNOWN_TOPIC = 3

START_FORMS = "earliest, latest, a time like 2026-01-31T12:00:00Z, or offsets like 0:17,1:4"

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Start:
    """`kind` is 'earliest', 'latest', 'time' or 'offsets'."""

    kind: str
    time_ms: int = 0
    offsets: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    connection: Connection
    topic: str
    format: str
    start: Start
    max_messages: int
    parallelism: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Topic:
    """`partitions`: those that have a leader now."""

    id: str
    partitions: tuple[int, ...]


def parse_config(options: Mapping[str, str], allowed_roots: Sequence[Root] = ()) -> KafkaConfig:
    s = Settings("kafka", options)
    topic = s.text("topic", "")
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        s.refuse("topic", "1 to 249 letters, digits, '.', '_' or '-'")
    format = s.choice("format", "json", FORMATS)
    return KafkaConfig(
        connection=parse_connection(s, options, allowed_roots),
        topic=topic,
        format=format,
        start=_parse_start(s),
        max_messages=s.integer("max_messages", _MOST[format], 1, 100_000_000),
        parallelism=s.integer("parallelism", 4, 1, 1024),
        timeout_ms=s.integer("timeout_ms", 60_000, 100, 3_600_000),
    )


def _parse_start(s: Settings) -> Start:
    start = start_of(s.text("start", "latest"))
    return start or s.refuse("start", START_FORMS)


def start_of(text: str) -> Start | None:
    """None: it says nothing that is known."""
    if text.lower() in ("earliest", "latest"):
        return Start(text.lower())
    if re.fullmatch(r"\d+:\d+(\s*,\s*\d+:\d+)*", text):
        pairs = [(int(p), int(n)) for p, _, n in (part.partition(":") for part in text.split(","))]
        offsets = dict(pairs)
        if len(offsets) == len(pairs):
            return Start("offsets", offsets=tuple(sorted(offsets.items())))
    if text.isdecimal():
        return Start("time", time_ms=int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return Start("time", time_ms=max(0, int(moment.timestamp() * 1000)))


class KafkaSource(Source):
    """Remembers only when to ask next after a failure, and what it warned of; the rest is in the offsets."""

    unit = "messages"

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._ask_again_ms = 0
        self._pause_ms = 0
        self._shrunk: Mapping[int, tuple[int, int]] = {}
        self._left = 0

    # -- where to start --

    def initial(self) -> Offset:
        """Asks the cluster, once, when the stream is created; so a wrong address or topic is refused there."""
        return self._at(self._config.start)

    def seek(self, where: str, stands: Offset, now_ms: int) -> Offset:
        start = start_of(where.strip())
        if start is None:
            raise bad_offset(where, f"say {START_FORMS}")
        try:
            return self._at(start)
        except InvalidRequest as refused:
            raise bad_offset(where, refused.message) if refused.reason == "BAD_CONNECTOR_OPTION" else refused from None

    def _at(self, start: Start) -> Offset:
        c = self._config
        try:
            with admin(c.connection, min(_ASK_MS, c.timeout_ms)) as client:
                topic = describe(client, c.topic)
                if topic is None:
                    raise NotFound(
                        f"Kafka at {c.connection} has no topic {c.topic!r}",
                        reason="KAFKA_TOPIC_NOT_FOUND",
                        hint="create it first, or correct the option topic",
                    )
                places = self._starts(client, topic, start)
        except failures() as failure:
            raise explain(failure, c.connection) from failure
        return make_offset(topic.id, places)

    def _starts(self, client: Any, topic: Topic, start: Start) -> dict[int, int]:
        name = self._config.topic
        spec = library().OffsetSpec
        first = ask(client, name, topic.partitions, spec.EARLIEST)
        if start.kind == "earliest":
            return first
        end = ask(client, name, topic.partitions, spec.LATEST)
        if start.kind == "latest":
            return end
        if start.kind == "time":
            at_time = ask(client, name, topic.partitions, start.time_ms)
            # -1: no message is that young, so the stream starts with the next one
            return {p: offset if offset >= 0 else end[p] for p, offset in at_time.items()}
        for p, offset in start.offsets:
            if p not in end or not first[p] <= offset <= end[p]:
                has = f"it holds {first[p]} to {end[p]}" if p in end else "there is no such partition"
                raise InvalidRequest(
                    f"partition {p} of {name} cannot start at {offset}: {has}",
                    reason="BAD_CONNECTOR_OPTION",
                    hint="partitions that are not named start at their first message",
                )
        return first | dict(start.offsets)

    # -- how far --

    def latest(self, start: Offset, now_ms: int) -> Offset:
        if now_ms < self._ask_again_ms:
            return start
        c = self._config
        try:
            with admin(c.connection, min(_ASK_MS, c.timeout_ms)) as client:
                topic = describe(client, c.topic)
                if topic is None:
                    return self._later(start, now_ms, f"there is no topic {c.topic!r}")
                ends = ask(client, c.topic, topic.partitions, library().OffsetSpec.LATEST)
        except failures() as failure:
            return self._later(start, now_ms, explain(failure, c.connection).message)
        if self._pause_ms:
            _LOG.warning("topic %s of Kafka at %s is back", c.topic, c.connection)
            self._pause_ms = self._ask_again_ms = 0
        base = {} if recreated(start, topic.id) else positions(start)
        waiting = {p: end - base.get(p, 0) for p, end in ends.items()}
        self._warn_shrunk({p: (ends[p], base[p]) for p, count in waiting.items() if count < 0})
        taken = shares({p: n for p, n in waiting.items() if n > 0}, c.max_messages)
        self._left = sum(n for n in waiting.values() if n > 0) - sum(taken.values())
        if not taken:
            return start
        return make_offset(topic.id, base | {p: base.get(p, 0) + n for p, n in taken.items()})

    def backlog(self, start: Offset, now_ms: int) -> int:
        """As of the last answer of the brokers."""
        return self._left

    def _warn_shrunk(self, shrunk: Mapping[int, tuple[int, int]]) -> None:
        for p, (end, read) in shrunk.items():
            if self._shrunk.get(p) != (end, read):
                _LOG.warning(
                    "partition %d of topic %s ends at offset %d but was read up to %d: its log was cut off; "
                    "what is written between these offsets will not be read",
                    p,
                    self._config.topic,
                    end,
                    read,
                )
        self._shrunk = shrunk

    def _later(self, start: Offset, now_ms: int, why: str) -> Offset:
        least, most = _PAUSES_MS
        self._pause_ms = min(most, max(least, 2 * self._pause_ms))
        self._ask_again_ms = now_ms + self._pause_ms
        _LOG.warning("no new tuples from Kafka, next try in %.1f s: %s", self._pause_ms / 1000, why)
        return start

    # -- what lies between --

    def reads(self, start: Offset, end: Offset) -> Sequence[Read]:
        c = self._config
        note = ""
        begin = positions(start)
        if recreated(start, end["topic"]):
            note = (
                "the topic was deleted and created again; reading goes on at its beginning, and what the old "
                f"one held from offsets {json.dumps(start['next'], sort_keys=True)} on was not read"
            )
            begin = {}
        pieces = [Piece(p, begin.get(p, 0), stop) for p, stop in sorted(positions(end).items())]
        dealt = deal(pieces, c.parallelism, _LEAST[c.format])
        return [
            KafkaRead(c.connection, c.topic, c.format, tuple(mine), c.timeout_ms, note if i == 0 else "")
            for i, mine in enumerate(dealt)
        ]


# -- asking the cluster --------------------------------------------------------------------------------------


def describe(client: Any, name: str) -> Topic | None:
    """None when there is no such topic."""
    (topic,) = client.describe_topics([name])
    if topic["error_code"] == _UNKNOWN_TOPIC:
        return None
    if topic["error_code"]:
        raise library().errors.for_code(topic["error_code"])(name)
    led = sorted(p["partition_index"] for p in topic["partitions"] if p["leader_id"] >= 0)
    return Topic(topic["topic_id"] or "", tuple(led))


def ask(client: Any, topic: str, partitions: Sequence[int], what: Any) -> dict[int, int]:
    """One offset per partition: first, last stable, or the first at or after a time (-1: none)."""
    if not partitions:
        return {}
    kafka = library()
    answers = client.list_partition_offsets(
        {kafka.TopicPartition(topic, p): what for p in partitions},
        isolation_level=kafka.IsolationLevel.READ_COMMITTED,
        timeout_ms=_ASK_MS,
    )
    return {at.partition: answer.offset for at, answer in answers.items()}
