"""The part of the Kafka source that runs inside a Spark task: fetch some offset ranges, decode them.

Whatever the brokers do meanwhile, a read ends in one of three ways: with every message of its ranges that
still exists and is committed; with dead letters for the offsets that no longer exist; or with an error after
`timeout_ms` without progress. A client that failed is thrown away and the fetch goes on with a new one at the
first offset that is still missing, so nothing is taken twice.

Offsets in a range need not all carry a message (transaction markers, aborted transactions, compaction). The
consumer's position, not the number of messages, tells when a range is done.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from optimizer.errors import FailedPrecondition
from optimizer.model.types import StreamSchema
from runtime.connectors.base import DeadLetter, Loaded, arrow_schema
from runtime.connectors.kafka.connection import Connection, explain, failures, library
from runtime.connectors.kafka.messages import decode_messages, join_loaded
from runtime.connectors.kafka.packed import PackedMessages, join_messages
from runtime.connectors.kafka.whole_batches import batch_consumer, packed
from runtime.connectors.values import dead_letter

_POLL_MS = 250
_STALLED_S = 3.0
"""After so long without progress, look whether the log still reaches as far as the range does."""
_PAUSES_S = (0.1, 2.0)


@dataclass(frozen=True, slots=True)
class Piece:
    """Offsets [start, end) of one partition."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class KafkaRead:
    """`note` is a dead letter about the topic as a whole."""

    connection: Connection
    topic: str
    format: str
    pieces: tuple[Piece, ...]
    timeout_ms: int
    note: str = ""

    @property
    def place(self) -> str:
        pieces = (f"partition {p.partition} offsets {p.start} to {p.end - 1}" for p in self.pieces)
        return f"{self.topic} {', '.join(pieces)}"

    def load(self, schema: StreamSchema) -> Loaded:
        parts = []
        if self.note:
            letter = dead_letter(f"topic {self.topic}", self.note)
            parts.append(Loaded(arrow_schema(schema).empty_table(), [letter]))
        for piece in self.pieces:
            taken = fetch(self.connection, self.topic, piece, self.timeout_ms)
            place = f"{self.topic} partition {piece.partition}"
            messages = join_messages(taken.parts)
            loaded = decode_messages(self.format, messages, messages.offsets.tolist(), schema, place)
            parts.append(Loaded(loaded.table, taken.gaps + loaded.dead, taken.arrived_ms))
        return join_loaded(parts, schema)


@dataclass(slots=True)
class Taken:
    """What has been fetched of a piece; everything before `at` is settled. `arrived_ms`: the earliest of the messages'
    timestamps (of a batch of messages, the one it was closed with)."""

    at: int
    parts: list[PackedMessages] = field(default_factory=list)
    gaps: list[DeadLetter] = field(default_factory=list)
    arrived_ms: int | None = None


def fetch(connection: Connection, topic: str, piece: Piece, timeout_ms: int) -> Taken:
    """All messages of the piece; raises Unavailable after `timeout_ms` without progress."""
    taken = Taken(piece.start)
    patience = _Patience(timeout_ms / 1000)
    while taken.at < piece.end:
        before = taken.at
        try:
            with batch_consumer(connection, min(timeout_ms, 5_000)) as client:
                _drain(client, topic, piece, taken, patience)
        except failures() as failure:
            error = explain(failure, connection)
            if isinstance(error, FailedPrecondition):
                raise error from failure
            if taken.at > before:
                patience.renew()
            if not patience.pause():
                raise error from failure
    return taken


def _drain(client: Any, topic: str, piece: Piece, taken: Taken, patience: _Patience) -> None:
    errors = library().errors
    place = library().TopicPartition(topic, piece.partition)
    client.assign([place])
    client.seek(place, taken.at)
    while taken.at < piece.end:
        try:
            records = client.poll(_POLL_MS, max_records=piece.end - taken.at).get(place, ())
        except (errors.OffsetOutOfRangeError, errors.NoOffsetForPartitionError, errors.LogTruncationError):
            _settle(client, place, piece, taken, patience)
            continue
        # Cut to the piece: batches are not, and gaps in the offsets (compaction, markers) let a poll run past the end.
        taken.parts += packed(records, taken.at, piece.end)
        times = (r.timestamp for r in records if r.timestamp is not None and r.timestamp >= 0)
        taken.arrived_ms = min((t for t in (taken.arrived_ms, *times) if t is not None), default=None)
        reached = min(client.position(place, timeout_ms=0) or taken.at, piece.end)
        if reached > taken.at:
            taken.at = reached
            patience.renew()
        elif patience.waited() > min(_STALLED_S, patience.limit / 2):
            _settle(client, place, piece, taken, patience)


def _settle(client: Any, place: Any, piece: Piece, taken: Taken, patience: _Patience) -> None:
    """No progress: skip what has expired, wait for the rest, and in the end give up what was cut off.

    A log that is too short can be one that is still being recovered, so that verdict takes all the time there
    is; expiry is never taken back, so that one is immediate.
    """
    ask_ms = min(2_000, int(patience.limit * 1000))
    first = client.beginning_offsets([place], timeout_ms=ask_ms)[place]
    end = client.end_offsets([place], timeout_ms=ask_ms)[place]
    goal = taken.at
    if first > taken.at:
        goal = min(first, piece.end)
    elif not patience.pause():
        if end > taken.at:
            raise library().errors.KafkaTimeoutError(f"{place} gave nothing at offset {taken.at}")
        goal = piece.end
    if goal > taken.at:
        reason = (
            f"offsets {taken.at} to {goal - 1} are lost: the topic holds {first} to {end} now "
            "(they expired, were deleted or were cut off before they were read)"
        )
        letter = dead_letter(f"{place.topic} partition {place.partition} offset {taken.at}", reason)
        taken.gaps.append(letter)
        taken.at = goal
        patience.renew()
    client.seek(place, taken.at)


class _Patience:
    """Counts the time without progress, and the pauses in it, which double."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.renew()

    def renew(self) -> None:
        self._since = time.monotonic()
        self._pause = _PAUSES_S[0]

    def waited(self) -> float:
        return time.monotonic() - self._since

    def pause(self) -> bool:
        """False when there is no time left to try again."""
        left = self.limit - self.waited()
        if left <= 0:
            return False
        time.sleep(min(self._pause, left))
        self._pause = min(2 * self._pause, _PAUSES_S[1])
        return True
