"""Query sets as arrays of 64-bit words, and the changelog sets that say which bits still mean what they meant."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]


def bitset(slots: Iterable[int], words: int) -> Words:
    out = np.zeros(words, np.uint64)
    for slot in slots:
        out[slot >> 6] |= np.uint64(1 << (slot & 63))
    return out


def has(sets: Words, slot: int) -> npt.NDArray[np.bool_]:
    """Rows of a query-set matrix that contain the slot; none if the matrix is too narrow to know it."""
    if slot >> 6 >= sets.shape[1]:
        return np.zeros(sets.shape[0], bool)
    found: npt.NDArray[np.bool_] = (sets[:, slot >> 6] & np.uint64(1 << (slot & 63))) != 0
    return found


def widen(sets: Words, words: int) -> Words:
    """The same sets with exactly `words` words: bits are padded with zeros or cut off."""
    if sets.shape[1] == words:
        return sets
    out = np.zeros((sets.shape[0], words), np.uint64)
    shared = min(words, sets.shape[1])
    out[:, :shared] = sets[:, :shared]
    return out
