"""Typed values from text (CSV fields): the whole column at once, value by value only if that fails.

    BIGINT, INT   12, -3 (or 0x1f)          DOUBLE    1.5, 2e3, nan, inf
    BOOLEAN       true, false, 1, 0         STRING    as it is
    TIMESTAMP     milliseconds as a whole number, or ISO 8601 (2024-05-01T12:00:00.5Z; UTC when no zone is
                  given, cut down to the millisecond)

Blanks around a value that is not a STRING do not count, and nothing but blanks is NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from optimizer.model.types import Column, ColumnType
from runtime.connectors.base import ARROW_TYPES
from runtime.connectors.values import Problems, clean_text, row_text, values_to_array

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def cast_text(values: pa.Array | pa.ChunkedArray, column: Column) -> pa.Array | pa.ChunkedArray:
    """A whole column; raises ArrowInvalid when any value does not read as the column's type."""
    target = ARROW_TYPES[column.type]
    if column.type is ColumnType.STRING:
        return values
    trimmed = pc.utf8_trim_whitespace(values)
    trimmed = pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed)
    if column.type is ColumnType.TIMESTAMP:
        try:
            return trimmed.cast(pa.int64()).cast(target)
        except pa.ArrowInvalid:
            return trimmed.cast(target)
    return trimmed.cast(target)


def text_to_array(values: Sequence[str | None], column: Column, problems: Problems) -> pa.Array:
    """Like `cast_text`, but a bad value becomes NULL here and its row an entry of `problems`."""
    try:
        return cast_text(pa.array(values, pa.string()), column)
    except (pa.ArrowInvalid, UnicodeEncodeError):
        pass
    kept: list[Any] = []
    for i, value in enumerate(values):
        try:
            kept.append(None if value is None else _one(value, column))
        except ValueError:
            kept.append(None)
            shown = clean_text(row_text(value), 60)
            problems.setdefault(i, f"column {column.name}: expected {column.type}, got {shown}")
    return values_to_array(kept, column, problems)


def _one(value: str, column: Column) -> Any:
    # ArrowInvalid is a ValueError, and so is text that is not Unicode.
    try:
        return _plain(cast_text(pa.array([value], pa.string()), column))
    except pa.ArrowInvalid:
        if column.type is not ColumnType.TIMESTAMP:
            raise
        moment = datetime.fromisoformat(value.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(milliseconds=1)


def _plain(array: pa.Array) -> Any:
    return (array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array)[0].as_py()
