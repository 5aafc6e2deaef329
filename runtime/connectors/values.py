"""Which values a column takes: the rules for JSON-like values, and the two ends every reader shares.

    BIGINT, INT, TIMESTAMP   a whole number that fits (3.0 is one, true is not); TIMESTAMP counts milliseconds
    DOUBLE                   any number (true is not one)
    STRING                   text that is valid Unicode
    BOOLEAN                  true or false

None is NULL. `values_to_array` hands a column to Arrow as a whole; only a column that is not plainly right is
walked value by value, to find out which rows are to blame. `assemble` then puts the columns together without
those rows and makes dead letters of them: a row becomes a tuple or a dead letter, never both and never
nothing.
"""

from __future__ import annotations

import json
import numbers
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.connectors.base import ARROW_TYPES, DeadLetter, Loaded, arrow_schema

TEXT_LIMIT = 200
Problems = MutableMapping[int, str]
"""Row index -> what is wrong with it (the first thing found)."""

_LIMITS = {
    ColumnType.BIGINT: (-(2**63), 2**63 - 1),
    ColumnType.TIMESTAMP: (-(2**63), 2**63 - 1),
    ColumnType.INT: (-(2**31), 2**31 - 1),
}
_EXACT: dict[ColumnType, frozenset[type]] = {
    ColumnType.BIGINT: frozenset({int}),
    ColumnType.TIMESTAMP: frozenset({int}),
    ColumnType.INT: frozenset({int}),
    ColumnType.DOUBLE: frozenset({int, float}),
    ColumnType.STRING: frozenset({str}),
    ColumnType.BOOLEAN: frozenset({bool}),
}
_NONE = frozenset({type(None)})


def values_to_array(values: Sequence[Any], column: Column, problems: Problems) -> pa.Array:
    """One column; a value that breaks the rules becomes NULL here and its row an entry of `problems`."""
    target = ARROW_TYPES[column.type]
    transport = pa.int64() if column.type is ColumnType.TIMESTAMP else target
    if set(map(type, values)) <= _EXACT[column.type] | _NONE:
        try:
            return pa.array(values, type=transport).cast(target)
        except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
            pass  # some value is too large, or text is not Unicode: the walk below finds it
    convert, kept = _CONVERT[column.type], []
    for i, value in enumerate(values):
        try:
            kept.append(None if value is None else convert(value, column.type))
        except (ValueError, OverflowError) as why:
            kept.append(None)
            problems.setdefault(i, f"column {column.name}: expected {column.type}, got {_show(value)}{_reason(why)}")
    return pa.array(kept, type=transport).cast(target)


def assemble(
    arrays: Sequence[pa.Array | pa.ChunkedArray],
    schema: StreamSchema,
    count: int,
    problems: Mapping[int, str],
    letter: Callable[[int], DeadLetter],
) -> Loaded:
    """All columns together, without the rows in `problems`, which become dead letters in row order."""
    table = pa.Table.from_arrays(list(arrays), schema=arrow_schema(schema))
    if not problems:
        return Loaded(table)
    keep = np.ones(count, dtype=bool)
    keep[list(problems)] = False
    return Loaded(table.filter(pa.array(keep)), [letter(i) for i in sorted(problems)])


def dead_letter(place: str, reason: str, text: str = "") -> DeadLetter:
    """All parts as valid Unicode of bounded length, whatever came in."""
    return DeadLetter(clean_text(place, 400), clean_text(reason, 400), clean_text(text, TEXT_LIMIT))


def clean_text(text: str, limit: int) -> str:
    whole = text if len(text) <= limit else text[: limit - 1] + "…"
    return whole.encode("utf-8", "replace").decode("utf-8")


# -- one value -----------------------------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real | Decimal) and not isinstance(value, bool)


def _integer(value: Any, type: ColumnType) -> int:
    if not _is_number(value):
        raise ValueError
    try:
        whole = int(value)
    except (OverflowError, ValueError):  # infinity, NaN
        raise ValueError("not a whole number") from None
    if whole != value:
        raise ValueError("not a whole number")
    low, high = _LIMITS[type]
    if not low <= whole <= high:
        raise ValueError(f"outside {low} .. {high}")
    return whole


def _double(value: Any, type: ColumnType) -> float:
    if not _is_number(value):
        raise ValueError
    try:
        return float(value)
    except OverflowError:
        raise ValueError("too large") from None


def _string(value: Any, type: ColumnType) -> str:
    if not isinstance(value, str):
        raise ValueError
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("not valid Unicode") from None
    return value


def _boolean(value: Any, type: ColumnType) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


_CONVERT: dict[ColumnType, Callable[[Any, ColumnType], Any]] = {
    ColumnType.BIGINT: _integer,
    ColumnType.TIMESTAMP: _integer,
    ColumnType.INT: _integer,
    ColumnType.DOUBLE: _double,
    ColumnType.STRING: _string,
    ColumnType.BOOLEAN: _boolean,
}


# -- words for messages --------------------------------------------------------------------------------------


def kind_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return "text"
        case int() | float():
            return f"the number {clean_text(row_text(value), 40)}"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "an object"
        case _:
            return f"a {type(value).__name__}"


def _show(value: Any) -> str:
    if isinstance(value, str):
        return clean_text(row_text(value), 60)
    kind = kind_of(value)
    return kind.removeprefix("the number ")


def _reason(why: Exception) -> str:
    return f" ({why})" if str(why) else ""


def row_text(row: Any) -> str:
    try:
        return json.dumps(row, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return safe_repr(row)


def safe_repr(value: Any) -> str:
    try:
        return repr(value)
    except (ValueError, RecursionError):  # an int of more digits than Python prints, a very deep nest
        return f"<{type(value).__name__}>"
