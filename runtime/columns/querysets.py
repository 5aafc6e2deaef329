"""Query sets as arrays of 64-bit words: bit s % 64 of word s // 64 belongs to the query in slot s.

A query-set matrix has one row per tuple, item or entry. Only this module (and, compiled, runtime.kernels) knows where a
slot's bit is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Rows = npt.NDArray[Any] | slice
"""Row numbers or a mask of rows."""


def place(slot: int) -> tuple[int, np.uint64]:
    """(number of the slot's word, a word in which only its bit is set)"""
    return slot >> 6, np.uint64(1 << (slot & 63))


def bitset(slots: Iterable[int], words: int) -> Words:
    out = np.zeros(words, np.uint64)
    for slot in slots:
        word, bit = place(slot)
        out[word] |= bit
    return out


def has(sets: Words, slot: int) -> npt.NDArray[np.bool_]:
    """Rows of a query-set matrix that contain the slot; none if the matrix is too narrow to know it."""
    word, bit = place(slot)
    if word >= sets.shape[1]:
        return np.zeros(sets.shape[0], bool)
    mask: npt.NDArray[np.bool_] = (sets[:, word] & bit) != 0
    return mask


def add_slot(sets: Words, rows: Rows, slot: int) -> None:
    """Into the sets of the given rows."""
    word, bit = place(slot)
    sets[rows, word] |= bit


def remove_slot(sets: Words, rows: Rows, slot: int) -> None:
    """From the sets of the given rows; a matrix that is too narrow does not have it anyway."""
    word, bit = place(slot)
    if word < sets.shape[1]:
        sets[rows, word] &= ~bit


def widen(sets: Words, words: int) -> Words:
    """The same sets with exactly `words` words: bits are padded with zeros or cut off."""
    if sets.shape[1] == words:
        return sets
    out = np.zeros((sets.shape[0], words), np.uint64)
    shared = min(words, sets.shape[1])
    out[:, :shared] = sets[:, :shared]
    return out
