"""Folds of numbers: entries order[offsets[g]:offsets[g + 1]] become one, for every group g.

`keep` says which entries have a value; empty, it says that all have. Sums of integers are exact: either the caller has
shown that no group can leave 64 bits (`sum_short`), or 128 bits are kept in two numbers (`sum_wide`), which is enough
for 2**64 values. Sums of doubles keep the rounding errors of all additions in a second double (Neumaier's and Knuth's
compensated sum), so the result is, but for the rarest cases, the correctly rounded sum, whatever the order: two plans
that cut time into different slices give the same row. Moments are (count, mean, sum of squared distances), combined by
Chan's formula.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from runtime.kernels.kinds import DOUBLES, INTS, MASK, SHORTS

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@nb.njit([(SHORTS, INTS, MASK)], cache=True, nogil=True)
def count_kept(order: I32, offsets: I64, keep: Mask) -> I64:
    """How many entries of each group have a value."""
    out = np.empty(offsets.shape[0] - 1, np.int64)
    for g in range(out.shape[0]):
        n = np.int64(0)
        for i in range(offsets[g], offsets[g + 1]):
            n += np.int64(keep[order[i]])
        out[g] = n
    return out


@nb.njit([(SHORTS, INTS, INTS, MASK)], cache=True, nogil=True)
def sum_short(order: I32, offsets: I64, values: I64, keep: Mask):  # type: ignore[no-untyped-def]
    """(sums, which groups have a value); the caller has shown that no sum leaves 64 bits."""
    groups = offsets.shape[0] - 1
    out = np.empty(groups, np.int64)
    some = np.empty(groups, np.bool_)
    for g in range(groups):
        s = np.int64(0)
        if keep.shape[0] == 0:
            for i in range(offsets[g], offsets[g + 1]):
                s += values[order[i]]
            some[g] = offsets[g + 1] > offsets[g]
        else:
            n = np.int64(0)
            for i in range(offsets[g], offsets[g + 1]):
                k = np.int64(keep[order[i]])
                s += values[order[i]] & -k  # no branch: whether a filter lets something pass cannot be guessed
                n += k
            some[g] = n > 0
        out[g] = s
    return out, some


@nb.njit([(SHORTS, INTS, INTS, INTS, MASK)], cache=True, nogil=True)
def sum_wide(order: I32, offsets: I64, low: I64, high: I64, keep: Mask):  # type: ignore[no-untyped-def]
    """(low, high words of 128-bit sums, which groups have a value). `high` empty: values of 64 bits."""
    groups = offsets.shape[0] - 1
    out_low = np.empty(groups, np.int64)
    out_high = np.empty(groups, np.int64)
    some = np.empty(groups, np.bool_)
    for g in range(groups):
        l = np.uint64(0)
        h = np.int64(0)
        any_ = False
        for i in range(offsets[g], offsets[g + 1]):
            e = order[i]
            if keep.shape[0] > 0 and not keep[e]:
                continue
            any_ = True
            x = np.uint64(low[e])
            l += x
            h += (high[e] if high.shape[0] > 0 else low[e] >> 63) + np.int64(l < x)
        out_low[g] = np.int64(l)
        out_high[g] = h
        some[g] = any_
    return out_low, out_high, some


@nb.njit([(SHORTS, INTS, DOUBLES, DOUBLES, MASK)], cache=True, nogil=True)
def sum_doubles(order: I32, offsets: I64, values: F64, rests: F64, keep: Mask):  # type: ignore[no-untyped-def]
    """(sums, what rounding took from them, which groups have a value). `rests` empty: there are none."""
    groups = offsets.shape[0] - 1
    out = np.empty(groups, np.float64)
    rest = np.empty(groups, np.float64)
    some = np.empty(groups, np.bool_)
    for g in range(groups):
        s = 0.0
        r = 0.0
        any_ = False
        for i in range(offsets[g], offsets[g + 1]):
            e = order[i]
            if keep.shape[0] > 0 and not keep[e]:
                continue
            any_ = True
            x = values[e]
            t = s + x
            back = t - s
            r += (s - (t - back)) + (x - back)
            s = t
            if rests.shape[0] > 0:
                r += rests[e]
        out[g] = s
        rest[g] = r if np.isfinite(s) else 0.0
        some[g] = any_
    return out, rest, some


@nb.njit([(SHORTS, INTS, DOUBLES, MASK)], cache=True, nogil=True)
def moments_of(order: I32, offsets: I64, values: F64, keep: Mask):  # type: ignore[no-untyped-def]
    """(counts, means, sums of squared distances from the mean) of single values, in two passes over each group."""
    groups = offsets.shape[0] - 1
    counts = np.empty(groups, np.int64)
    means = np.empty(groups, np.float64)
    m2s = np.empty(groups, np.float64)
    for g in range(groups):
        n = 0
        s = 0.0
        for i in range(offsets[g], offsets[g + 1]):
            e = order[i]
            if keep.shape[0] == 0 or keep[e]:
                n += 1
                s += values[e]
        mean = s / n if n > 0 else 0.0
        squares = 0.0
        left = 0.0
        for i in range(offsets[g], offsets[g + 1]):
            e = order[i]
            if keep.shape[0] == 0 or keep[e]:
                d = values[e] - mean
                squares += d * d
                left += d
        counts[g] = n
        means[g] = mean + left / n if n > 0 else 0.0
        m2s[g] = max(squares - left * left / n, 0.0) if n > 1 else squares
    return counts, means, m2s


@nb.njit([(SHORTS, INTS, INTS, DOUBLES, DOUBLES)], cache=True, nogil=True)
def combine_moments(order: I32, offsets: I64, counts: I64, means: F64, m2s: F64):  # type: ignore[no-untyped-def]
    """Chan's formula, entry by entry; entries of no value are passed over."""
    groups = offsets.shape[0] - 1
    out_n = np.empty(groups, np.int64)
    out_mean = np.empty(groups, np.float64)
    out_m2 = np.empty(groups, np.float64)
    for g in range(groups):
        n = np.int64(0)
        mean = 0.0
        m2 = 0.0
        for i in range(offsets[g], offsets[g + 1]):
            e = order[i]
            if counts[e] == 0:
                continue
            if n == 0:
                n, mean, m2 = counts[e], means[e], m2s[e]
                continue
            both = n + counts[e]
            d = means[e] - mean
            share = counts[e] / both
            m2 += m2s[e] + d * d * (n * share)
            mean += d * share
            n = both
        out_n[g] = n
        out_mean[g] = mean
        out_m2[g] = m2
    return out_n, out_mean, out_m2
