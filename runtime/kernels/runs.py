"""Sorted runs with counts: all the values of a group, run-length encoded, for medians and distinct counts.

Runs are compressed sparse rows: entry e has keys[starts[e]:starts[e + 1]], ascending and distinct, and of each how
often. Keys are 64-bit numbers that keep the order of the values (runtime.aggregates.keys). Merging k runs costs
log2(k) passes; what is equal becomes one on the way, so a run never holds more than there are distinct values.
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
def runs_of(order: I32, offsets: I64, keys: I64, keep: Mask):  # type: ignore[no-untyped-def]
    """(starts, keys, counts) of each group of single values. `keep` empty: all have a value."""
    groups = offsets.shape[0] - 1
    total = offsets[groups] - offsets[0]
    starts = np.zeros(groups + 1, np.int64)
    out = np.empty(total, np.int64)
    counts = np.empty(total, np.int64)
    scratch = np.empty(total, np.int64)
    at = 0
    for g in range(groups):
        n = 0
        sorted_ = True
        for i in range(offsets[g], offsets[g + 1]):
            e = order[i]
            if keep.shape[0] == 0 or keep[e]:
                scratch[n] = keys[e]
                sorted_ = sorted_ and (n == 0 or scratch[n - 1] <= scratch[n])
                n += 1
        if not sorted_:
            scratch[:n].sort()
        for i in range(n):
            if i > 0 and scratch[i] == scratch[i - 1]:
                counts[at - 1] += 1
            else:
                out[at] = scratch[i]
                counts[at] = 1
                at += 1
        starts[g + 1] = at
    return starts, out[:at].copy(), counts[:at].copy()


@nb.njit([(SHORTS, INTS, INTS, INTS, INTS)], cache=True, nogil=True)
def merge_runs(order: I32, offsets: I64, starts: I64, keys: I64, counts: I64):  # type: ignore[no-untyped-def]
    """(starts, keys, counts): the runs of each group's entries as one."""
    groups = offsets.shape[0] - 1
    longest = np.int64(0)
    total = np.int64(0)
    for g in range(groups):
        length = np.int64(0)
        for i in range(offsets[g], offsets[g + 1]):
            length += starts[order[i] + 1] - starts[order[i]]
        longest = max(longest, length)
        total += length
    out_starts = np.zeros(groups + 1, np.int64)
    out_keys = np.empty(total, np.int64)
    out_counts = np.empty(total, np.int64)
    a_keys, b_keys = np.empty(longest, np.int64), np.empty(longest, np.int64)
    a_counts, b_counts = np.empty(longest, np.int64), np.empty(longest, np.int64)
    bounds = np.empty(longest + 1, np.int64)
    at = 0
    for g in range(groups):
        runs = 0
        size = 0
        bounds[0] = 0
        for i in range(offsets[g], offsets[g + 1]):
            e = order[i]
            if starts[e] == starts[e + 1]:
                continue
            for k in range(starts[e], starts[e + 1]):
                a_keys[size] = keys[k]
                a_counts[size] = counts[k]
                size += 1
            runs += 1
            bounds[runs] = size
        while runs > 1:
            merged = 0
            size = 0
            for r in range(0, runs, 2):
                i, i_end = bounds[r], bounds[r + 1]
                j, j_end = i_end, bounds[min(r + 2, runs)]
                while i < i_end or j < j_end:
                    from_left = j >= j_end or (i < i_end and a_keys[i] <= a_keys[j])
                    from_right = i >= i_end or (j < j_end and a_keys[j] <= a_keys[i])
                    n = np.int64(0)
                    if from_left:
                        b_keys[size] = a_keys[i]
                        n += a_counts[i]
                        i += 1
                    if from_right:
                        b_keys[size] = a_keys[j]
                        n += a_counts[j]
                        j += 1
                    b_counts[size] = n
                    size += 1
                merged += 1
                bounds[merged] = size
            runs = merged
            a_keys, b_keys = b_keys, a_keys
            a_counts, b_counts = b_counts, a_counts
        for k in range(size):
            out_keys[at] = a_keys[k]
            out_counts[at] = a_counts[k]
            at += 1
        out_starts[g + 1] = at
    return out_starts, out_keys[:at].copy(), out_counts[:at].copy()


@nb.njit([(SHORTS, INTS)], cache=True, nogil=True)
def list_places(rows: I32, starts: I64):  # type: ignore[no-untyped-def]
    """(starts, places): where the elements of the given rows' lists lie, one list after the other."""
    out_starts = np.zeros(rows.shape[0] + 1, np.int64)
    for i in range(rows.shape[0]):
        out_starts[i + 1] = out_starts[i] + starts[rows[i] + 1] - starts[rows[i]]
    places = np.empty(out_starts[rows.shape[0]], np.int64)
    at = 0
    for i in range(rows.shape[0]):
        for k in range(starts[rows[i]], starts[rows[i] + 1]):
            places[at] = k
            at += 1
    return out_starts, places


@nb.njit([(INTS, INTS, nb.float64)], cache=True, nogil=True)
def quantile_places(starts: I64, counts: I64, p: float):  # type: ignore[no-untyped-def]
    """Per entry (place below, place above, how far between) of the p-quantile; places -1 where there is no value.

    Of n values in order it lies at position p * (n - 1), as percentile_cont says."""
    entries = starts.shape[0] - 1
    below = np.full(entries, -1, np.int64)
    above = np.full(entries, -1, np.int64)
    between = np.zeros(entries, np.float64)
    for e in range(entries):
        n = np.int64(0)
        for k in range(starts[e], starts[e + 1]):
            n += counts[k]
        if n == 0:
            continue
        position = p * (n - 1)
        lower = np.int64(np.floor(position))
        upper = np.int64(np.ceil(position))
        between[e] = position - lower
        seen = np.int64(0)
        for k in range(starts[e], starts[e + 1]):
            seen += counts[k]
            if below[e] < 0 and seen > lower:
                below[e] = k
            if seen > upper:
                above[e] = k
                break
    return below, above, between
