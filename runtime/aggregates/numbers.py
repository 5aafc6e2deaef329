"""Count, sum, moments: the partials that are sums.

Parts: count (n); sum of integers (low word, high word if one does not fit 64 bits); sum of doubles (sum, what rounding
took from it, if there were additions); moments (n, mean, sum of squared distances). A sum over no value is not valid.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optimizer.model.types import INTEGERS, ColumnType
from runtime.aggregates.partials import EVERY, I64, State, high_word, keep_of, some
from runtime.columns.column import ColumnData, Mask
from runtime.kernels import folding

I32 = npt.NDArray[np.int32]
F64 = npt.NDArray[np.float64]
_BIGINT, _DOUBLE = ColumnType.BIGINT, ColumnType.DOUBLE
_FAR = (1 << 63) - 1
_SPLIT = float((1 << 27) + 1)


def _bigints(values: I64) -> ColumnData:
    return ColumnData(_BIGINT, values)


def longest(offsets: I64) -> int:
    return int(np.diff(offsets).max(initial=0))


def greatest(values: I64) -> int:
    """The greatest absolute value."""
    return max(-int(values.min(initial=0)), int(values.max(initial=0)))


# -- count --------------------------------------------------------------------------------------------------------


def lift_count(keep: Mask | None, rows: int) -> State:
    return State((_bigints(np.ones(rows, np.int64) if keep is None else keep.astype(np.int64)),))


def lift_fold_count(keep: Mask | None, order: I32, offsets: I64) -> State:
    return State((_bigints(np.diff(offsets) if keep is None else folding.count_kept(order, offsets, keep)),))


def fold_count(state: State, order: I32, offsets: I64) -> State:
    counts = state.parts[0].values
    if greatest(counts) * longest(offsets) <= _FAR:
        return State((_bigints(folding.sum_short(order, offsets, counts, EVERY)[0]),))
    low, high, _ = folding.sum_wide(order, offsets, counts, np.empty(0, np.int64), EVERY)
    return State((_bigints(_at_most(low, high)),))


def scale_count(state: State, times: I64) -> State:
    return State((_bigints(multiplied(state.parts[0].values, times)),))


def multiplied(counts: I64, times: I64) -> I64:
    """A number of combinations that does not fit 64 bits is the greatest that does: few streams with one hot key have
    as many, and nothing is laid out for them."""
    if greatest(counts) * greatest(times) <= _FAR:
        return counts * times
    return _at_most(*_wide_product(counts, np.zeros_like(counts), times))


def _at_most(low: I64, high: I64) -> I64:
    return np.where((high == 0) & (low >= 0), low, _FAR)


# -- sum ----------------------------------------------------------------------------------------------------------


def lift_sum(argument: ColumnData, keep: Mask | None) -> State:
    if argument.type in INTEGERS:
        return State((ColumnData(_BIGINT, np.ascontiguousarray(argument.values, np.int64), keep),))
    return State((ColumnData(_DOUBLE, np.ascontiguousarray(argument.values, np.float64), keep),))


def fold_sum(state: State, order: I32, offsets: I64) -> State:
    first = state.parts[0]
    keep = keep_of(first.valid)
    if first.type is _DOUBLE:
        rests = state.parts[1].values if len(state.parts) > 1 else np.empty(0)
        values, rest, there = folding.sum_doubles(order, offsets, first.values, rests, keep)
        return State((ColumnData(_DOUBLE, values, some(there)), ColumnData(_DOUBLE, rest)))
    if len(state.parts) == 1 and greatest(first.values) * longest(offsets) <= _FAR:
        values, there = folding.sum_short(order, offsets, first.values, keep)
        return State((ColumnData(_BIGINT, values, some(there)),))
    highs = state.parts[1].values if len(state.parts) > 1 else np.empty(0, np.int64)
    low, high, there = folding.sum_wide(order, offsets, first.values, highs, keep)
    return _narrowed(low, high, some(there))


def scale_sum(state: State, times: I64) -> State:
    first = state.parts[0]
    valid = some(first.mask & (times > 0))
    if first.type is _DOUBLE:
        with np.errstate(all="ignore"):
            product, rest = _exact_product(first.values, times.astype(np.float64))
            rest += 0.0 if len(state.parts) == 1 else state.parts[1].values * times
            rest = np.where(np.isfinite(product) & np.isfinite(rest), rest, 0.0)
        return State((ColumnData(_DOUBLE, np.where(times > 0, product, 0.0), valid), ColumnData(_DOUBLE, rest)))
    if len(state.parts) == 1 and greatest(first.values) * greatest(times) <= _FAR:
        return State((ColumnData(_BIGINT, first.values * times, valid),))
    high = state.parts[1] if len(state.parts) > 1 else high_word(first)
    return _narrowed(*_wide_product(first.values, high.values, times), valid)


def _narrowed(low: I64, high: I64, valid: Mask | None) -> State:
    first = ColumnData(_BIGINT, low, valid)
    if (high == low >> np.int64(63)).all():
        return State((first,))
    return State((first, _bigints(high)))


def _exact_product(a: F64, b: F64) -> tuple[F64, F64]:
    """The product of doubles and what rounding took from it: halves of the digits, as on paper (Dekker)."""
    product = a * b
    a1, b1 = (x * _SPLIT - (x * _SPLIT - x) for x in (a, b))
    a0, b0 = a - a1, b - b1
    return product, ((a1 * b1 - product) + a1 * b0 + a0 * b1) + a0 * b0


def _wide_product(low: I64, high: I64, times: I64) -> tuple[I64, I64]:
    """128 bits times 63 bits, the lower 128 of it: halves of words, as on paper."""
    half, bits = np.uint64(0xFFFFFFFF), np.uint64(32)
    a, t = low.astype(np.uint64), times.astype(np.uint64)
    a0, a1, t0, t1 = a & half, a >> bits, t & half, t >> bits
    with np.errstate(over="ignore"):
        low_low = a0 * t0
        middle = a1 * t0 + (low_low >> bits)
        other = a0 * t1 + (middle & half)
        carry = a1 * t1 + (middle >> bits) + (other >> bits)
        return (a * t).astype(np.int64), (high.astype(np.uint64) * t + carry).astype(np.int64)


# -- moments ------------------------------------------------------------------------------------------------------


def _moments(n: I64, mean: npt.NDArray[np.float64], m2: npt.NDArray[np.float64]) -> State:
    return State((_bigints(n), ColumnData(_DOUBLE, mean), ColumnData(_DOUBLE, m2)))


def lift_moments(argument: ColumnData, keep: Mask | None) -> State:
    values = np.ascontiguousarray(argument.values, np.float64)
    with np.errstate(invalid="ignore"):  # zero, but NaN for infinities, as the distance from their mean is
        if keep is None:
            return _moments(np.ones(len(values), np.int64), values, values - values)
        return _moments(keep.astype(np.int64), np.where(keep, values, 0.0), np.where(keep, values - values, 0.0))


def lift_fold_moments(argument: ColumnData, keep: Mask | None, order: I32, offsets: I64) -> State:
    values = np.ascontiguousarray(argument.values, np.float64)
    return _moments(*folding.moments_of(order, offsets, values, keep_of(keep)))


def fold_moments(state: State, order: I32, offsets: I64) -> State:
    return _moments(*folding.combine_moments(order, offsets, *(p.values for p in state.parts)))


def scale_moments(state: State, times: I64) -> State:
    """The same values so often: the mean stays, squared distances add up."""
    n, mean, m2 = (p.values for p in state.parts)
    with np.errstate(invalid="ignore"):
        return _moments(multiplied(n, times), mean, np.where(times > 0, m2 * times, 0.0))
