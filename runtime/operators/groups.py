"""Which rows form a group: equal key values, NULL equal to NULL, found by hash and proved by value.

Groups are ordered and cut into partitions by the hash of their key values. For one number without NULLs the hash is a
bijection and proves equality; in all other cases the values of rows with equal hashes are compared, and the rare groups
that share a hash are told apart. So a collision can cost time but never mix two groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from runtime.aggregates.keys import keys_of
from runtime.columns.coded_sets import CodedSets
from runtime.columns.column import ColumnData
from runtime.kernels.grouping import Entries, fold_entries
from runtime.kernels.hashing import combine
from runtime.operators.keys import exact, key_hashes

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

_NULL = np.uint64(0x9E3779B97F4A7C15)
"""The hash of NULL, whatever value stands at its place."""


def group_hashes(keys: Sequence[ColumnData], rows: int) -> U64:
    """Without keys all rows are one group."""
    if not keys:
        return np.zeros(rows, np.uint64)
    parts = [key_hashes([(k, k.type)]).hashes for k in keys]
    return combine([p if k.valid is None else np.where(k.valid, p, _NULL) for k, p in zip(keys, parts, strict=True)])


def entries(keys: Sequence[ColumnData], hashes: U64, lo: I64, hi: I64, sets: CodedSets) -> Entries:
    """Rows of one group, time and query set together, in their order; entries in the order of hashes."""
    numbers = sets.codes if len(sets.table) > 1 else None
    found = fold_entries(hashes, lo, hi, numbers)
    if not len(hashes) or _proved(keys):
        return found
    first = np.repeat(found.order[found.offsets[:-1]], np.diff(found.offsets))
    values = _values(keys)
    if all((v[found.order] == v[first]).all() for v in values):
        return found
    again = fold_entries(_numbers(values), lo, hi, numbers)
    return permuted(again, np.argsort(hashes[again.order[again.offsets[:-1]]], kind="stable"))


class Groups(NamedTuple):
    """`order`: rows with those of one group together, in the order of hashes, in their own order inside; `numbers`: the
    group of each of them; `first`: a row of each group."""

    order: npt.NDArray[np.int64]
    numbers: I64
    first: npt.NDArray[np.int64]


def groups(keys: Sequence[ColumnData], hashes: U64) -> Groups:
    order = np.argsort(hashes, kind="stable")
    sorted_hashes = hashes[order]
    begins = np.concatenate([[True], sorted_hashes[1:] != sorted_hashes[:-1]]) if len(order) else np.zeros(0, bool)
    if len(order) and not _proved(keys):
        starts = np.flatnonzero(begins)
        first = np.repeat(order[starts], np.diff(np.append(starts, len(order))))
        values = _values(keys)
        if not all((v[order] == v[first]).all() for v in values):
            ids = _numbers(values)
            order = np.lexsort((ids, hashes))
            ids = ids[order]
            begins = np.concatenate([[True], ids[1:] != ids[:-1]])
    return Groups(order, np.cumsum(begins) - 1, order[np.flatnonzero(begins)])


def one_group_each(keys: Sequence[ColumnData], begins: I64) -> bool:
    """Are the rows from each of `begins` to the next, which have one hash, of one group?"""
    if not len(begins) or _proved(keys):
        return True
    rows = len(keys[0])
    first = np.repeat(begins, np.diff(np.append(begins, rows)))
    return all((v == v[first]).all() for v in _values(keys))


def _proved(keys: Sequence[ColumnData]) -> bool:
    return not keys or (exact(tuple(k.type for k in keys)) and keys[0].valid is None)


def _values(keys: Sequence[ColumnData]) -> list[I64]:
    """Integers that are equal exactly where the key values are."""
    out: list[I64] = []
    for key in keys:
        values = keys_of(key).values
        out.append(values if key.valid is None else np.where(key.valid, values, 0))
        if key.valid is not None:
            out.append(key.valid.astype(np.int64))
    return out


def _numbers(values: list[I64]) -> U64:
    """Equal numbers for equal rows."""
    _, numbers = np.unique(np.stack(values, axis=1), axis=0, return_inverse=True)
    return numbers.reshape(-1).astype(np.uint64)


def permuted(found: Entries, by: npt.NDArray[np.int64]) -> Entries:
    """The entries in another order."""
    sizes = np.diff(found.offsets)[by]
    offsets = np.zeros(len(by) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    places = np.arange(len(found.order)) - np.repeat(offsets[:-1], sizes) + np.repeat(found.offsets[:-1][by], sizes)
    return Entries(found.order[places], offsets)
