"""The index of a bucket: items ordered by key hash, grouped into entries (compressed sparse rows).

An entry is a maximal run of items with equal (hash, lo, hi), where [lo, hi] spans the slices of the item's tuples
(for a source tuple both are its own slice). So all items of an entry lie in the same windows, and one test decides
for all of them. Entries are sorted by hash: a partition, being a range of hashes, is a contiguous piece of every
array.

Cost: one counting pass and short sorts; 4 bytes an item plus (8 + 16 + 4 + 8 per query-set word) bytes an entry.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba as nb
import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Csr:
    """`order[offsets[e]:offsets[e+1]]` are the items of entry e; `query_sets[e]` is the OR of their query sets."""

    order: I32
    hashes: U64
    lo: I64
    hi: I64
    offsets: I32
    query_sets: U64

    def range(self, first_hash: int, end_hash: int) -> tuple[int, int]:
        """Entries with first_hash <= hash < end_hash."""
        a = 0 if first_hash <= 0 else int(np.searchsorted(self.hashes, np.uint64(first_hash)))
        b = len(self.hashes)
        if end_hash < 1 << 64:
            b = int(np.searchsorted(self.hashes, np.uint64(end_hash)))
        return a, b


@nb.njit(cache=True, nogil=True)
def _entries(order: I32, hashes: U64, lo: I64, hi: I64, query_sets: U64, one_slice: bool, one_set: bool):  # type: ignore[no-untyped-def]
    """`one_slice`, `one_set`: all items agree in that, so it need not be looked up item by item."""
    n = order.shape[0]
    words = query_sets.shape[1]
    starts = np.empty(n + 1, np.int32)
    count = 0
    last = np.uint64(0)
    last_lo = np.int64(0)
    last_hi = np.int64(0)
    for i in range(n):
        item = order[i]
        h = hashes[item]
        fresh = i == 0 or h != last
        if not one_slice:
            fresh = fresh or lo[item] != last_lo or hi[item] != last_hi
            last_lo = lo[item]
            last_hi = hi[item]
        if fresh:
            starts[count] = i
            count += 1
        last = h
    starts[count] = n
    offsets = starts[: count + 1].copy()
    e_hash = np.empty(count, np.uint64)
    e_lo = np.empty(count, np.int64)
    e_hi = np.empty(count, np.int64)
    e_qs = np.zeros((count, words), np.uint64)
    for e in range(count):
        item = order[offsets[e]]
        e_hash[e] = hashes[item]
        e_lo[e] = lo[order[0]] if one_slice else lo[item]
        e_hi[e] = hi[order[0]] if one_slice else hi[item]
        end = offsets[e] + 1 if one_set else offsets[e + 1]
        for i in range(offsets[e], end):
            at = order[0] if one_set else order[i]
            for w in range(words):
                e_qs[e, w] |= query_sets[at, w]
    return e_hash, e_lo, e_hi, offsets, e_qs


@nb.njit(cache=True, nogil=True, inline="always")
def _before(a: int, b: int, hashes: U64, lo: I64, hi: I64) -> bool:
    if hashes[a] != hashes[b]:
        return bool(hashes[a] < hashes[b])
    if lo[a] != lo[b]:
        return bool(lo[a] < lo[b])
    return bool(hi[a] < hi[b])


@nb.njit(cache=True, nogil=True)
def _sort_run(order: I32, spare: I32, first: int, end: int, hashes: U64, lo: I64, hi: I64) -> None:
    """Stable: insertion sort of short pieces, then bottom-up merging."""
    piece = 24
    for start in range(first, end, piece):
        stop = min(start + piece, end)
        for i in range(start + 1, stop):
            x = order[i]
            j = i - 1
            while j >= start and _before(x, order[j], hashes, lo, hi):
                order[j + 1] = order[j]
                j -= 1
            order[j + 1] = x
    width = piece
    while width < end - first:
        for start in range(first, end, 2 * width):
            middle, stop = min(start + width, end), min(start + 2 * width, end)
            if middle >= stop or not _before(order[middle], order[middle - 1], hashes, lo, hi):
                continue
            i, j = start, middle
            for k in range(start, stop):
                if j >= stop or (i < middle and not _before(order[j], order[i], hashes, lo, hi)):
                    spare[k] = order[i]
                    i += 1
                else:
                    spare[k] = order[j]
                    j += 1
            for k in range(start, stop):
                order[k] = spare[k]
        width *= 2


@nb.njit(cache=True, nogil=True)
def in_order(items: npt.NDArray[np.intp], hashes: U64, lo: I64, hi: I64) -> bool:
    """Do the items already stand by (hash, lo, hi)?"""
    for i in range(1, items.shape[0]):  # noqa: SIM110  (compiled: a plain loop is what numba knows)
        if _before(items[i], items[i - 1], hashes, lo, hi):
            return False
    return True


@nb.njit(cache=True, nogil=True)
def hash_order(items: npt.NDArray[np.intp], hashes: U64, lo: I64, hi: I64) -> I32:
    """Items by (hash, lo, hi). Hashes are uniform, so one counting pass over their leading bits nearly sorts them."""
    n = items.shape[0]
    bits = 1
    while (1 << bits) < n and bits < 20:
        bits += 1
    shift = np.uint64(64 - bits)
    starts = np.zeros((1 << bits) + 1, np.int64)
    for i in range(n):
        starts[np.int64(hashes[items[i]] >> shift) + 1] += 1
    for b in range(1 << bits):
        starts[b + 1] += starts[b]
    order = np.empty(n, np.int32)
    at = starts[:-1].copy()
    for i in range(n):
        leading = np.int64(hashes[items[i]] >> shift)
        order[at[leading]] = items[i]
        at[leading] += 1
    spare = np.empty(n, np.int32)
    for b in range(1 << bits):
        if starts[b + 1] - starts[b] > 1:
            _sort_run(order, spare, starts[b], starts[b + 1], hashes, lo, hi)
    return order


@nb.njit(cache=True, nogil=True)
def entry_sets(order: I32, offsets: I32, query_sets: U64) -> U64:
    """The OR of the items' query sets, entry by entry."""
    out = np.zeros((offsets.shape[0] - 1, query_sets.shape[1]), np.uint64)
    for e in range(offsets.shape[0] - 1):
        for i in range(offsets[e], offsets[e + 1]):
            for w in range(query_sets.shape[1]):
                out[e, w] |= query_sets[order[i], w]
    return out


def build(items: npt.NDArray[np.intp], hashes: U64, lo: I64, hi: I64, query_sets: U64) -> Csr:
    """Index `items`; the other arrays are addressed by item number."""
    order = items.astype(np.int32) if in_order(items, hashes, lo, hi) else hash_order(items, hashes, lo, hi)
    one_slice = len(lo) > 0 and bool(lo[0] == lo.min() == lo.max() and hi[0] == hi.min() == hi.max())
    one_set = len(query_sets) > 0 and bool((query_sets == query_sets[0]).all())
    e_hash, e_lo, e_hi, offsets, e_qs = _entries(order, hashes, lo, hi, query_sets, one_slice, one_set)
    return Csr(order, e_hash, e_lo, e_hi, offsets, e_qs)
