"""Arithmetic on the Kafka source's offsets: {"topic": the topic's own id, "next": {partition: next offset}}.

Pure functions; a partition that is not in "next" has not been read yet and stands at 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runtime.connectors.base import Offset
from runtime.connectors.kafka.read import Piece


def make_offset(topic_id: str, next: Mapping[int, int]) -> Offset:
    return {"topic": topic_id, "next": {str(p): n for p, n in sorted(next.items())}}


def positions(offset: Offset) -> dict[int, int]:
    return {int(p): n for p, n in offset["next"].items()}


def recreated(start: Offset, topic_id: str) -> bool:
    """Brokers before 2.8 give topics no id; then a new topic cannot be told from the old one."""
    return bool(start["topic"] and topic_id and start["topic"] != topic_id)


def shares(waiting: Mapping[int, int], most: int) -> dict[int, int]:
    """How many messages of each partition make up an epoch of at most `most`, in proportion to what waits."""
    total = sum(waiting.values())
    if total <= most:
        return dict(waiting)
    parts = {p: n * most // total for p, n in waiting.items()}
    rest = most - sum(parts.values())
    by_remainder = sorted(waiting, key=lambda p: (-(waiting[p] * most % total), p))
    for p in by_remainder[:rest]:
        parts[p] += 1
    return {p: n for p, n in parts.items() if n}


def deal(pieces: Sequence[Piece], most: int, least: int) -> list[list[Piece]]:
    """Lay the ranges end to end and cut the line into equal parts: at most `most`, of `least` messages or more."""
    total = sum(p.end - p.start for p in pieces)
    count = max(1, min(most, total // least))
    cuts = [total * i // count for i in range(count + 1)]
    dealt: list[list[Piece]] = [[] for _ in range(count)]
    at = 0
    for piece in pieces:
        size = piece.end - piece.start
        for mine, low, high in zip(dealt, cuts, cuts[1:], strict=False):
            start, end = max(low, at) - at, min(high, at + size) - at
            if start < end:
                mine.append(Piece(piece.partition, piece.start + start, piece.start + end))
        at += size
    return [mine for mine in dealt if mine]
