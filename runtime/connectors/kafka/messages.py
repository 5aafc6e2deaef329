"""From Kafka message values to the stream's columns, a batch of messages at a time.

json    one object per message. All values are joined into one buffer of lines and parsed by Arrow at once.
arrow   an Arrow IPC stream or file per message, with any number of rows. Tables of equal schema are joined
        and converted at once.

As in formats.py, each has a fast way that is used only if it finds nothing to complain about, and a careful
way, message by message, that knows which message is to blame. A dead letter names topic, partition and
offset (and the row inside an Arrow message). A message without a value (a tombstone) is no tuple and is
reported like any other message that cannot be decoded. Nothing in here raises for what a message holds.

When is the fast JSON way safe? Arrow reads a sequence of objects and does not care for lines: two objects in
one message, or one object over two messages, would go unnoticed if they balance. So every value must begin
with '{', end with '}' and hold no line break. Then a line break can only stand between two objects ('}' and
'{' with only a break between them occur nowhere inside JSON, and not inside its strings either), each line
holds at least one object, and as many rows as lines means one object each. A bare `null`, which crashes some
versions of Arrow's parser, could then only follow a '}', and is looked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from optimizer.model.types import StreamSchema
from runtime.connectors.base import DeadLetter, Loaded, arrow_schema
from runtime.connectors.conform import check_bounds, conform_table
from runtime.connectors.decode import decode_rows
from runtime.connectors.formats import parse_json_lines
from runtime.connectors.kafka.packed import PackedMessages
from runtime.connectors.values import dead_letter

FORMATS = ("json", "arrow")
_FILE_MAGIC = b"ARROW1"
_BARE_NULL = re.compile(rb"\}\s*null")


def decode_messages(
    format: str, values: Sequence[bytes | None], offsets: Sequence[int], schema: StreamSchema, place: str
) -> Loaded:
    """`place` names topic and partition; the offset is added to it."""
    if not values:
        return Loaded(arrow_schema(schema).empty_table())
    return (_json if format == "json" else _arrow)(values, offsets, schema, place)


def join_loaded(parts: Sequence[Loaded], schema: StreamSchema) -> Loaded:
    tables = [p.table for p in parts] or [arrow_schema(schema).empty_table()]
    arrived = min((p.arrived_ms for p in parts if p.arrived_ms is not None), default=None)
    return Loaded(pa.concat_tables(tables), [letter for p in parts for letter in p.dead], arrived)


# -- JSON ----------------------------------------------------------------------------------------------------


def _json(values: Sequence[bytes | None], offsets: Sequence[int], schema: StreamSchema, place: str) -> Loaded:
    fast = _fast_json(values, schema)
    if fast is not None:
        return Loaded(fast)
    rows: list[Any] = []
    kept: list[int] = []
    dead: list[tuple[int, DeadLetter]] = []
    for value, offset in zip(values, offsets, strict=True):
        if value is None:
            dead.append((offset, _empty(place, offset)))
            continue
        try:
            rows.append(json.loads(value.decode("utf-8")))
            kept.append(offset)
        except (ValueError, RecursionError) as why:
            text = value[:400].decode("utf-8", "replace")
            letter = dead_letter(f"{place} offset {offset}", f"not a JSON object: {why}", text)
            dead.append((offset, letter))
    loaded = decode_rows(rows, schema, f"{place} offset ", kept)
    dead += [(int(letter.place.rpartition(" ")[2]), letter) for letter in loaded.dead]
    return Loaded(loaded.table, [letter for _, letter in sorted(dead, key=lambda d: d[0])])


def _fast_json(values: Sequence[bytes | None], schema: StreamSchema) -> pa.Table | None:
    packed = values if isinstance(values, PackedMessages) else PackedMessages.of(values, range(len(values)))
    data = packed.object_lines()
    if data is None or (b"null" in data and _BARE_NULL.search(data)):
        return None
    return parse_json_lines(data, schema, len(values))


def _empty(place: str, offset: int) -> DeadLetter:
    return dead_letter(f"{place} offset {offset}", "the message has no value (a tombstone)")


# -- Arrow ---------------------------------------------------------------------------------------------------


def _arrow(values: Sequence[bytes | None], offsets: Sequence[int], schema: StreamSchema, place: str) -> Loaded:
    wanted = {c.name for c in schema.columns}
    tables: list[tuple[int, pa.Table]] = []
    dead: list[tuple[int, int, DeadLetter]] = []
    for value, offset in zip(values, offsets, strict=True):
        if value is None:
            dead.append((offset, 0, _empty(place, offset)))
            continue
        try:
            tables.append((offset, _open(value, wanted)))
        except (pa.ArrowException, ValueError, OSError, KeyError) as why:
            letter = dead_letter(f"{place} offset {offset}", f"not an Arrow IPC message: {why}")
            dead.append((offset, 0, letter))
    if tables and all(t.schema.equals(tables[0][1].schema) for _, t in tables):
        whole = conform_table(pa.concat_tables([t for _, t in tables]), schema, place)
        if not whole.dead:
            return Loaded(whole.table, [letter for _, _, letter in dead])
    parts: list[Loaded] = []
    for offset, table in tables:
        part = conform_table(table, schema, f"{place} offset {offset}")
        parts.append(part)
        dead += [(offset, i, letter) for i, letter in enumerate(part.dead)]
    dead.sort(key=lambda d: d[:2])
    return Loaded(join_loaded(parts, schema).table, [letter for _, _, letter in dead])


def _open(value: bytes, wanted: set[str]) -> pa.Table:
    """The wanted columns, checked."""
    opened = pa.ipc.open_file if value.startswith(_FILE_MAGIC) else pa.ipc.open_stream
    with opened(pa.py_buffer(value)) as reader:
        table = reader.read_all()
    numbers = [i for i, name in enumerate(table.schema.names) if name in wanted]
    table = table.select(numbers) if numbers else pa.table({"": pa.nulls(table.num_rows)})
    check_bounds(table)
    return table
