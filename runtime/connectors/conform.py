"""From a table of any origin (Parquet, Arrow) to the stream's columns, losing nothing.

What is accepted, per column type of the stream:

    BIGINT, INT   any integer, float or decimal column; each value must be whole and fit
    DOUBLE        any integer, float or decimal column (rounded to the nearest double)
    TIMESTAMP     a timestamp of any unit, cut down to the millisecond (with a time zone: as UTC), or whole
                  numbers as milliseconds; not a date, which names no instant
    STRING        text (also dictionary-encoded); must be valid UTF-8
    BOOLEAN       booleans

A column the table lacks is NULL, one the stream lacks is dropped. A value that breaks the rules makes its row
a dead letter; a column of a type that cannot be used at all makes every row one, because a tuple with a
silently missing column would be a wrong tuple. Nothing in here raises for what the data holds: Arrow's
checked casts do the work, and only a column they refuse is walked value by value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.connectors.base import ARROW_TYPES, DeadLetter, Loaded
from runtime.connectors.values import Problems, assemble, dead_letter, row_text, values_to_array

_AS_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
_PER_MILLISECOND = {"us": 1_000, "ns": 1_000_000}


class Unusable(Exception):
    """No value of this column can be used; says why."""


def check_bounds(table: pa.Table) -> None:
    """Raises ArrowInvalid for a table that points outside of its own buffers: using it unchecked could take the whole
    process down, again with every attempt. For what comes from outside as Arrow's own format."""
    for column in table.columns:
        for chunk in column.chunks:
            # Bytes that are no UTF-8 harm only their row, and conform_table names it; bad bounds harm everybody.
            raw = _AS_BYTES.get(chunk.type)
            (chunk if raw is None else chunk.view(raw)).validate(full=True)


def conform_table(table: pa.Table, schema: StreamSchema, place: str) -> Loaded:
    """A dead letter's place is `place` and the row's number, from 1."""
    problems: dict[int, str] = {}
    arrays: list[pa.ChunkedArray | pa.Array] = []
    for column in schema.columns:
        positions = table.schema.get_all_field_indices(column.name)
        if not positions:
            arrays.append(pa.nulls(table.num_rows, ARROW_TYPES[column.type]))
            continue
        try:
            if len(positions) > 1:
                raise Unusable(f"column {column.name} appears {len(positions)} times")
            arrays.append(conform_column(table.column(positions[0]), column, problems))
        except Unusable as why:
            arrays.append(pa.nulls(table.num_rows, ARROW_TYPES[column.type]))
            for i in range(table.num_rows):
                problems.setdefault(i, str(why))
    texts = _row_texts(table, sorted(problems))

    def letter(i: int) -> DeadLetter:
        return dead_letter(f"{place} row {i + 1}", problems[i], texts[i])

    return assemble(arrays, schema, table.num_rows, problems, letter)


def conform_column(values: pa.ChunkedArray, column: Column, problems: Problems) -> pa.ChunkedArray | pa.Array:
    """One column in the stream's type; raises Unusable when its type can never be."""
    try:
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if pa.types.is_null(values.type):
            return pa.nulls(len(values), ARROW_TYPES[column.type])
        if not _acceptable(values.type, column.type):
            raise Unusable(f"column {column.name}: expected {column.type}, but the column holds {values.type}")
        if column.type is ColumnType.STRING:
            return _text(values, column, problems)
        if pa.types.is_timestamp(values.type):
            return _milliseconds(values, column, problems)
        return _checked(values, column, problems)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowCapacityError) as why:
        raise Unusable(f"column {column.name}: {values.type} cannot be turned into {column.type}: {why}") from why


def _acceptable(have: pa.DataType, want: ColumnType) -> bool:
    is_number = pa.types.is_integer(have) or pa.types.is_floating(have) or pa.types.is_decimal(have)
    match want:
        case ColumnType.BIGINT | ColumnType.INT | ColumnType.DOUBLE:
            return bool(is_number)
        case ColumnType.TIMESTAMP:
            return bool(is_number or pa.types.is_timestamp(have))
        case ColumnType.STRING:
            return bool(pa.types.is_string(have) or pa.types.is_large_string(have) or have == pa.string_view())
        case ColumnType.BOOLEAN:
            return bool(pa.types.is_boolean(have))


def _checked(values: pa.ChunkedArray, column: Column, problems: Problems) -> pa.ChunkedArray | pa.Array:
    target = ARROW_TYPES[column.type]
    if column.type is ColumnType.DOUBLE and not pa.types.is_decimal(values.type):
        return values.cast(target, safe=False)  # "unsafe" only rounds integers beyond 2^53, as JSON numbers are
    transport = pa.int64() if column.type is ColumnType.TIMESTAMP else target
    try:
        return values.cast(transport).cast(target)
    except pa.ArrowInvalid:
        return values_to_array(values.to_pylist(), column, problems)


def _text(values: pa.ChunkedArray, column: Column, problems: Problems) -> pa.ChunkedArray | pa.Array:
    # Writers promise UTF-8 and readers do not look; text that is not would blow up far from here.
    values = values.cast(pa.string())
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        decoded = [None if b is None else _decode(b) for b in values.cast(pa.binary()).to_pylist()]
        return values_to_array(decoded, column, problems)
    return values


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _milliseconds(values: pa.ChunkedArray, column: Column, problems: Problems) -> pa.Array:
    unit = values.type.unit
    counts = values.cast(pa.int64()).combine_chunks()
    missing = np.asarray(counts.is_null())
    raw = np.asarray(counts.fill_null(0))
    if unit in _PER_MILLISECOND:
        raw = np.floor_divide(raw, _PER_MILLISECOND[unit])  # floor, so that time before 1970 is cut the same way
    elif unit == "s":
        limit = (2**63 - 1) // 1000
        beyond = np.abs(raw) > limit
        for i in np.flatnonzero(beyond):
            problems.setdefault(int(i), f"column {column.name}: {raw[i]} s does not fit into milliseconds")
        raw = np.where(beyond, 0, raw) * 1000
    return pa.array(raw, mask=missing).cast(ARROW_TYPES[column.type])


def _row_texts(table: pa.Table, rows: Sequence[int]) -> dict[int, str]:
    """What the dead rows looked like; timestamps as their count, since Python knows no year above 9999."""
    if not rows:
        return {}
    plain = [pc.cast(c, pa.int64()) if pa.types.is_timestamp(c.type) else c for c in table.columns]
    picked = pa.Table.from_arrays(plain, names=table.column_names).take(pa.array(rows, pa.int64()))
    try:
        texts = [row_text(_named(picked, values)) for values in zip(*map(_values, picked.columns), strict=True)]
    except (ValueError, OverflowError, pa.ArrowException):
        texts = ["<cannot be shown>"] * len(rows)
    return dict(zip(rows, texts, strict=True))


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        raw = column.cast(pa.binary() if pa.types.is_string(column.type) else pa.large_binary()).to_pylist()
        return [None if b is None else b.decode("utf-8", "replace") for b in raw]
    return list(column.to_pylist())


def _named(table: pa.Table, values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(table.column_names, values, strict=True))
