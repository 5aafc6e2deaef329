"""From matching entries to items: one side's items with a list of partners, or all pairs.

`carry` keeps the lists closed: every item of the carrying side becomes one item of the joined bucket and points at the
whole entry of its partners (late materialization). `pairs` opens them: one item per combination. Both drop what no
query wants, item by item. Positions of the left side can be cut to [l_from, l_to): that is how a hot partition is dealt
out to several tasks, even inside one entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

from runtime.kernels.csr import Items
from runtime.kernels.trim import trim

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]


class Carried(NamedTuple):
    """Items of one side: the number of the entry pair each comes from, the item, the queries that want it."""

    pair: I32
    item: I32
    sets: U64


class ItemPairs(NamedTuple):
    """Combinations: number of the entry pair, left item, right item and its position, the queries that want it."""

    pair: I32
    left: I32
    right: I32
    position: I32
    sets: U64


def carry(entries: I32, pair_sets: U64, items: Items, first: int, end: int) -> Carried:
    """The items of one side of entry pairs that lie at positions [first, end)."""
    n, out_p, out_i, out_q = _carry(entries, pair_sets, *items, first, end)
    return Carried(trim(out_p, n), trim(out_i, n), trim(out_q, n))


@nb.njit(cache=True, nogil=True)
def _carry(entries: I32, pair_sets: U64, order: I32, offsets: I32, query_sets: U64, first: int, end: int):  # type: ignore[no-untyped-def]
    words = pair_sets.shape[1]
    total = 0
    for p in range(entries.shape[0]):
        a = max(offsets[entries[p]], first)
        b = min(offsets[entries[p] + 1], end)
        if b > a:
            total += b - a
    out_p = np.empty(total, np.int32)
    out_i = np.empty(total, np.int32)
    out_q = np.empty((total, words), np.uint64)
    n = 0
    for p in range(entries.shape[0]):
        a = max(offsets[entries[p]], first)
        b = min(offsets[entries[p] + 1], end)
        for position in range(a, b):
            item = order[position]
            union = np.uint64(0)
            for w in range(words):
                out_q[n, w] = query_sets[item, w] & pair_sets[p, w]
                union |= out_q[n, w]
            if union != 0:
                out_p[n] = p
                out_i[n] = item
                n += 1
    return n, out_p, out_i, out_q


@nb.njit(cache=True, nogil=True)
def count_pairs(l_entries: I32, l_offsets: I32, l_from: int, l_to: int, r_entries: I32, r_offsets: I32):  # type: ignore[no-untyped-def]
    """Combinations each entry pair stands for, to cut the work into chunks."""
    out = np.empty(l_entries.shape[0], np.int64)
    for p in range(l_entries.shape[0]):
        a = max(l_offsets[l_entries[p]], l_from)
        b = min(l_offsets[l_entries[p] + 1], l_to)
        width = np.int64(r_offsets[r_entries[p] + 1] - r_offsets[r_entries[p]])
        out[p] = width * (b - a) if b > a else 0
    return out


def pairs(
    l_entries: I32, left: Items, l_from: int, l_to: int, r_entries: I32, right: Items, pair_sets: U64, capacity: int
) -> ItemPairs:
    """All combinations of entry pairs; `capacity`: how many there are (`count_pairs`)."""
    n, out_p, out_l, out_r, out_pos, out_q = _pairs(
        l_entries, *left, l_from, l_to, r_entries, *right, pair_sets, capacity
    )
    return ItemPairs(trim(out_p, n), trim(out_l, n), trim(out_r, n), trim(out_pos, n), trim(out_q, n))


@nb.njit(cache=True, nogil=True)
def _pairs(  # type: ignore[no-untyped-def]
    l_entries: I32,
    l_order: I32,
    l_offsets: I32,
    l_qs: U64,
    l_from: int,
    l_to: int,
    r_entries: I32,
    r_order: I32,
    r_offsets: I32,
    r_qs: U64,
    pair_sets: U64,
    capacity: int,
):
    words = pair_sets.shape[1]
    out_p = np.empty(capacity, np.int32)
    out_l = np.empty(capacity, np.int32)
    out_r = np.empty(capacity, np.int32)
    out_pos = np.empty(capacity, np.int32)
    out_q = np.empty((capacity, words), np.uint64)
    left = np.empty(words, np.uint64)
    n = 0
    for p in range(l_entries.shape[0]):
        a = max(l_offsets[l_entries[p]], l_from)
        b = min(l_offsets[l_entries[p] + 1], l_to)
        for i in range(a, b):
            li = l_order[i]
            union = np.uint64(0)
            for w in range(words):
                left[w] = l_qs[li, w] & pair_sets[p, w]
                union |= left[w]
            if union == 0:
                continue
            for j in range(r_offsets[r_entries[p]], r_offsets[r_entries[p] + 1]):
                ri = r_order[j]
                union = np.uint64(0)
                for w in range(words):
                    out_q[n, w] = left[w] & r_qs[ri, w]
                    union |= out_q[n, w]
                if union != 0:
                    out_p[n] = p
                    out_l[n] = li
                    out_r[n] = ri
                    out_pos[n] = j
                    n += 1
    return n, out_p, out_l, out_r, out_pos, out_q


class Cut(NamedTuple):
    """Ranges number `first` and following, the outer two of them perhaps shortened."""

    first: int
    starts: I64
    ends: I64


def cut(starts: I64, ends: I64, most: int) -> Iterator[Cut]:
    """The ranges in pieces that have `most` positions together (the last one fewer), for `unroll` one by one."""
    counts = ends - starts
    until = np.cumsum(counts)
    total = int(until[-1]) if len(until) else 0
    if 0 < total <= most:
        yield Cut(0, starts, ends)
        return
    for begin in range(0, total, most):
        stop = min(begin + most, total)
        first, last = int(np.searchsorted(until, begin, "right")), int(np.searchsorted(until, stop, "left"))
        piece = Cut(first, starts[first : last + 1].copy(), ends[first : last + 1].copy())
        piece.starts[0] += begin - (until[first] - counts[first])
        piece.ends[-1] -= until[last] - stop
        yield piece


def in_runs(cost: npt.NDArray[Any], most: int) -> list[slice]:
    """Consecutive rows that cost about `most` together, or one that costs more."""
    if not len(cost):
        return []
    cuts = np.flatnonzero(np.diff(np.cumsum(cost) // most)) + 1
    return [slice(a, b) for a, b in pairwise((0, *cuts.tolist(), len(cost)))]


def unroll(starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> tuple[I64, I64]:
    """Lay ranges out flat: (which range, position) for every position of every range."""
    counts = ends - starts
    which = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    before = np.cumsum(counts) - counts
    return which, np.arange(len(which), dtype=np.int64) - before[which] + starts[which]
