"""Query sets with few distinct values: numbered, and laid out by member.

`distinct_sets` replaces the words of every row by a small number. `renumbered` gives members other places, which is how
sets of an older plan are read in the slots of the present one.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from runtime.kernels.kinds import INTS, SETS, WORDS

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]


@nb.njit(cache=True, nogil=True, inline="always")
def _place(sets: U64, i: int, mask: U64, bits: int) -> int:
    h = np.uint64(0x9E3779B97F4A7C15)
    for w in range(sets.shape[1]):
        h = ((h ^ (h >> np.uint64(29))) + (sets[i, w] & mask[w])) * np.uint64(0x94D049BB133111EB)
    h = (h ^ (h >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64(h >> np.uint64(64 - bits))  # type: ignore[return-value]


@nb.njit(cache=True, nogil=True, inline="always")
def _same(sets: U64, i: int, j: int, mask: U64) -> bool:
    for w in range(sets.shape[1]):  # noqa: SIM110  (compiled: a plain loop is what numba knows)
        if (sets[i, w] ^ sets[j, w]) & mask[w] != 0:
            return False
    return True


@nb.njit([(SETS, WORDS)], cache=True, nogil=True)
def distinct_sets(sets: U64, mask: U64):  # type: ignore[no-untyped-def]
    """(the distinct rows as far as `mask` shows them, per row the number of its own), numbered as they come."""
    n, words = sets.shape
    codes = np.empty(n, np.int32)
    first = np.empty(n, np.int64)
    bits = 8
    table = np.full(1 << bits, -1, np.int32)
    count = 0
    for i in range(n):
        if i > 0 and _same(sets, i, i - 1, mask):
            codes[i] = codes[i - 1]
            continue
        slot = _place(sets, i, mask, bits)
        while table[slot] >= 0 and not _same(sets, i, first[table[slot]], mask):
            slot = (slot + 1) & (table.shape[0] - 1)
        if table[slot] >= 0:
            codes[i] = table[slot]
            continue
        codes[i] = table[slot] = count
        first[count] = i
        count += 1
        if 2 * count > table.shape[0]:
            bits += 2
            table = np.full(1 << bits, -1, np.int32)
            for k in range(count):
                slot = _place(sets, first[k], mask, bits)
                while table[slot] >= 0:
                    slot = (slot + 1) & (table.shape[0] - 1)
                table[slot] = k
    out = np.empty((count, words), np.uint64)
    for k in range(count):
        for w in range(words):
            out[k, w] = sets[first[k], w] & mask[w]
    return out, codes


@nb.njit([(SETS, INTS)], cache=True, nogil=True)
def renumbered(table: U64, slots: I64) -> U64:
    """Member i of the new sets is member slots[i] of the old ones; -1: nobody's."""
    n, words = table.shape
    out = np.zeros((n, (slots.shape[0] + 63) >> 6), np.uint64)
    for i in range(slots.shape[0]):
        s = slots[i]
        if s < 0 or (s >> 6) >= words:
            continue
        old, new = np.uint64(1) << np.uint64(s & 63), np.uint64(1) << np.uint64(i & 63)
        for r in range(n):
            if table[r, s >> 6] & old != 0:
                out[r, i >> 6] |= new
    return out


@nb.njit(cache=True, nogil=True)
def numbers_of(places: I64, size: int):  # type: ignore[no-untyped-def]
    """(the distinct ones of places in [0, size), per place the number of its own), numbered as they come."""
    known = np.full(size, -1, np.int32)
    out = np.empty(places.shape[0], np.int32)
    distinct = np.empty(min(size, places.shape[0]), np.int64)
    count = 0
    for i in range(places.shape[0]):
        p = places[i]
        if known[p] < 0:
            known[p] = count
            distinct[count] = p
            count += 1
        out[i] = known[p]
    return distinct[:count].copy(), out
