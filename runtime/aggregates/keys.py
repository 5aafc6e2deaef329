"""Keys: 64-bit integers in the order of the values, so that kernels compare all types alike.

Integers, timestamps and booleans are their own keys. A double's bits are in order but for the negative ones, which are
turned round; -0.0 is 0.0, and NaN is one value, greater than all others (as PostgreSQL and Spark sort). A text's key is
its rank among the texts of its dictionary, by UTF-8 bytes, which is the order of code points; equal texts have equal
keys even if a dictionary holds them twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.model.types import ColumnType
from runtime.columns.column import NUMPY_TYPES, ColumnData, compacted

I64 = npt.NDArray[np.int64]
_ALL_BUT_SIGN = np.int64(0x7FFFFFFFFFFFFFFF)


class Keys(NamedTuple):
    """`texts`: of a STRING column, the text of every key, ascending and distinct. Keys of NULLs mean nothing."""

    values: I64
    texts: pa.StringArray | None = None


def keys_of(column: ColumnData) -> Keys:
    match column.type:
        case ColumnType.DOUBLE:
            bits = normal(column.values).view(np.int64)
            return Keys(bits ^ ((bits >> np.int64(63)) & _ALL_BUT_SIGN))
        case ColumnType.STRING:
            return _ranks(compacted(column))
        case _:
            return Keys(np.ascontiguousarray(column.values, np.int64))


def from_keys(type: ColumnType, keys: Keys) -> ColumnData:
    """The column without NULLs that has these keys."""
    match type:
        case ColumnType.DOUBLE:
            bits = keys.values ^ ((keys.values >> np.int64(63)) & _ALL_BUT_SIGN)
            return ColumnData(type, bits.view(np.float64))
        case ColumnType.STRING:
            return compacted(ColumnData(type, keys.values.astype(np.int32), None, keys.texts))
        case _:
            return ColumnData(type, keys.values.astype(NUMPY_TYPES[type], copy=False))


def normal(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Doubles that are equal as values get equal bits: one zero, one NaN."""
    out = values + 0.0
    nan = np.isnan(out)
    if nan.any():
        out[nan] = np.nan
    return out


def normalised(column: ColumnData) -> ColumnData:
    """So that of equal values it does not matter which one is kept."""
    if column.type is not ColumnType.DOUBLE:
        return column
    return ColumnData(column.type, normal(column.values), column.valid)


def _ranks(column: ColumnData) -> Keys:
    texts = column.dictionary
    assert texts is not None
    if not len(texts):
        return Keys(np.zeros(len(column), np.int64), texts)
    order = np.asarray(pc.sort_indices(texts)).astype(np.int64)
    ascending = texts.take(pa.array(order))
    fresh = np.ones(len(order), bool)
    fresh[1:] = np.asarray(pc.not_equal(ascending[1:], ascending[:-1]))
    rank_of = np.empty(len(order), np.int64)
    rank_of[order] = np.cumsum(fresh) - 1
    return Keys(rank_of[column.values], ascending if fresh.all() else ascending.filter(pa.array(fresh)))
