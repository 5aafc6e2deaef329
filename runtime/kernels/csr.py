"""The index of a bucket: items ordered by key hash, grouped into entries (compressed sparse rows).

An entry is a maximal run of items with equal (hash, lo, hi), where [lo, hi] spans the slices of the item's tuples
(for a source tuple both are its own slice). So all items of an entry lie in the same windows, and one test decides
for all of them. Entries are sorted by hash: a partition, being a range of hashes, is a contiguous piece of every
array.

Cost: one sort of 64-bit numbers; 4 bytes an item plus (8 + 16 + 4 + 8 per query-set word) bytes an entry.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

from runtime.kernels.sets import all_equal

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]


class Entries(NamedTuple):
    """Entries [first, end) of an index; the arrays are those of the whole index."""

    hashes: U64
    lo: I64
    hi: I64
    query_sets: U64
    first: int
    end: int


class Items(NamedTuple):
    """The items behind the entries of an index: `order[offsets[e]:offsets[e+1]]` are those of entry e, and
    `query_sets[item]` is an item's query set."""

    order: I32
    offsets: I32
    query_sets: U64


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

    def entries(self, first: int, end: int) -> Entries:
        return Entries(self.hashes, self.lo, self.hi, self.query_sets, first, end)


@nb.njit(cache=True, nogil=True)
def _entries(order: I32, by_order: U64, lo: I64, hi: I64, one_slice: bool):  # type: ignore[no-untyped-def]
    """`by_order`: hashes in this order. `one_slice`: all items agree in that, so nothing is looked up."""
    n = order.shape[0]
    starts = np.empty(n + 1, np.int32)
    count = 0
    for i in range(n):
        starts[count] = i
        fresh = i == 0 or by_order[i] != by_order[i - 1]
        if not (fresh or one_slice):
            item, last = order[i], order[i - 1]
            fresh = lo[item] != lo[last] or hi[item] != hi[last]
        count += int(fresh)
    starts[count] = n
    offsets = starts[: count + 1].copy()
    e_hash = np.empty(count, np.uint64)
    e_lo = np.empty(count, np.int64)
    e_hi = np.empty(count, np.int64)
    for e in range(count):
        item = order[0] if one_slice else order[offsets[e]]
        e_hash[e] = by_order[offsets[e]]
        e_lo[e] = lo[item]
        e_hi[e] = hi[item]
    return e_hash, e_lo, e_hi, offsets


@nb.njit(cache=True, nogil=True, inline="always")
def _before(a: int, b: int, hashes: U64, lo: I64, hi: I64) -> bool:
    if hashes[a] != hashes[b]:
        return bool(hashes[a] < hashes[b])
    if lo[a] != lo[b]:
        return bool(lo[a] < lo[b])
    return bool(hi[a] < hi[b])


@nb.njit(cache=True, nogil=True)
def sort_run(order: I32, spare: I32, first: int, end: int, hashes: U64, lo: I64, hi: I64) -> None:
    """`order[first:end]` by (hash, lo, hi). Stable: insertion sort of short pieces, then bottom-up merging."""
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
def _tickets(items: npt.NDArray[np.intp], hashes: U64, mask: np.uint64) -> U64:
    """Per item one number to sort by: the leading bits of its hash, and in the low bits its place in `items`."""
    out = np.empty(items.shape[0], np.uint64)
    for i in range(items.shape[0]):
        out[i] = (hashes[items[i]] & ~mask) | np.uint64(i)
    return out


