"""One data file to tuples: Parquet, CSV with a header, JSON lines; the last two also gzipped.

`load_file` answers with tuples and dead letters and never raises for what a file holds. A broken row costs
itself; a file that cannot be read at all (gone, not permitted, corrupt) is one dead letter that names it.
Only trouble of the machine (out of file handles, a network file system that does not answer) is raised,
because trying again helps.

Each text format has a fast reader (Arrow, for the whole file) and a careful one (line by line). The fast one
is used only if it finds nothing to complain about, so dead letters always come from the careful one, which
knows line numbers.

Arrow's JSON reader crashes the process on a line that is just `null` (apache/arrow issue 47409). A file in
which the word occurs at all goes to the careful reader: a crash in a worker would come again with every
attempt.
"""

from __future__ import annotations

import csv
import errno
import gzip
import io
import json
import sys
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.connectors.base import ARROW_TYPES, DeadLetter, Loaded, arrow_schema
from runtime.connectors.conform import conform_table
from runtime.connectors.decode import decode_rows
from runtime.connectors.text import cast_text, text_to_array
from runtime.connectors.values import assemble, dead_letter

UNPACKED = 1 << 30
"""Bytes that a file may hold when it is unpacked. A small file can unpack to more than any memory holds."""

FORMATS = ("parquet", "csv", "jsonl")
_BY_SUFFIX = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_TRY_AGAIN = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR, errno.ESTALE, errno.ETIMEDOUT}
)


def format_of(name: str) -> str | None:
    """By the name's ending, `.gz` aside; None when it tells nothing."""
    return _BY_SUFFIX.get(Path(name.lower().removesuffix(".gz")).suffix)


def load_file(
    path: Path,
    format: str,
    schema: StreamSchema,
    place: str,
    delimiter: str = ",",
    data: bytes | None = None,
    needed: frozenset[str] | None = None,
) -> Loaded:
    """All tuples of the file in file order; `place` names it in dead letters. `data`: what the file holds, if known.
    `needed`: columns that must be there (None: all)."""
    try:
        if format == "parquet":
            return _parquet(path if data is None else pa.BufferReader(data), schema, place, needed)
        if data is None:
            data = path.read_bytes()
        if path.name.lower().endswith(".gz"):
            data = _unpack(data)
        return _csv(data, schema, place, delimiter) if format == "csv" else _jsonl(data, schema, place)
    except MemoryError:
        raise
    except (pa.ArrowException, ValueError, zlib.error, EOFError) as why:
        # A ValueError without Arrow: column names that are not UTF-8.
        return unreadable(schema, place, str(why))
    except OSError as why:
        if try_again(why):
            raise
        return unreadable(schema, place, why.strerror or str(why))


def try_again(why: OSError) -> bool:
    """Is it trouble of the machine, and not of the file?"""
    return why.errno in _TRY_AGAIN


def unreadable(schema: StreamSchema, place: str, why: str) -> Loaded:
    """No tuples and one dead letter for the whole file."""
    return Loaded(arrow_schema(schema).empty_table(), [dead_letter(place, f"the file cannot be read: {why}")])


# -- Parquet -------------------------------------------------------------------------------------------------


def _parquet(
    path: Path | pa.BufferReader, schema: StreamSchema, place: str, needed: frozenset[str] | None = None
) -> Loaded:
    with pq.ParquetFile(path) as file:
        _check_size(file.metadata)
        if needed is not None:
            left = tuple(c for c in schema.columns if c.name in needed or not _certain(file.schema_arrow, c))
            schema = replace(schema, columns=left)
        wanted = {c.name for c in schema.columns}
        present = [name for name in file.schema_arrow.names if name in wanted]
        return conform_table(file.read(columns=present), schema, place)


def _certain(types: pa.Schema, column: Column) -> bool:
    """Is every value of the column one of its type, whatever it is? Then nothing is learned by reading it. A text may
    have bytes that are none."""
    positions = types.get_all_field_indices(column.name)
    same = len(positions) == 1 and types.field(positions[0]).type == ARROW_TYPES[column.type]
    return same and column.type is not ColumnType.STRING


