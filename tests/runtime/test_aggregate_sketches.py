"""APPROX_COUNT_DISTINCT: its error is the one that is promised, and merging loses nothing."""

from __future__ import annotations

import numpy as np
import pytest

from optimizer.model.types import ColumnType
from runtime.aggregates.components import components_of, lower
from runtime.aggregates.states import concat, fold, get_state, lift, lift_fold, put_state, scale
from runtime.buckets.file import pack, parse
from runtime.columns.column import ColumnData
from runtime.kernels.sketches import REGISTERS
from tests.runtime.aggregates import aggregate, column, values_of

ERROR = 1.04 / REGISTERS**0.5


def sketch(values, order, offsets, keep=None):
    (c,) = components_of(aggregate("APPROX_COUNT_DISTINCT", [values.type]))
    return c, lift_fold(c, (values,), keep, np.zeros(len(values), np.int64), order, offsets)


def numbers(state, c):
    agg = aggregate("APPROX_COUNT_DISTINCT", c.types)
    return np.array(values_of(lower(agg, {c: state})), float)


@pytest.mark.parametrize("distinct", [1, 3, 30, 300, 1000, 3000, 10_000, 100_000])
def test_the_error_is_what_is_promised(distinct):
    """A hundred sets: on average right to a third of the standard error, none further off than five."""
    sets = 100 if distinct <= 10_000 else 20
    values = ColumnData(ColumnType.BIGINT, np.arange(sets * distinct) * 7919 - 5)
    offsets = np.arange(sets + 1, dtype=np.int64) * distinct
    c, state = sketch(values, np.arange(sets * distinct, dtype=np.int32), offsets)
    found = numbers(state, c) / distinct - 1
    assert abs(found.mean()) <= 5 * ERROR / sets**0.5
    assert found.std() <= 1.35 * ERROR and abs(found).max() <= 5 * ERROR
    sizes = np.diff(state.offsets)
    assert sizes.max() <= min(distinct, REGISTERS)


@pytest.mark.parametrize("seed", range(4))
def test_any_cut_into_parts_gives_the_same_sketch(seed):
    random = np.random.default_rng(seed)
    values = ColumnData(ColumnType.BIGINT, random.integers(0, [5, 400, 4000, 40_000][seed], 8000))
    keep = random.random(8000) < 0.7
    whole_order = np.arange(8000, dtype=np.int32)
    c, whole = sketch(values, whole_order, np.array([0, 8000], np.int64), keep)
    lifted = lift(c, (values,), keep, np.zeros(8000, np.int64))
    cuts = np.unique(np.concatenate(([0, 8000], random.integers(0, 8000, 9)))).astype(np.int64)
    parts = fold(c, lifted, random.permutation(8000).astype(np.int32), cuts)
    arrays: dict[str, object] = {}
    put_state(arrays, "s", parts)
    assert sum(a.nbytes for n, a in arrays.items() if n == "s0") <= 2 * len(parts.parts[0])
    file = parse("f", "p", pack("f", "p", {}, arrays))
    parts = concat([get_state(file, "s", c, 3), get_state(file, "s", c, 0, 3)])
    parts = scale(c, parts, np.arange(1, len(parts) + 1))
    merged = fold(c, parts, np.arange(len(parts), dtype=np.int32), np.array([0, len(parts)], np.int64))
    assert merged.parts[0].values.tolist() == whole.parts[0].values.tolist()


def test_all_types_and_nothing():
    order, offsets = np.arange(6, dtype=np.int32), np.array([0, 6, 6], np.int64)
    cases = [
        (column(ColumnType.DOUBLE, [0.0, -0.0, float("nan"), -float("nan"), 1.0, None]), 3),
        (column(ColumnType.STRING, ["a", "b", None, "a", "", "b"], ["b", "a", "a", ""]), 3),
        (column(ColumnType.BOOLEAN, [True, False, None, True, True, False]), 2),
        (column(ColumnType.INT, [1, 1, 1, 1, 1, 1]), 1),
    ]
    for values, wanted in cases:
        c, state = sketch(values, order, offsets, values.valid)
        assert numbers(state, c).tolist() == [wanted, 0]
