"""The index of a bucket: items ordered by key hash, grouped into entries (compressed sparse rows).

An entry is a maximal run of items with equal (hash, lo, hi), where [lo, hi] spans the slices of the item's tuples (for
a source tuple both are its own slice). So all items of an entry lie in the same windows, and one test decides for all of
them. Entries are sorted by hash: a partition, being a range of hashes, is a contiguous piece of every array.

Cost: one sort of the items; 4 bytes an item plus (8 + 16 + 4 + 8 per query-set word) bytes an entry.
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
def _entries(order: I64, hashes: U64, lo: I64, hi: I64, query_sets: U64):  # type: ignore[no-untyped-def]
    n = order.shape[0]
    words = query_sets.shape[1]
    count = 0
    for i in range(n):
        if i == 0:
            count = 1
            continue
        a, b = order[i - 1], order[i]
        if hashes[a] != hashes[b] or lo[a] != lo[b] or hi[a] != hi[b]:
            count += 1
    offsets = np.zeros(count + 1, np.int32)
    e_hash = np.empty(count, np.uint64)
    e_lo = np.empty(count, np.int64)
    e_hi = np.empty(count, np.int64)
    e_qs = np.zeros((count, words), np.uint64)
    e = -1
    for i in range(n):
        b = order[i]
        fresh = i == 0
        if not fresh:
            a = order[i - 1]
            fresh = hashes[a] != hashes[b] or lo[a] != lo[b] or hi[a] != hi[b]
        if fresh:
            e += 1
            offsets[e] = i
            e_hash[e] = hashes[b]
            e_lo[e] = lo[b]
            e_hi[e] = hi[b]
        for w in range(words):
            e_qs[e, w] |= query_sets[b, w]
    offsets[count] = n
    return e_hash, e_lo, e_hi, offsets, e_qs


def build(items: npt.NDArray[np.intp], hashes: U64, lo: I64, hi: I64, query_sets: U64) -> Csr:
    """Index `items`; the other arrays are addressed by item number."""
    h = hashes[items]
    if len(items) and lo[items].min() == lo[items].max() and hi[items].min() == hi[items].max():
        order = items[np.argsort(h, kind="stable")]
    else:
        order = items[np.lexsort((hi[items], lo[items], h))]
    e_hash, e_lo, e_hi, offsets, e_qs = _entries(order.astype(np.int64), hashes, lo, hi, query_sets)
    return Csr(order.astype(np.int32), e_hash, e_lo, e_hi, offsets, e_qs)