@nb.njit(cache=True, nogil=True)
def _settle(  # type: ignore[no-untyped-def]
    tickets: U64, items: npt.NDArray[np.intp], hashes: U64, lo: I64, hi: I64, mask: np.uint64, one_slice: bool
):
    """(items, their hashes) in the order of the tickets, except that a run whose leading bits are equal is sorted by
    everything if it is not in order yet; it mostly is: equal keys come in the order of time."""
    n = tickets.shape[0]
    order = np.empty(n, np.int32)
    by_order = np.empty(n, np.uint64)
    for i in range(n):
        item = items[np.int64(tickets[i] & mask)]
        order[i] = item
        by_order[i] = hashes[item]
    spare = np.empty(n, np.int32)
    first = 0
    right = True
    for i in range(1, n + 1):
        if i < n and (tickets[i] & ~mask) == (tickets[i - 1] & ~mask):
            if one_slice:
                right = right and by_order[i] >= by_order[i - 1]
            else:
                right = right and not _before(order[i], order[i - 1], hashes, lo, hi)
            continue
        if not right:
            sort_run(order, spare, first, i, hashes, lo, hi)
            for k in range(first, i):
                by_order[k] = hashes[order[k]]
        first = i
        right = True
    return order, by_order


def hash_order(items: npt.NDArray[np.intp], hashes: U64, lo: I64, hi: I64) -> I32:
    """Items by (hash, lo, hi)."""
    order: I32 = _ordered(items, hashes, lo, hi, _one(lo, hi))[0]
    return order


def _ordered(items: npt.NDArray[np.intp], hashes: U64, lo: I64, hi: I64, one_slice: bool) -> tuple[I32, U64]:
    """NumPy sorts plain 64-bit numbers with vector instructions, several times faster than any sort of places by what
    lies there; and leading hash bits are rarely equal unless the whole hash is."""
    mask = np.uint64((1 << max(1, int(len(items) - 1).bit_length())) - 1)
    tickets = _tickets(items, hashes, mask)
    tickets.sort()
    order, by_order = _settle(tickets, items, hashes, lo, hi, mask, one_slice)
    return order, by_order


def _one(lo: I64, hi: I64) -> bool:
    """Do all items span the same slices?"""
    return len(lo) > 0 and bool(lo[0] == lo.min() == lo.max() and hi[0] == hi.min() == hi.max())


@nb.njit(cache=True, nogil=True)
def entry_sets(order: I32, offsets: I32, query_sets: U64, first: int, end: int) -> U64:
    """The OR of the items' query sets, for the entries [first, end).

    The result has a row for every entry, so that it is addressed like the index, but the rows of other entries are not
    filled in and must not be read: memory that is never touched costs nothing.
    """
    out = np.empty((offsets.shape[0] - 1, query_sets.shape[1]), np.uint64)
    for e in range(first, end):
        for w in range(query_sets.shape[1]):
            out[e, w] = query_sets[order[offsets[e]], w]
        for i in range(offsets[e] + 1, offsets[e + 1]):
            for w in range(query_sets.shape[1]):
                out[e, w] |= query_sets[order[i], w]
    return out


def build(items: npt.NDArray[np.intp], hashes: U64, lo: I64, hi: I64, query_sets: U64) -> Csr:
    """Index `items`; the other arrays are addressed by item number."""
    index = grouped(items, hashes, lo, hi)
    if all_equal(query_sets):
        return replace(index, query_sets=np.repeat(query_sets[:1], len(index.hashes), axis=0))
    return replace(index, query_sets=entry_sets(index.order, index.offsets, query_sets, 0, len(index.hashes)))


def grouped(items: npt.NDArray[np.intp], hashes: U64, lo: I64, hi: I64) -> Csr:
    """The same without query sets (no column of them), for an index that is stored without."""
    one_slice = _one(lo, hi)
    if in_order(items, hashes, lo, hi):
        order = items.astype(np.int32)
        by_order = hashes if len(items) == len(hashes) else hashes[items]  # items in order, all: each at its own place
    else:
        order, by_order = _ordered(items, hashes, lo, hi, one_slice)
    e_hash, e_lo, e_hi, offsets = _entries(order, by_order, lo, hi, one_slice)
    return Csr(order, e_hash, e_lo, e_hi, offsets, np.empty((len(e_hash), 0), np.uint64))
