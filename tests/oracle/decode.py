"""From recorded rows to typed tuples: what is a tuple, and what is a dead letter.

A row is a JSON object. A missing field and a null are both NULL; a field the schema does not know is
ignored; a value of the wrong kind makes the whole row a dead letter, and so does an event time that is
NULL. Numbers are judged by value: 3.0 is a fine BIGINT, 3.5 and 2**63 are not, and TRUE is no number at
all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from optimizer.model.types import ColumnType, StreamSchema
from tests.oracle.values import BITS

PER_MILLISECOND = {"ms": 1, "us": 1_000, "ns": 1_000_000}


class DeadLetter(Exception):
    """This row cannot become a tuple."""


def decode(row: Any, schema: StreamSchema) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise DeadLetter(f"{row!r} is not an object")
    decoded = {c.name: decode_value(row.get(c.name), c.type) for c in schema.columns}
    if decoded[schema.time] is None:
        raise DeadLetter("the event time is NULL")
    return decoded


def decode_value(value: Any, type_: ColumnType) -> Any:
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match type_:
        case ColumnType.STRING if isinstance(value, str):
            return value
        case ColumnType.BOOLEAN if isinstance(value, bool):
            return value
        case ColumnType.DOUBLE if is_number:
            try:
                return float(value)
            except OverflowError:
                pass
        case ColumnType.BIGINT | ColumnType.INT | ColumnType.TIMESTAMP if is_number:
            if isinstance(value, int) or value.is_integer():
                bound = 1 << (BITS[type_] - 1)
                if -bound <= value < bound:
                    return int(value)
    raise DeadLetter(f"{value!r} is not a {type_}")


def rows_of_file(path: Path) -> Iterator[Any]:
    """The rows of a Parquet file, or of a file of JSON lines, in file order, as JSON-like values."""
    if path.suffix in (".jsonl", ".ndjson", ".json"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.strip():
                yield _json_or_text(line)
        return
    table = pa.parquet.read_table(path)
    columns = {name: _plain(table.column(name)) for name in table.column_names}
    for i in range(table.num_rows):
        yield {name: values[i] for name, values in columns.items()}


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Timestamps as integer milliseconds; everything else as Arrow gives it."""
    if not pa.types.is_timestamp(column.type):
        return column.to_pylist()
    ticks = column.cast(pa.int64()).to_pylist()
    if column.type.unit == "s":
        return [None if t is None else t * 1000 for t in ticks]
    return [None if t is None else t // PER_MILLISECOND[column.type.unit] for t in ticks]


def _json_or_text(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line  # decode() will call it a dead letter
