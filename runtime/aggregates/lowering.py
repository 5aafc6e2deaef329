"""From partials to values: the last step of an aggregate, one value per entry, NULL over no value at all."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optimizer.model.types import ColumnType
from runtime.aggregates.partials import State, some
from runtime.columns.column import ColumnData, Mask
from runtime.kernels.runs import quantile_places
from runtime.kernels.sketches import estimates


def _fits(state: State) -> Mask | None:
    """Which integer sums fit 64 bits; None: all."""
    if len(state.parts) == 1:
        return None
    low, high = state.parts
    return some(high.values == low.values >> np.int64(63))


def total(state: State) -> ColumnData:
    """SUM."""
    first = state.parts[0]
    if first.type is ColumnType.DOUBLE:
        return ColumnData(first.type, _doubles(state), first.valid)
    fits = _fits(state)
    if fits is None:
        return first
    return ColumnData(first.type, np.where(fits, first.values, 0), first.mask & fits)


def overflowed(state: State) -> int:
    if state.parts[0].type is ColumnType.DOUBLE:
        return 0
    fits = _fits(state)
    return 0 if fits is None else int((state.parts[0].mask & ~fits).sum())


def _doubles(state: State) -> npt.NDArray[np.float64]:
    """Sums as doubles: of doubles with what rounding took, of integers from both words."""
    values = state.parts[0].values
    if len(state.parts) == 1:
        return values.astype(np.float64)
    rest = state.parts[1].values
    if state.parts[0].type is ColumnType.DOUBLE:
        doubles: npt.NDArray[np.float64] = values + rest
        return doubles
    wide = values.astype(np.uint64).astype(np.float64) + rest * 2.0**64
    return np.where(rest == values >> np.int64(63), values.astype(np.float64), wide)


def mean(sums: State, counts: State) -> ColumnData:
    """AVG."""
    n = counts.parts[0].values
    with np.errstate(all="ignore"):
        return _defined(_doubles(sums) / np.maximum(n, 1), n > 0)


def chosen(state: State) -> ColumnData:
    """FIRST, LAST, ARG_MIN, ARG_MAX: the part after those that decided."""
    return state.parts[-1]


def spread(state: State, less: int, *, root: bool) -> ColumnData:
    """VARIANCE or STDDEV; `less`: 1 for a sample, 0 for all there is."""
    n, _, m2 = (p.values for p in state.parts)
    with np.errstate(all="ignore"):
        values = m2 / np.maximum(n - less, 1)
        return _defined(np.sqrt(values) if root else values, n > less)


def quantile(state: State, p: float) -> ColumnData:
    """Between two neighbours a and b it is a + (b - a) * share; a itself if they are equal, so that infinities stay."""
    assert state.offsets is not None
    values, counts = state.parts
    below, above, share = quantile_places(state.offsets, counts.values, p)
    there = below >= 0
    doubles = values.values.astype(np.float64)
    if not len(doubles):
        return _defined(np.zeros(len(below)), there)
    a, b = doubles[below], doubles[above]
    with np.errstate(all="ignore"):
        result = a + (b - a) * share
        far = np.isfinite(a) & np.isfinite(b) & ~np.isfinite(b - a)
        result = np.where(far, a * (1 - share) + b * share, result)
    return _defined(np.where((a == b) | (share == 0), a, result), there)


def distinct(state: State) -> ColumnData:
    """COUNT(DISTINCT): a run holds every value once."""
    assert state.offsets is not None
    return ColumnData(ColumnType.BIGINT, np.diff(state.offsets))


def estimate(state: State) -> ColumnData:
    """APPROX_COUNT_DISTINCT."""
    assert state.offsets is not None
    return ColumnData(ColumnType.BIGINT, estimates(state.offsets, state.parts[0].values))


def _defined(values: npt.NDArray[np.float64], there: Mask) -> ColumnData:
    return ColumnData(ColumnType.DOUBLE, np.where(there, values, 0.0), some(there))