def _check_size(metadata: pq.FileMetaData) -> None:
    """A value that repeats takes no room in the file, but as much as any other in memory: at least a byte."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    size = max(sum(g.total_byte_size for g in groups), metadata.num_rows * metadata.num_columns)
    if size > UNPACKED:
        raise _too_large(size)


def _unpack(data: bytes) -> bytes:
    with gzip.open(io.BytesIO(data)) as file:
        unpacked = file.read(UNPACKED + 1)
    if len(unpacked) > UNPACKED:
        raise _too_large(len(unpacked))
    return unpacked


def _too_large(size: int) -> ValueError:
    return ValueError(f"unpacked it has {size:,} bytes or more, and {UNPACKED:,} are the most; split the file")


# -- JSON lines ----------------------------------------------------------------------------------------------


def _jsonl(data: bytes, schema: StreamSchema, place: str) -> Loaded:
    data = data.removeprefix(b"\xef\xbb\xbf")
    fast = _fast_jsonl(data, schema)
    if fast is not None:
        return Loaded(fast)
    rows: list[Any] = []
    numbers: list[int] = []
    dead: list[DeadLetter] = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line.decode("utf-8")))
            numbers.append(number)
        except (ValueError, RecursionError) as why:
            # Not JSON, not UTF-8, a number of thousands of digits, a very deep nest.
            text = line[:400].decode("utf-8", "replace")
            dead.append(dead_letter(f"{place} line {number}", f"not a JSON object: {why}", text))
    loaded = decode_rows(rows, schema, f"{place} line ", numbers)
    return Loaded(loaded.table, _in_order(dead + loaded.dead))


def _fast_jsonl(data: bytes, schema: StreamSchema) -> pa.Table | None:
    if b"null" in data or not data.strip():
        return None
    # Arrow also takes two objects on one line, or one object over two lines; here a line is a row.
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    return parse_json_lines(data, schema, lines)


def parse_json_lines(data: bytes, schema: StreamSchema, lines: int) -> pa.Table | None:
    """All columns at once if Arrow finds exactly `lines` good rows, else None. No line may be a bare null."""
    types = {c.name: ARROW_TYPES[c.type] for c in schema.columns}
    types |= {c.name: pa.int64() for c in schema.columns if c.type is ColumnType.TIMESTAMP}
    options = pa.json.ParseOptions(explicit_schema=pa.schema(types), unexpected_field_behavior="ignore")
    try:
        data.decode("utf-8")
        table = pa.json.read_json(io.BytesIO(data), parse_options=options)
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    if table.num_rows != lines:
        return None
    return table.select([c.name for c in schema.columns]).cast(arrow_schema(schema))


def _in_order(dead: list[DeadLetter]) -> list[DeadLetter]:
    return sorted(dead, key=lambda d: int(d.place.rpartition(" ")[2]))


# -- CSV -----------------------------------------------------------------------------------------------------


def _csv(data: bytes, schema: StreamSchema, place: str, delimiter: str) -> Loaded:
    data = data.removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        return Loaded(arrow_schema(schema).empty_table())
    lines = io.StringIO(data.decode("utf-8", "surrogateescape"), newline="")
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(lines, delimiter=delimiter)
    try:
        header = next(row for row in reader if row)
    except csv.Error as why:
        return unreadable(schema, place, f"its header is broken: {why}")
    wanted = [c.name for c in schema.columns if c.name in header]
    if not wanted:
        known = ", ".join(c.name for c in schema.columns)
        return unreadable(schema, place, f"its first line must be a header with some of the columns {known}")
    twice = [name for name in wanted if header.count(name) > 1]
    if twice:
        return unreadable(schema, place, f"its header names the column {twice[0]} more than once")
    fast = _fast_csv(data, schema, wanted, delimiter)
    return fast if fast is not None else _careful_csv(reader, header, schema, place)


def _fast_csv(data: bytes, schema: StreamSchema, wanted: Sequence[str], delimiter: str) -> Loaded | None:
    try:
        table = pa.csv.read_csv(
            io.BytesIO(data),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types={name: pa.string() for name in wanted},
                include_columns=list(wanted),
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
                null_values=[""],
            ),
        )
        columns = [
            cast_text(table[c.name], c) if c.name in wanted else pa.nulls(table.num_rows, ARROW_TYPES[c.type])
            for c in schema.columns
        ]
    except pa.ArrowException:
        return None
    return Loaded(pa.Table.from_arrays(columns, schema=arrow_schema(schema)))


def _careful_csv(reader: Any, header: Sequence[str], schema: StreamSchema, place: str) -> Loaded:
    rows: list[list[str]] = []
    ends: list[int] = []
    dead: list[DeadLetter] = []
    while True:
        try:
            row = next(reader, None)
        except csv.Error as why:
            dead.append(dead_letter(f"{place} line {reader.line_num}", f"not CSV: {why}"))
            continue
        if row is None:
            break
        if not row:
            continue
        if len(row) != len(header):
            reason = f"expected {len(header)} fields as in the header, got {len(row)}"
            dead.append(dead_letter(f"{place} line {reader.line_num}", reason, ",".join(row)))
            continue
        rows.append(row)
        ends.append(reader.line_num)
    problems: dict[int, str] = {}
    by_column = list(zip(*rows, strict=True)) if rows else [()] * len(header)
    arrays: list[pa.Array] = []
    for column in schema.columns:
        if column.name in header:
            values = [v or None for v in by_column[header.index(column.name)]]
            arrays.append(text_to_array(values, column, problems))
        else:
            arrays.append(pa.nulls(len(rows), ARROW_TYPES[column.type]))

    def letter(i: int) -> DeadLetter:
        return dead_letter(f"{place} line {ends[i]}", problems[i], ",".join(rows[i]))

    loaded = assemble(arrays, schema, len(rows), problems, letter)
    return Loaded(loaded.table, _in_order(dead + loaded.dead))
