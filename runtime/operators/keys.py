"""Key columns to key hashes, for source views and joined items alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.model.types import ColumnType
from runtime.columns.column import ColumnData
from runtime.kernels import hashing

Mask = npt.NDArray[np.bool_]


def exact(types: tuple[ColumnType, ...]) -> bool:
    """Does an equal hash prove an equal key?"""
    return len(types) == 1 and types[0] is not ColumnType.STRING


class KeyHashes(NamedTuple):
    """`usable` is False where a part of the key is NULL or NaN and so equals nothing; None when all are usable."""

    hashes: npt.NDArray[np.uint64]
    usable: Mask | None


def key_hashes(columns: Sequence[tuple[ColumnData, ColumnType]]) -> KeyHashes:
    """One hash per row.

    Each column comes with the type in which it is compared, so INT 7, BIGINT 7 and (against a DOUBLE) 7.0 hash alike.
    """
    parts: list[npt.NDArray[np.uint64]] = []
    usable: Mask | None = None
    for data, type in columns:
        bad = None if data.valid is None else ~data.valid
        if type is ColumnType.STRING:
            table = hashing.hash_strings(*data.dictionary_arrays())
            parts.append(table[data.values] if len(table) else np.zeros(len(data), np.uint64))
        elif type is ColumnType.DOUBLE:
            values = data.values.astype(np.float64)
            parts.append(hashing.hash_doubles(values))
            nan = np.isnan(values)
            if nan.any():
                bad = nan if bad is None else bad | nan
        else:
            parts.append(hashing.hash_integers(data.values.astype(np.int64)))
        if bad is not None:
            usable = ~bad if usable is None else usable & ~bad
    return KeyHashes(hashing.combine(parts), usable)
