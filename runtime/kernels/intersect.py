"""The join itself: a sorted set intersection of two indexes, pruned by query sets and windows.

For two entries with the same key hash the queries that can have rows are

    left set & right set & alive & { q : some window of q holds both slice ranges }

`alive` holds the changelog sets of both buckets' plan versions and the users of this join. The last factor is
computed per window shape, not per query: with [lo, hi] spanning all slices involved, the latest window of shape
(size, advance) that starts at or before lo is the one that reaches furthest, so it decides.

One key in many slices on both sides meets in as many pairs as the product of the two. `intersections` therefore stops
before the left entry with which there would be more than it is allowed, and goes on from there.

Pairs of entries whose set is empty are never looked into: that is the pruning of whole groups. Cost: linear in the
entries of both sides plus the candidate pairs.

It goes in passes, because each is then a loop the compiler does well: `_meetings` merges the hashes without a branch to
mispredict (3 ns an entry; hashes are random, so a branch would be wrong every other time), `_capacity` says how
many pairs there can be, and only then are sets and windows looked at. Arrays that grow inside the loop would cost
more than everything else in it. The test of a pair stands in two of the passes: as a function of its own, with arrays
handed in, it took three times as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

from runtime.kernels.csr import Entries
from runtime.kernels.trim import trim

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]


class Shapes(NamedTuple):
    """The queries in `sets[s]` have windows [k*advances[s], k*advances[s] + sizes[s])."""

    sizes: I64
    advances: I64
    sets: U64


ANY = 1 << 62
"""More pairs than there can be."""


class EntryPairs(NamedTuple):
    """Left entry, right entry and the queries that can have rows of them, per pair."""

    left: I32
    right: I32
    sets: U64


@nb.njit(cache=True, nogil=True)
def _meetings(l_hash: U64, l_first: int, l_end: int, r_hash: U64, r_first: int, r_end: int):  # type: ignore[no-untyped-def]
    """Positions of equal hashes, at least the first of every run on both sides; others of a run may follow."""
    most = min(l_end - l_first, r_end - r_first) + 1
    out_l = np.empty(most, np.int32)
    out_r = np.empty(most, np.int32)
    n = 0
    i, j = l_first, r_first
    while i < l_end and j < r_end:
        a, b = l_hash[i], r_hash[j]
        out_l[n] = i
        out_r[n] = j
        n += int(a == b)
        i += int(a <= b)
        j += int(b <= a)
    return out_l[:n], out_r[:n]


@nb.njit(cache=True, nogil=True, inline="always")
def _run(hashes: U64, first: int, end: int) -> int:
    """Where the run of equal hashes that begins at `first` ends."""
    stop = first + 1
    while stop < end and hashes[stop] == hashes[first]:
        stop += 1
    return stop


@nb.njit(cache=True, nogil=True, inline="always")
def _holding(lo: int, hi: int, sizes: I64, advances: I64) -> np.uint64:
    """A bit for each of the first 64 shapes: does one of its windows hold both lo and hi?"""
    bits = np.uint64(0)
    for s in range(min(sizes.shape[0], 64)):
        if (lo // advances[s]) * advances[s] + sizes[s] > hi:
            bits |= np.uint64(1) << np.uint64(s)
    return bits


@nb.njit(cache=True, nogil=True, inline="always")
def _share_window(
    holding: np.uint64, lo: int, hi: int, w: int, sizes: I64, advances: I64, shape_sets: U64
) -> np.uint64:
    """Word `w` of the queries one of whose windows holds both. The division is done per word only for the shapes beyond
    64: there are hardly ever so many."""
    within = np.uint64(0)
    for s in range(sizes.shape[0]):
        if s < 64:
            if (holding >> np.uint64(s)) & np.uint64(1) != 0:
                within |= shape_sets[s, w]
        elif (lo // advances[s]) * advances[s] + sizes[s] > hi:
            within |= shape_sets[s, w]
    return within


@nb.njit(cache=True, nogil=True)
def _capacity(  # type: ignore[no-untyped-def]
    meet_l: I32,
    meet_r: I32,
    l_hash: U64,
    l_lo: I64,
    l_hi: I64,
    l_qs: U64,
    l_first: int,
    l_end: int,
    r_hash: U64,
    r_lo: I64,
    r_hi: I64,
    r_qs: U64,
    r_end: int,
    alive: U64,
    sizes: I64,
    advances: I64,
    shape_sets: U64,
    allowed: int,
):
    """An upper bound of the pairs: one where an entry meets one, exact where many meet many (a key in many slices),
    because there the product can be far more than what shares a window. And where left entries end for which they are
    at most `allowed`; of one left entry all are."""
    words = alive.shape[0]
    n = 0
    for m in range(meet_l.shape[0]):
        first, j = np.int64(meet_l[m]), np.int64(meet_r[m])
        if first > l_first and l_hash[first - 1] == l_hash[first]:
            continue
        i_end, j_end = _run(l_hash, first, l_end), _run(r_hash, j, r_end)
        if i_end == first + 1 or j_end == j + 1:
            width = j_end - j
            if n + (i_end - first) * width > allowed:
                stop = first + max((allowed - n) // width, int(n == 0))
                if stop < l_end:
                    return n + (stop - first) * width, stop
            n += (i_end - first) * width
            continue
        for i in range(first, i_end):
            before = n
            for k in range(j, j_end):
                lo, hi = min(l_lo[i], r_lo[k]), max(l_hi[i], r_hi[k])
                holding = _holding(lo, hi, sizes, advances) if lo != hi else np.uint64(0)
                union = np.uint64(0)
                for w in range(words):
                    both = l_qs[i, w] & r_qs[k, w] & alive[w]
                    if lo != hi and both != 0:
                        both &= _share_window(holding, lo, hi, w, sizes, advances, shape_sets)
                    union |= both
                n += int(union != 0)
            if n > allowed and before > 0:
                return before, i
    return n, l_end


def intersect(left: Entries, right: Entries, alive: U64, shapes: Shapes) -> EntryPairs:
    """Matching pairs of the given entries. All matrices have `alive.shape[0]` words or more."""
    (pairs,) = intersections(left, right, alive, shapes, ANY)
    return pairs


def intersections(left: Entries, right: Entries, alive: U64, shapes: Shapes, allowed: int) -> Iterator[EntryPairs]:
    """The same in pieces of at most `allowed` pairs, or those of one left entry.

    Named tuples end here: numba takes them too, but looks up their type more slowly, which a small bucket would notice.
    """
    first = left.first
    while True:
        n, first, out_l, out_r, out_q = _intersect(*left[:-2], first, left.end, *right, alive, *shapes, allowed)
        yield EntryPairs(trim(out_l, n), trim(out_r, n), trim(out_q, n))
        if first >= left.end:
            return


@nb.njit(cache=True, nogil=True)
def _intersect(  # type: ignore[no-untyped-def]
    l_hash: U64,
    l_lo: I64,
    l_hi: I64,
    l_qs: U64,
    l_first: int,
    l_end: int,
    r_hash: U64,
    r_lo: I64,
    r_hi: I64,
    r_qs: U64,
    r_first: int,
    r_end: int,
    alive: U64,
    sizes: I64,
    advances: I64,
    shape_sets: U64,
    allowed: int,
):
    """The number of pairs, where to go on, and arrays that may be longer than that."""
    words = alive.shape[0]
    meet_l, meet_r = _meetings(l_hash, l_first, l_end, r_hash, r_first, r_end)
    most, l_end = _capacity(
        meet_l, meet_r, l_hash, l_lo, l_hi, l_qs, l_first, l_end, r_hash, r_lo, r_hi, r_qs, r_end,
        alive, sizes, advances, shape_sets, allowed,
    )  # fmt: skip
    out_l = np.empty(most + 1, np.int32)  # one more than can be kept: a pair is written before it is judged
    out_r = np.empty(most + 1, np.int32)
    out_q = np.empty((most + 1, words), np.uint64)
    n = 0
    for m in range(meet_l.shape[0]):
        first, j = np.int64(meet_l[m]), np.int64(meet_r[m])
        if first >= l_end:
            break
        if first > l_first and l_hash[first - 1] == l_hash[first]:
            continue
        i_end, j_end = _run(l_hash, first, l_end), _run(r_hash, j, r_end)
        for i in range(first, i_end):
            for k in range(j, j_end):
                lo, hi = min(l_lo[i], r_lo[k]), max(l_hi[i], r_hi[k])
                holding = _holding(lo, hi, sizes, advances) if lo != hi else np.uint64(0)
                union = np.uint64(0)
                for w in range(words):
                    both = l_qs[i, w] & r_qs[k, w] & alive[w]
                    if lo != hi and both != 0:
                        both &= _share_window(holding, lo, hi, w, sizes, advances, shape_sets)
                    out_q[n, w] = both
                    union |= both
                out_l[n] = i
                out_r[n] = k
                n += int(union != 0)
    return n, l_end, out_l, out_r, out_q
