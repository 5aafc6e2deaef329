"""The join itself: a sorted set intersection of two indexes, pruned by query sets and windows.

For two entries with the same key hash the queries that can have rows are

    left set & right set & alive & { q : some window of q holds both slice ranges }

`alive` holds the changelog sets of both buckets' plan versions and the users of this join. The last factor is
computed per window shape, not per query: with [lo, hi] spanning all slices involved, the latest window of shape
(size, advance) that starts at or before lo is the one that reaches furthest, so it decides.

Pairs of entries whose set is empty are never looked into: that is the pruning of whole groups. Cost: linear in the
entries of both sides plus the candidate pairs.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]


@nb.njit(cache=True, nogil=True)
def intersect(  # type: ignore[no-untyped-def]
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
):
    """Matching entry pairs within [l_first, l_end) x [r_first, r_end): (left entries, right entries, query sets).

    `shape_sets[s]` is the set of queries whose windows have shape s. All matrices have `alive.shape[0]` words or more.
    """
    words = alive.shape[0]
    shapes = sizes.shape[0]
    capacity = 1024
    out_l = np.empty(capacity, np.int32)
    out_r = np.empty(capacity, np.int32)
    out_q = np.empty((capacity, words), np.uint64)
    n = 0
    both = np.empty(words, np.uint64)
    keep = np.empty(words, np.uint64)
    i, j = l_first, r_first
    while i < l_end and j < r_end:
        h = l_hash[i]
        if h < r_hash[j]:
            i += 1
            continue
        if h > r_hash[j]:
            j += 1
            continue
        j_end = j
        while j_end < r_end and r_hash[j_end] == h:
            j_end += 1
        while i < l_end and l_hash[i] == h:
            for k in range(j, j_end):
                some = np.uint64(0)
                for w in range(words):
                    both[w] = l_qs[i, w] & r_qs[k, w] & alive[w]
                    some |= both[w]
                if some == 0:
                    continue
                lo = min(l_lo[i], r_lo[k])
                hi = max(l_hi[i], r_hi[k])
                if lo == hi:
                    for w in range(words):
                        keep[w] = both[w]
                else:
                    some = np.uint64(0)
                    for w in range(words):
                        keep[w] = 0
                    for s in range(shapes):
                        if (lo // advances[s]) * advances[s] + sizes[s] > hi:
                            for w in range(words):
                                keep[w] |= both[w] & shape_sets[s, w]
                                some |= keep[w]
                    if some == 0:
                        continue
                if n == capacity:
                    capacity *= 2
                    grown_l = np.empty(capacity, np.int32)
                    grown_l[:n] = out_l
                    out_l = grown_l
                    grown_r = np.empty(capacity, np.int32)
                    grown_r[:n] = out_r
                    out_r = grown_r
                    grown_q = np.empty((capacity, words), np.uint64)
                    grown_q[:n] = out_q
                    out_q = grown_q
                out_l[n] = i
                out_r[n] = k
                for w in range(words):
                    out_q[n, w] = keep[w]
                n += 1
            i += 1
        j = j_end
    return out_l[:n].copy(), out_r[:n].copy(), out_q[:n].copy()
