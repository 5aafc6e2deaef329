"""Columns as arrays: values, an optional validity mask, and for strings a dictionary.

A STRING column is int32 codes into a dictionary of distinct texts, encoded once at the source; everything after that
moves codes. A BOOLEAN column is uint8 0/1, TIMESTAMP is int64 milliseconds. `valid` is None when nothing is NULL;
the value at an invalid position is zero, and readers look at `valid` first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.model.types import ColumnType
from runtime.connectors.base import ARROW_TYPES
from runtime.kernels.fetch import fetch

Mask = npt.NDArray[np.bool_]

NUMPY_TYPES: dict[ColumnType, Any] = {
    ColumnType.BIGINT: np.int64,
    ColumnType.INT: np.int32,
    ColumnType.DOUBLE: np.float64,
    ColumnType.BOOLEAN: np.uint8,
    ColumnType.TIMESTAMP: np.int64,
    ColumnType.STRING: np.int32,
}


@dataclass(frozen=True, slots=True)
class ColumnData:
    type: ColumnType
    values: npt.NDArray[Any]
    valid: Mask | None = None
    dictionary: pa.StringArray | None = None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: npt.NDArray[Any]) -> ColumnData:
        """At row numbers of this column; they are not checked."""
        valid = None if self.valid is None else fetch(self.valid, rows)
        return ColumnData(self.type, fetch(self.values, rows), valid, self.dictionary)

    @property
    def mask(self) -> Mask:
        return np.ones(len(self.values), bool) if self.valid is None else self.valid

    def to_arrow(self) -> pa.Array:
        null = None if self.valid is None else ~self.valid
        match self.type:
            case ColumnType.STRING:
                codes = pa.array(self.values, pa.int32(), mask=null)
                return self.dictionary.take(codes) if self.dictionary is not None else codes.cast(pa.string())
            case ColumnType.BOOLEAN:
                return pa.array(self.values.astype(bool), pa.bool_(), mask=null)
            case ColumnType.TIMESTAMP:
                return pa.array(self.values, pa.int64(), mask=null).view(pa.timestamp("ms"))
            case _:
                return pa.array(self.values, ARROW_TYPES[self.type], mask=null)

    def dictionary_arrays(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
        """The dictionary as (offsets, bytes), the form kernels and files use."""
        assert self.dictionary is not None
        return string_arrays(self.dictionary)


def string_arrays(strings: pa.StringArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    _, offsets, data = strings.buffers()
    begin, end = strings.offset, strings.offset + len(strings) + 1
    places = np.frombuffer(offsets, np.int32)[begin:end].astype(np.int64) if offsets else np.zeros(1, np.int64)
    if data is None or len(places) == 0:
        return np.zeros(len(strings) + 1, np.int64), np.zeros(0, np.uint8)
    return places - places[0], np.frombuffer(data, np.uint8)[places[0] : places[-1]]


def strings_from(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> pa.StringArray:
    small = pa.py_buffer(offsets.astype(np.int32))
    return pa.StringArray.from_buffers(len(offsets) - 1, small, pa.py_buffer(data))


def from_arrow(array: pa.ChunkedArray | pa.Array, type: ColumnType) -> ColumnData:
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()  # which copies even a single one
    if isinstance(array, pa.ChunkedArray):  # zero chunks
        array = pa.array([], array.type)
    valid = None if array.null_count == 0 else np.asarray(array.is_valid())
    match type:
        case ColumnType.STRING:
            encoded = array if isinstance(array, pa.DictionaryArray) else array.dictionary_encode()
            codes = encoded.indices.fill_null(0) if encoded.indices.null_count else encoded.indices
            values = np.asarray(codes).astype(np.int32, copy=False)
            return ColumnData(type, values, valid, encoded.dictionary.cast(pa.string()))
        case ColumnType.BOOLEAN:
            plain = array.fill_null(False) if array.null_count else array
            return ColumnData(type, np.asarray(plain.cast(pa.uint8())), valid)
        case ColumnType.TIMESTAMP:
            array = array.cast(pa.int64())
        case _:
            pass
    plain = array.fill_null(0) if array.null_count else array
    return ColumnData(type, np.asarray(plain).astype(NUMPY_TYPES[type], copy=False), valid)


def concat(parts: list[ColumnData]) -> ColumnData:
    """One column out of several of the same type; dictionaries are put end to end and codes shifted."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    valid = None if all(p.valid is None for p in parts) else np.concatenate([p.mask for p in parts])
    if first.type is not ColumnType.STRING:
        return ColumnData(first.type, np.concatenate([p.values for p in parts]), valid)
    shifted, dictionaries, base = [], [], 0
    for p in parts:
        assert p.dictionary is not None
        codes = p.values + np.int32(base)
        shifted.append(codes if p.valid is None else np.where(p.valid, codes, np.int32(0)))
        dictionaries.append(p.dictionary)
        base += len(p.dictionary)
    return ColumnData(first.type, np.concatenate(shifted), valid, pa.concat_arrays(dictionaries))


def nulls(type: ColumnType, rows: int) -> ColumnData:
    dictionary = pa.array([""], pa.string()) if type is ColumnType.STRING else None
    return ColumnData(type, np.zeros(rows, NUMPY_TYPES[type]), np.zeros(rows, bool), dictionary)


def compacted(column: ColumnData) -> ColumnData:
    """The same texts with a dictionary that has no more of them than there are rows: a bucket's may have far more than
    a few of its rows need."""
    if column.dictionary is None or len(column.dictionary) <= len(column):
        return column
    used, codes = np.unique(column.values, return_inverse=True)
    return ColumnData(column.type, codes.astype(np.int32), column.valid, column.dictionary.take(pa.array(used)))


def decoded(column: ColumnData) -> pa.StringArray:
    """A STRING column as plain Arrow text, NULLs included."""
    return pc.cast(column.to_arrow(), pa.string())
