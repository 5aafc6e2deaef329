"""Counting without laying anything out: how many items of a list carry which bits.

An entry pair stands for (left items with the bit) x (right items with the bit) combinations; so the counts of both
lists say everything, at the cost of reading each list once.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]


@nb.njit(cache=True, nogil=True)
def count_in_ranges(order: I32, query_sets: U64, first: I64, end: I64, slots: I64) -> I64:
    """Per range of positions [first, end) and slot: how many of the items there have the slot's bit."""
    words = query_sets.shape[1]
    out = np.zeros((first.shape[0], slots.shape[0]), np.int64)
    for s in range(slots.shape[0]):
        word = slots[s] >> 6
        if word >= words:
            continue
        shift = np.uint64(slots[s] & 63)
        for r in range(first.shape[0]):
            n = np.int64(0)
            for position in range(first[r], end[r]):
                n += np.int64((query_sets[order[position], word] >> shift) & np.uint64(1))
            out[r, s] = n
    return out
