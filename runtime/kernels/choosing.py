"""Folds that choose one of the entries: minimum, maximum, first, last, the value at the minimum of another.

All are one question: which entry of the group comes first in the order of its 64-bit keys? The caller makes the keys
(runtime.aggregates.keys): order is kept, and reversed by complement. Doubles and texts have keys too, so there is one
compiled loop for all types. -1 stands for a group in which no entry has a value.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from runtime.kernels.kinds import INTS, MASK, SHORTS

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]


@nb.njit([(SHORTS, INTS, INTS, MASK)], cache=True, nogil=True)
def choose(order: I32, offsets: I64, keys: I64, keep: Mask) -> I64:
    """The entry with the smallest key. `keep` empty: all have a value."""
    out = np.empty(offsets.shape[0] - 1, np.int64)
    for g in range(out.shape[0]):
        best = np.int64(-1)
        key = np.int64(0)
        for i in range(offsets[g], offsets[g + 1]):
            e = order[i]
            if keep.shape[0] > 0 and not keep[e]:
                continue
            k = keys[e]
            if best < 0 or k < key:
                best = e
                key = k
        out[g] = best
    return out


@nb.njit([(SHORTS, INTS, INTS, INTS, INTS, MASK)], cache=True, nogil=True)
def choose_by_three(order: I32, offsets: I64, keys: I64, seconds: I64, thirds: I64, keep: Mask) -> I64:
    """Of equal keys the one with the smallest second key, and of those the one with the smallest third."""
    out = np.empty(offsets.shape[0] - 1, np.int64)
    for g in range(out.shape[0]):
        best = np.int64(-1)
        for i in range(offsets[g], offsets[g + 1]):
            e = order[i]
            if keep.shape[0] > 0 and not keep[e]:
                continue
            if (
                best < 0
                or keys[e] < keys[best]
                or (
                    keys[e] == keys[best]
                    and (seconds[e] < seconds[best] or (seconds[e] == seconds[best] and thirds[e] < thirds[best]))
                )
            ):
                best = e
        out[g] = best
    return out


@nb.njit([(SHORTS, INTS, INTS, MASK, INTS, MASK)], cache=True, nogil=True)
def choose_by_two(order: I32, offsets: I64, keys: I64, keep: Mask, seconds: I64, known: Mask) -> I64:
    """Of equal keys the one with the smallest second key; an entry that is not `known` has none and comes last."""
    out = np.empty(offsets.shape[0] - 1, np.int64)
    for g in range(out.shape[0]):
        best = np.int64(-1)
        for i in range(offsets[g], offsets[g + 1]):
            e = order[i]
            if keep.shape[0] > 0 and not keep[e]:
                continue
            if best < 0 or keys[e] < keys[best]:
                best = e
            elif keys[e] == keys[best] and (known.shape[0] == 0 or known[e]):
                unknown = known.shape[0] > 0 and not known[best]
                best = e if unknown or seconds[e] < seconds[best] else best
        out[g] = best
    return out
