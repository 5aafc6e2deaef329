"""Windows over slices, for all groups at once: three ways to combine, equal in result.

values[s, g] is the partial of slice s and group g; window w takes the slices [first[w], end[w]); both bounds ascend.

    combine_all   every slice of every window again. Best for few slices per window
    subtract      take away the slices that left, add those that came: about 2 steps per window, for sums only
    two_stacks    (Hammer Slide's, with a slice in place of a tuple) the front stack holds, for each slice up to a
                  border, the combination from there to the border; behind it one running value. A window is one front
                  row and the running value; when it has moved beyond the border, a new front is scanned, from the end
                  of the window backwards. About 3 steps, amortised, for anything associative

One step is one row: a loop over groups that lie side by side in memory, which compiles to vector instructions. Groups
are taken in blocks, so that the rows of a window stay in the cache.

Where a group has nothing in a slice, the cell must hold the neutral element (`neutral`): 0 for sums; for minima the
greatest value, which of doubles is NaN, as everywhere here; for maxima the smallest. Integer sums wrap: the caller
shows that they fit. Sums of doubles carry what rounding took from them (see runtime.kernels.folding), so that all ways
agree; `subtract` for them wants finite numbers, and adds up anew after as many windows as a window has slices, so that
nothing can accumulate.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

from runtime.kernels.kinds import DOUBLE_TABLE, INTS, MASK_TABLE, TABLE

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Table = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

SUM, MIN, MAX = 0, 1, 2
_BLOCK = 1024
_TABLES = [(TABLE, INTS, INTS, nb.int64), (DOUBLE_TABLE, INTS, INTS, nb.int64)]
_PAIRS = [(DOUBLE_TABLE, DOUBLE_TABLE, INTS, INTS)]


def neutral(operation: int, dtype: npt.DTypeLike) -> Any:
    """What an empty cell must hold."""
    if operation == SUM:
        return 0
    if np.dtype(dtype).kind == "f":
        return np.nan if operation == MIN else -np.inf
    return np.iinfo(np.dtype(dtype)).max if operation == MIN else np.iinfo(np.dtype(dtype)).min


@nb.njit([(MASK_TABLE, INTS, INTS)], cache=True, nogil=True)
def present_in(present: Mask, first: I64, end: I64) -> Mask:
    """Per window and group: does the group have anything in one of its slices? (By counting, as in `subtract`.)"""
    windows, groups = first.shape[0], present.shape[1]
    out = np.empty((windows, groups), np.bool_)
    for a in range(0, groups, _BLOCK):
        b = min(a + _BLOCK, groups)
        count = np.zeros(b - a, np.int32)
        left = right = 0
        for w in range(windows):
            if first[w] >= right:
                left = right = first[w]
                count[:] = 0
            for s in range(right, end[w]):
                for g in range(b - a):
                    count[g] += np.int32(present[s, a + g])
            for s in range(left, first[w]):
                for g in range(b - a):
                    count[g] -= np.int32(present[s, a + g])
            left, right = first[w], max(right, end[w])
            for g in range(b - a):
                out[w, a + g] = count[g] > 0
    return out


@nb.njit(cache=True, nogil=True)
def _combine(into: Table, left: Table, right: Table, operation: int) -> None:
    """into[g] = left[g] combined with right[g]; `into` may be one of them."""
    n = into.shape[0]
    if operation == SUM:
        for g in range(n):
            into[g] = left[g] + right[g]
    elif operation == MIN:
        for g in range(n):
            l, r = left[g], right[g]
            into[g] = r if (r < l) | (l != l) else l
    else:
        for g in range(n):
            l, r = left[g], right[g]
            into[g] = r if (r > l) | (r != r) else l


@nb.njit(_TABLES, cache=True, nogil=True)
def combine_all(values: Table, first: I64, end: I64, operation: int) -> Table:
    windows, groups = first.shape[0], values.shape[1]
    out = np.zeros((windows, groups), values.dtype)
    for a in range(0, groups, _BLOCK):
        b = min(a + _BLOCK, groups)
        for w in range(windows):
            if first[w] >= end[w]:
                continue
            row = out[w, a:b]
            row[:] = values[first[w], a:b]
            for s in range(first[w] + 1, end[w]):
                _combine(row, row, values[s, a:b], operation)
    return out


@nb.njit([(TABLE, INTS, INTS)], cache=True, nogil=True)
def subtract(values: I64, first: I64, end: I64) -> I64:
    """Sums of integers only."""
    windows, groups = first.shape[0], values.shape[1]
    out = np.zeros((windows, groups), np.int64)
    for a in range(0, groups, _BLOCK):
        b = min(a + _BLOCK, groups)
        running = np.zeros(b - a, np.int64)
        left = right = 0
        for w in range(windows):
            if first[w] >= right:
                left = right = first[w]
                running[:] = 0
            for s in range(right, end[w]):
                _combine(running, running, values[s, a:b], SUM)
            for s in range(left, first[w]):
                for g in range(b - a):
                    running[g] -= values[s, a + g]
            left, right = first[w], max(right, end[w])
            out[w, a:b] = running
    return out


@nb.njit(cache=True, nogil=True)
def _longest(first: I64, end: I64) -> int:
    longest = np.int64(0)
    for w in range(first.shape[0]):
        longest = max(longest, end[w] - first[w])
    return longest  # type: ignore[return-value]


@nb.njit(_TABLES, cache=True, nogil=True)
def two_stacks(values: Table, first: I64, end: I64, operation: int) -> Table:
    windows, groups = first.shape[0], values.shape[1]
    out = np.zeros((windows, groups), values.dtype)
    stack = np.empty((_longest(first, end), min(groups, _BLOCK)), values.dtype)
    back = np.empty(min(groups, _BLOCK), values.dtype)
    for a in range(0, groups, _BLOCK):
        b = min(a + _BLOCK, groups)
        n = b - a
        bottom = border = right = np.int64(0)  # front rows are those of slices [bottom, border); behind it up to right
        for w in range(windows):
            if first[w] >= end[w]:
                continue
            if first[w] >= border:  # the flip
                bottom, border, right = first[w], end[w], end[w]
                stack[border - 1 - bottom, :n] = values[border - 1, a:b]
                for s in range(border - 2, bottom - 1, -1):
                    _combine(stack[s - bottom, :n], values[s, a:b], stack[s + 1 - bottom, :n], operation)
            for s in range(right, end[w]):
                if s == border:
                    back[:n] = values[s, a:b]
                else:
                    _combine(back[:n], back[:n], values[s, a:b], operation)
            right = max(right, end[w])
            if right > border:
                _combine(out[w, a:b], stack[first[w] - bottom, :n], back[:n], operation)
            else:
                out[w, a:b] = stack[first[w] - bottom, :n]
    return out


# -- sums of doubles: pairs of (sum, what rounding took from it) --------------------------------------------------


@nb.njit(cache=True, nogil=True)
def _add(sums: F64, rests: F64, values: F64, values_rests: F64, sign: float) -> None:
    """Adds sign * (values, values_rests)."""
    for g in range(sums.shape[0]):
        x = sign * values[g]
        s = sums[g]
        t = s + x
        back = t - s
        rests[g] += (s - (t - back)) + (x - back) + sign * values_rests[g]
        sums[g] = t


@nb.njit(cache=True, nogil=True)
def _settle(sums: F64, rests: F64) -> None:
    """Where a sum left the numbers, nothing is left to correct."""
    for w in range(sums.shape[0]):
        for g in range(sums.shape[1]):
            if not np.isfinite(sums[w, g]):
                rests[w, g] = 0.0


@nb.njit(_PAIRS, cache=True, nogil=True)
def combine_all_doubles(values: F64, rests: F64, first: I64, end: I64):  # type: ignore[no-untyped-def]
    windows, groups = first.shape[0], values.shape[1]
    out = np.zeros((windows, groups), np.float64)
    rest = np.zeros((windows, groups), np.float64)
    for a in range(0, groups, _BLOCK):
        b = min(a + _BLOCK, groups)
        for w in range(windows):
            for s in range(first[w], end[w]):
                _add(out[w, a:b], rest[w, a:b], values[s, a:b], rests[s, a:b], 1.0)
    _settle(out, rest)
    return out, rest


@nb.njit(_PAIRS, cache=True, nogil=True)
def subtract_doubles(values: F64, rests: F64, first: I64, end: I64):  # type: ignore[no-untyped-def]
    """All values must be finite: an infinity would never leave."""
    windows, groups = first.shape[0], values.shape[1]
    out = np.zeros((windows, groups), np.float64)
    rest = np.zeros((windows, groups), np.float64)
    for a in range(0, groups, _BLOCK):
        b = min(a + _BLOCK, groups)
        sums = np.zeros(b - a, np.float64)
        lost = np.zeros(b - a, np.float64)
        left = right = 0
        since = 0
        for w in range(windows):
            since += 1
            if first[w] >= right or since > end[w] - first[w]:
                left = right = first[w]
                sums[:] = 0.0
                lost[:] = 0.0
                since = 0
            for s in range(right, end[w]):
                _add(sums, lost, values[s, a:b], rests[s, a:b], 1.0)
            for s in range(left, first[w]):
                _add(sums, lost, values[s, a:b], rests[s, a:b], -1.0)
            left, right = first[w], max(right, end[w])
            out[w, a:b] = sums
            rest[w, a:b] = lost
    return out, rest


@nb.njit(_PAIRS, cache=True, nogil=True)
def two_stacks_doubles(values: F64, rests: F64, first: I64, end: I64):  # type: ignore[no-untyped-def]
    windows, groups = first.shape[0], values.shape[1]
    out = np.zeros((windows, groups), np.float64)
    rest = np.zeros((windows, groups), np.float64)
    depth, width = _longest(first, end), min(groups, _BLOCK)
    sums, lost = np.empty((depth, width), np.float64), np.empty((depth, width), np.float64)
    back, back_lost = np.zeros(width, np.float64), np.zeros(width, np.float64)
    for a in range(0, groups, _BLOCK):
        b = min(a + _BLOCK, groups)
        n = b - a
        bottom = border = right = np.int64(0)
        for w in range(windows):
            if first[w] >= end[w]:
                continue
            if first[w] >= border:
                bottom, border, right = first[w], end[w], end[w]
                back[:] = 0.0
                back_lost[:] = 0.0
                for s in range(border - 1, bottom - 1, -1):
                    row = s - bottom
                    if s == border - 1:
                        sums[row, :n] = values[s, a:b]
                        lost[row, :n] = rests[s, a:b]
                    else:
                        sums[row, :n] = sums[row + 1, :n]
                        lost[row, :n] = lost[row + 1, :n]
                        _add(sums[row, :n], lost[row, :n], values[s, a:b], rests[s, a:b], 1.0)
            for s in range(right, end[w]):
                _add(back[:n], back_lost[:n], values[s, a:b], rests[s, a:b], 1.0)
            right = max(right, end[w])
            out[w, a:b] = sums[first[w] - bottom, :n]
            rest[w, a:b] = lost[first[w] - bottom, :n]
            _add(out[w, a:b], rest[w, a:b], back[:n], back_lost[:n], 1.0)
    _settle(out, rest)
    return out, rest
