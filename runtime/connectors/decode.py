"""From JSON-like rows, or a table of any origin, to the stream's columns, losing nothing.

`decode_rows` takes rows (from JSON lines, a push, a message): a missing or null field is NULL, fields the
stream does not have are ignored, a row that is no object or holds a value its column cannot take (see
values.py) is a dead letter that names the column, the value and the expected type. Rows are decoded a column
at a time, so a clean batch costs one pass per column. `conform_table` (conform.py) does the same for columnar
data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.model.types import StreamSchema
from runtime.connectors.base import DeadLetter, Loaded
from runtime.connectors.conform import conform_table
from runtime.connectors.values import assemble, dead_letter, kind_of, row_text, values_to_array

__all__ = ["conform_table", "decode_rows"]


def decode_rows(
    rows: Sequence[Any], schema: StreamSchema, place_prefix: str, row_numbers: Sequence[int] | None = None
) -> Loaded:
    """A dead letter's place is `place_prefix` and the row's number: from 1, or as `row_numbers` says."""
    problems: dict[int, str] = {}
    objects: Sequence[Any] = rows
    if any(type(row) is not dict for row in rows):
        objects = [row if isinstance(row, Mapping) else {} for row in rows]
        for i, row in enumerate(rows):
            if not isinstance(row, Mapping):
                problems[i] = f"expected an object, got {kind_of(row)}"
    arrays = [values_to_array([o.get(c.name) for o in objects], c, problems) for c in schema.columns]

    def letter(i: int) -> DeadLetter:
        number = row_numbers[i] if row_numbers is not None else i + 1
        return dead_letter(f"{place_prefix}{number}", problems[i], row_text(rows[i]))

    return assemble(arrays, schema, len(rows), problems, letter)
