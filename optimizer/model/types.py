"""Column types and stream schemas: the vocabulary every layer shares.

Values travel as: BIGINT int64, INT int32, DOUBLE float64, BOOLEAN bool, TIMESTAMP int64 milliseconds since the Unix
epoch, STRING text. Every column may hold NULL, except that a tuple whose event time is NULL is a dead letter.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ColumnType(StrEnum):
    BIGINT = "BIGINT"
    INT = "INT"
    DOUBLE = "DOUBLE"
    STRING = "STRING"
    BOOLEAN = "BOOLEAN"
    TIMESTAMP = "TIMESTAMP"


INTEGERS = frozenset({ColumnType.BIGINT, ColumnType.INT})
NUMBERS = frozenset({ColumnType.BIGINT, ColumnType.INT, ColumnType.DOUBLE})


def common_type(a: ColumnType, b: ColumnType) -> ColumnType | None:
    """The type in which two values are compared, or None when they cannot be: INT < BIGINT < DOUBLE."""
    if a == b:
        return a
    if a in NUMBERS and b in NUMBERS:
        return ColumnType.DOUBLE if ColumnType.DOUBLE in (a, b) else ColumnType.BIGINT
    return None


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: ColumnType


@dataclass(frozen=True, slots=True)
class StreamSchema:
    """A stream's contract. `time` names its TIMESTAMP (or BIGINT) event-time column, in milliseconds.

    `idle_timeout_ms`: after so much processing time without data the stream no longer holds back the watermark of
    its queries; None switches that off. `max_ahead_ms`, `max_jump_ms`: a tuple whose event time lies further than that
    beyond the clock, or beyond the tuples before and around it, is a dead letter; None: no bound. `owner`: the tenant
    that declared it; empty: nobody's.
    """

    name: str
    columns: tuple[Column, ...]
    time: str
    watermark_delay_ms: int = 0
    allowed_lateness_ms: int = 0
    idle_timeout_ms: int | None = None
    owner: str = ""
    max_ahead_ms: int | None = None
    max_jump_ms: int | None = None

    def column(self, name: str) -> Column | None:
        return next((c for c in self.columns if c.name == name), None)
