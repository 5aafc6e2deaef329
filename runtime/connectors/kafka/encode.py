"""From a query's rows to Kafka message values: one JSON object per row, or Arrow IPC streams of many rows.

TIMESTAMP values are whole milliseconds in JSON. JSON knows no NaN and no infinity; they become null there, and
stay what they are in Arrow. Both formats can be read back by a 'kafka' source.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

Message = tuple[bytes | None, bytes]
"""Key and value."""


def encode_json(table: pa.Table, key: str) -> list[Message]:
    """`key` names the column whose text is the message key; empty: no keys. A NULL key is the empty text."""
    columns = [_plain(c) for c in table.columns]
    names = table.column_names
    keys: Sequence[Any] = columns[names.index(key)] if key else ()
    values = [_json(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
    if not key:
        return [(None, value) for value in values]
    texts = ["" if k is None else str(k) for k in keys]
    return [(text.encode("utf-8", "replace"), value) for text, value in zip(texts, values, strict=True)]


def encode_arrow(table: pa.Table, most: int) -> list[Message]:
    """Halved until each part has at most `most` bytes; a single row can still be larger."""
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    value = buffer.getvalue().to_pybytes()
    if len(value) <= most or table.num_rows == 1:
        return [(None, value)]
    half = table.num_rows // 2
    return encode_arrow(table.slice(0, half), most) + encode_arrow(table.slice(half), most)


def digest(query_id: str, epoch: int, messages: Sequence[Message]) -> bytes:
    """The same for the same rows of the same epoch and query, and for nothing else."""
    hash = hashlib.blake2b(digest_size=8)
    for part in (query_id.encode("utf-8", "replace"), str(epoch).encode(), *(v for _, v in messages)):
        hash.update(len(part).to_bytes(8, "little"))
        hash.update(part)
    return hash.hexdigest().encode()


def _plain(column: pa.ChunkedArray) -> list[Any]:
    values = column.cast(pa.timestamp("ms")).cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    return list(values.to_pylist())


def _json(row: dict[str, Any]) -> bytes:
    try:
        return json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        return json.dumps(finite, ensure_ascii=False, separators=(",", ":")).encode()
