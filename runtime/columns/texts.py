"""Functions over texts, computed once per distinct text (or combination of arguments) instead of once per row.

A STRING column is codes into a dictionary, so what a function makes of the column is what it makes of the dictionary,
under the same codes. With several columns the combinations that occur are numbered first. Either way the function sees
plain Arrow arrays without NULLs, and its texts become a dictionary of distinct texts again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from optimizer.model.types import ColumnType
from runtime.columns.column import NUMPY_TYPES, ColumnData, Mask, compacted, from_arrow

OverTexts = Callable[[list[pa.Array]], pa.Array]
"""From arrays of arguments without NULLs to an array of results; a NULL there is a NULL in the column."""

_EMPTY = pa.array([""], pa.string())


def over_distinct(arguments: Sequence[ColumnData], type: ColumnType, function: OverTexts) -> ColumnData:
    """A column of `function` of the arguments, NULL where one of them is."""
    columns = [_readable(a) for a in arguments]
    if len(columns[0]) == 0:
        nothing = _EMPTY if type is ColumnType.STRING else None
        return ColumnData(type, np.zeros(0, NUMPY_TYPES[type]), None, nothing)
    known = all_valid(columns)
    varied = [c for c in columns if _varies(c)]
    if all(c.dictionary is not None for c in varied) and len(varied) <= 1:
        return _over_dictionary(columns, varied[0] if varied else columns[0], known, type, function)
    rows = np.arange(len(columns[0])) if known is None else np.flatnonzero(known)
    first, places = _combinations([c.values[rows] for c in columns])
    result = from_arrow(function([c.take(rows[first]).to_arrow() for c in columns]), type)
    if known is None:
        return result.take(places)
    values = np.zeros(len(known), NUMPY_TYPES[type])
    valid = known.copy()
    values[rows] = result.values[places]
    valid[rows] = result.mask[places]
    return ColumnData(type, values, valid, _or_empty(result.dictionary))


def _over_dictionary(
    columns: list[ColumnData], varied: ColumnData, known: Mask | None, type: ColumnType, function: OverTexts
) -> ColumnData:
    dictionary = varied.dictionary
    assert dictionary is not None
    same = np.zeros(len(dictionary), np.int64)
    everything = [dictionary if c is varied else _without_nulls(c).take(same).to_arrow() for c in columns]
    result = from_arrow(function(everything), type)
    spread = ColumnData(result.type, result.values, result.valid, _or_empty(result.dictionary)).take(varied.values)
    if known is None:
        return spread
    return ColumnData(type, spread.values, spread.mask & known, spread.dictionary)


def all_valid(columns: Sequence[ColumnData]) -> Mask | None:
    known: Mask | None = None
    for c in columns:
        if c.valid is not None:
            known = c.valid if known is None else known & c.valid
    return known


def chosen(parts: Sequence[ColumnData], which: npt.NDArray[np.int64], type: ColumnType) -> ColumnData:
    """For each row the value of part number `which`; NULL if that is -1."""
    values = np.zeros(len(which), NUMPY_TYPES[type])
    valid = np.zeros(len(which), bool)
    dictionaries, base = [], 0
    for number, part in enumerate(parts):
        mine = which == number
        if type is ColumnType.STRING:
            part = _readable(part)
            assert part.dictionary is not None
            values[mine] = part.values[mine] + base
            dictionaries.append(part.dictionary)
            base += len(part.dictionary)
        else:
            values[mine] = part.values[mine].astype(NUMPY_TYPES[type], copy=False)
        valid[mine] = part.mask[mine]
    known = None if valid.all() else valid
    if type is not ColumnType.STRING:
        return ColumnData(type, values, known)
    texts = from_arrow(pa.concat_arrays([*dictionaries, _EMPTY]), type)
    return ColumnData(type, texts.values[values], known, texts.dictionary)


def _readable(column: ColumnData) -> ColumnData:
    """With a dictionary that has an entry for every code, also for those of NULLs."""
    if column.dictionary is None:
        return column
    small = compacted(column)
    return ColumnData(small.type, small.values, small.valid, _or_empty(small.dictionary))


def _or_empty(dictionary: pa.StringArray | None) -> pa.StringArray | None:
    return _EMPTY if dictionary is not None and len(dictionary) == 0 else dictionary


def _varies(column: ColumnData) -> bool:
    if column.dictionary is not None:
        return len(column.dictionary) > 1
    return bool((column.values != column.values[0]).any())


def _without_nulls(column: ColumnData) -> ColumnData:
    return ColumnData(column.type, column.values, None, column.dictionary)


def _combinations(columns: list[npt.NDArray[Any]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The row in which each combination of values occurs first, and each row's combination."""
    numbers = np.zeros(len(columns[0]), np.int64)
    for values in columns:
        distinct, own = np.unique(values, return_inverse=True)
        numbers = np.unique(numbers * len(distinct) + own, return_inverse=True)[1]
    _, first, places = np.unique(numbers, return_index=True, return_inverse=True)
    return first, places
