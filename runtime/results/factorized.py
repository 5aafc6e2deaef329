"""Factorized results: rows as lists whose cross product they are, and the way back.

A query that asks for EMIT FACTORIZED gets, instead of n x m rows, one row with a list of n and a list of m:

    window_start | window_end | plain columns ... | a: list<struct<a's outputs>> | b: list<struct<b's outputs>> | ...

One list per source, in FROM order; a source of which nothing is selected has a list of NULLs, whose length still
counts. Plain columns are outputs that read no source, or several (then every list has length 1). The schema's
metadata names the outputs in the query's order, so `expand` gives back exactly the table that EMIT ROWS would have
given, up to the order of rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from optimizer.model.expressions import aliases_of
from optimizer.model.query import Output

METADATA = b"ajoin.factorized"
BOUNDS = ("window_start", "window_end")


@dataclass(frozen=True, slots=True)
class Layout:
    """Which output stands where. `mixed`: some output reads several sources, so that lists must have length 1."""

    plain: tuple[Output, ...]
    lists: tuple[tuple[str, tuple[Output, ...]], ...]
    mixed: bool
    order: tuple[str, ...]

    @staticmethod
    def of(aliases: Sequence[str], outputs: Sequence[Output]) -> Layout:
        own = [o for o in outputs if o.name not in BOUNDS]  # a selected window bound keeps its one column
        reads = {o.name: aliases_of(o.expr) for o in own}
        return Layout(
            tuple(o for o in own if len(reads[o.name]) != 1),
            tuple((a, tuple(o for o in own if reads[o.name] == {a})) for a in aliases),
            any(len(r) > 1 for r in reads.values()),
            tuple(o.name for o in own),
        )

    def batch(self, bounds: Sequence[pa.Array], plain: Sequence[pa.Array], lists: Sequence[pa.Array]) -> pa.RecordBatch:
        names = [*BOUNDS, *(o.name for o in self.plain), *(alias for alias, _ in self.lists)]
        arrays = [*bounds, *plain, *lists]
        fields = [pa.field(name, a.type) for name, a in zip(names, arrays, strict=True)]
        about = json.dumps({"outputs": self.order, "lists": len(self.lists)})
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, {METADATA: about.encode()}))

    def singles(self, bounds: Sequence[pa.Array], columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """Every row as lists of length 1; `columns` by output name."""
        each = np.arange(len(bounds[0]) + 1)
        lists = [
            list_array(each, [columns[o.name] for o in outputs], [o.name for o in outputs]) for _, outputs in self.lists
        ]
        return self.batch(bounds, [columns[o.name] for o in self.plain], lists)


def list_array(offsets: npt.NDArray[Any], columns: Sequence[pa.Array], names: Sequence[str]) -> pa.Array:
    """Lists of structs; without any column, lists of NULLs."""
    items = pa.StructArray.from_arrays(columns, names) if columns else pa.nulls(int(offsets[-1]))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)


def expand(table: pa.Table | pa.RecordBatch) -> pa.Table:
    """The rows a factorized table stands for; any other table is returned as it is. Vectorised, in one piece."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    metadata = table.schema.metadata or {}
    if METADATA not in metadata:
        return table
    about = json.loads(metadata[METADATA])
    cut = table.num_columns - about["lists"]
    lists = [_one(table.column(i)) for i in range(cut, table.num_columns)]
    starts = [np.asarray(a.offsets)[:-1].astype(np.int64) for a in lists]
    lengths = [np.diff(np.asarray(a.offsets)).astype(np.int64) for a in lists]
    total = np.ones(table.num_rows, np.int64)
    for length in lengths:
        total *= length
    row = np.repeat(np.arange(table.num_rows), total)
    number = np.arange(len(row)) - (np.cumsum(total) - total)[row]
    opened = {name: _one(table.column(i)).take(pa.array(row)) for i, name in enumerate(table.schema.names[:cut])}
    for a, start, length in reversed(list(zip(lists, starts, lengths, strict=True))):
        at = pa.array(start[row] + number % length[row])  # the last list runs fastest
        number //= length[row]
        if pa.types.is_struct(a.type.value_type):
            names = [a.type.value_type.field(i).name for i in range(a.type.value_type.num_fields)]
            opened |= {name: column.take(at) for name, column in zip(names, a.values.flatten(), strict=True)}
    names = [*BOUNDS, *about["outputs"]]
    return pa.Table.from_arrays([opened[name] for name in names], names)


def _one(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
