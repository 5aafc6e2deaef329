"""Query-set matrices, row by row: a row is the words of one item's query set.

NumPy works along a short last axis (one or two words) at a tenth of the speed of a plain loop, and these are asked of
every tuple of every bucket.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]


@nb.njit(cache=True, nogil=True)
def nonempty(sets: U64) -> npt.NDArray[np.bool_]:
    """Which sets are not empty?"""
    n, words = sets.shape
    out = np.empty(n, np.bool_)
    for i in range(n):
        any_ = np.uint64(0)
        for w in range(words):
            any_ |= sets[i, w]
        out[i] = any_ != 0
    return out


@nb.njit(cache=True, nogil=True)
def take_rows(sets: U64, rows: npt.NDArray[np.intp]) -> U64:
    """The sets at the given row numbers, which are not checked."""
    n, words = rows.shape[0], sets.shape[1]
    out = np.empty((n, words), np.uint64)
    for i in range(n):
        for w in range(words):
            out[i, w] = sets[rows[i], w]
    return out


@nb.njit(cache=True, nogil=True)
def all_equal(sets: U64) -> bool:
    """Do all rows have the same set? Ends with the first that differs; False if there is no row."""
    n, words = sets.shape
    for i in range(1, n):
        for w in range(words):
            if sets[i, w] != sets[0, w]:
                return False
    return bool(n > 0)


@nb.njit(cache=True, nogil=True)
def intersect_with_table(sets: U64, table: U64, places: npt.NDArray[np.int64]) -> None:
    """Row i becomes its intersection with row places[i] of the table, in place."""
    for i in range(sets.shape[0]):
        p = places[i]
        for w in range(sets.shape[1]):
            sets[i, w] &= table[p, w]


# The number of the only bit of a power of two, found by a multiplication (de Bruijn) and a table.
_FACTOR = np.uint64(0x03F79D71B4CB0A89)
_BIT = np.zeros(64, np.int64)
for _i in range(64):
    _BIT[(int(_FACTOR) << _i & (1 << 64) - 1) >> 58] = _i


@nb.njit(cache=True, nogil=True)
def count_members(sets: U64) -> npt.NDArray[np.int64]:
    """How many rows have each slot; one step per member, not per slot."""
    n, words = sets.shape
    counts = np.zeros(64 * words, np.int64)
    for i in range(n):
        for w in range(words):
            rest = sets[i, w]
            while rest != 0:
                lowest = rest & (~rest + np.uint64(1))
                counts[64 * w + _BIT[np.int64((lowest * _FACTOR) >> np.uint64(58))]] += 1
                rest ^= lowest
    return counts


@nb.njit(cache=True, nogil=True)
def members(sets: U64, starts: npt.NDArray[np.int64], total: int) -> npt.NDArray[np.int32]:
    """The rows of all slots one after the other, ascending; slot s begins at starts[s]."""
    n, words = sets.shape
    at = starts.copy()
    out = np.empty(total, np.int32)
    for i in range(n):
        for w in range(words):
            rest = sets[i, w]
            while rest != 0:
                lowest = rest & (~rest + np.uint64(1))
                slot = 64 * w + _BIT[np.int64((lowest * _FACTOR) >> np.uint64(58))]
                out[at[slot]] = i
                at[slot] += 1
                rest ^= lowest
    return out


@nb.njit(cache=True, nogil=True)
def sum_members(sets: U64, weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The weights of the rows that have each slot, added up."""
    n, words = sets.shape
    sums = np.zeros(64 * words, np.float64)
    for i in range(n):
        for w in range(words):
            rest = sets[i, w]
            while rest != 0:
                lowest = rest & (~rest + np.uint64(1))
                sums[64 * w + _BIT[np.int64((lowest * _FACTOR) >> np.uint64(58))]] += weights[i]
                rest ^= lowest
    return sums
