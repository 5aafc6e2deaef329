"""States in bucket files, in as few bytes as their numbers need, and read by ranges of entries.

Whole numbers are written relative to the smallest of the array in one to eight bytes each: counts of a slice are mostly
small, times of a slice are near each other. Doubles that are all zero (what rounding took from sums of round numbers)
take one byte. A range is decoded without the rest: a partition reads its piece of the entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from optimizer.model.aggregates import LISTS
from optimizer.model.types import ColumnType
from runtime.aggregates.components import Component
from runtime.aggregates.partials import State
from runtime.buckets.file import BucketFile
from runtime.buckets.indexes import Arrays
from runtime.columns.column import NUMPY_TYPES, ColumnData, compacted, strings_from

_WIDTHS = (np.uint8, np.uint16, np.uint32)


def put_state(arrays: Arrays, prefix: str, state: State) -> None:
    for i, part in enumerate(state.parts):
        name = f"{prefix}{i}"
        column = compacted(part)
        _put_values(arrays, name, column)
        if column.valid is not None:
            arrays[f"{name}:valid"] = column.valid
        if column.dictionary is not None:
            arrays[f"{name}:offsets"], arrays[f"{name}:bytes"] = column.dictionary_arrays()
    if state.offsets is not None:
        arrays[f"{prefix}lists"] = state.offsets


def get_state(file: BucketFile, prefix: str, component: Component, first: int = 0, end: int | None = None) -> State:
    """Entries [first, end)."""
    offsets = None
    if component.kind in LISTS:
        end = file.arrays.shape(f"{prefix}lists")[0] - 1 if end is None else end
        starts = file.arrays.part(f"{prefix}lists", first, end + 1)
        offsets = starts[first : end + 1] - starts[first]
        first, end = int(starts[first]), int(starts[end])
    parts = []
    for i, type in enumerate(component.part_types):
        name = f"{prefix}{i}"
        if name in file.arrays:
            until = file.arrays.shape(name)[0] if end is None else end
            parts.append(_get_part(file, name, type, first, until))
    return State(tuple(parts), offsets)


def _put_values(arrays: Arrays, name: str, column: ColumnData) -> None:
    values = column.values
    if column.type is ColumnType.DOUBLE:
        zero = not np.ascontiguousarray(values).view(np.int64).any()
        arrays[name] = values.astype(np.uint8) if zero else values
        return
    base = int(values.min()) if len(values) else 0
    widest = int(values.max()) - base if len(values) else 0
    kind = next((k for k in _WIDTHS if widest <= np.iinfo(k).max), None)
    if kind is None or np.dtype(kind).itemsize >= values.dtype.itemsize:
        arrays[name] = values
        return
    arrays[name] = (values - values.dtype.type(base)).astype(kind)
    if base:
        arrays[f"{name}:base"] = np.array([base], np.int64)


def _get_part(file: BucketFile, name: str, type: ColumnType, first: int, end: int) -> ColumnData:
    stored, piece = file.arrays.part(name, first, end), slice(first, end)
    values: npt.NDArray[Any] = stored[piece]
    wanted = np.dtype(NUMPY_TYPES[type])
    if stored.dtype != wanted:
        values = values.astype(wanted)
        if f"{name}:base" in file.arrays:
            values += wanted.type(int(file.arrays[f"{name}:base"][0]))
    valid = file.arrays.part(f"{name}:valid", first, end)[piece] if f"{name}:valid" in file.arrays else None
    if valid is not None and valid.all():
        valid = None
    dictionary = None
    if type is ColumnType.STRING:
        dictionary = file.derived.get(f"{name}:texts")
        if dictionary is None:
            dictionary = strings_from(file.arrays[f"{name}:offsets"], file.arrays[f"{name}:bytes"])
            file.derived[f"{name}:texts"] = dictionary
    return ColumnData(type, values, valid, dictionary)
