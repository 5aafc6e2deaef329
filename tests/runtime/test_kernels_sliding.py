"""Windows over slices: all ways against plain Python, for any windows whose bounds ascend; count windows likewise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.kernels import count_windows, sliding
from runtime.kernels.sliding import MAX, MIN, SUM


@st.composite
def windows(draw, slices):
    """Ascending bounds: gaps, overlaps, jumps, empty windows."""
    n = draw(st.integers(0, 12))
    first = sorted(draw(st.lists(st.integers(0, slices), min_size=n, max_size=n)))
    end = sorted(draw(st.lists(st.integers(0, slices), min_size=n, max_size=n)))
    end = [max(a, b) for a, b in zip(first, end, strict=True)]
    return np.array(first, np.int64), np.array(end, np.int64)


@st.composite
def tables(draw, cell):
    slices, groups = draw(st.integers(1, 9)), draw(st.sampled_from([1, 2, 3]))
    rows = [[draw(st.one_of(st.none(), cell, cell)) for _ in range(groups)] for _ in range(slices)]
    first, end = draw(windows(slices))
    return rows, first, end


def filled(rows, operation, dtype):
    empty = sliding.neutral(operation, dtype)
    return np.array([[empty if c is None else c for c in row] for row in rows], dtype)


def cells(rows, a, b, g):
    return [row[g] for row in rows[a:b] if row[g] is not None]


def best(values, operation):
    """NaN is the greatest."""
    choose = min if operation == MIN else max
    return choose(values, key=lambda v: (v != v, 0 if v != v else v))


def same(found, wanted):
    return found == wanted or (found != found and wanted != wanted)


@given(tables(st.integers(-(1 << 62), 1 << 62)))
@settings(deadline=None)
def test_integers(case):
    rows, first, end = case
    present = sliding.present_in(np.array([[c is not None for c in row] for row in rows]), first, end)
    for operation in (SUM, MIN, MAX):
        table = filled(rows, operation, np.int64)
        ways = [sliding.combine_all(table, first, end, operation), sliding.two_stacks(table, first, end, operation)]
        if operation == SUM:
            ways.append(sliding.subtract(table, first, end))
        for w, (a, b) in enumerate(zip(first, end, strict=True)):
            for g in range(table.shape[1]):
                found = cells(rows, a, b, g)
                assert present[w, g] == bool(found)
                if not found:
                    continue
                wanted = sum(found) if operation == SUM else best(found, operation)
                wrapped = (wanted + (1 << 63)) % (1 << 64) - (1 << 63)
                assert [int(way[w, g]) for way in ways] == [wrapped] * len(ways)


@given(tables(st.sampled_from([0.1, -3.5, math.inf, -math.inf, math.nan, 1e300, 5e-324])))
@settings(deadline=None)
def test_smallest_and_greatest_doubles(case):
    rows, first, end = case
    for operation in (MIN, MAX):
        table = filled(rows, operation, np.float64)
        ways = [sliding.combine_all(table, first, end, operation), sliding.two_stacks(table, first, end, operation)]
        for w, (a, b) in enumerate(zip(first, end, strict=True)):
            for g in range(table.shape[1]):
                found = cells(rows, a, b, g)
                if found:
                    assert all(same(float(way[w, g]), best(found, operation)) for way in ways)


@given(tables(st.sampled_from([0.1, -3.5, 7.25, 1e15, -1e15, 1e-9])))
@settings(deadline=None)
def test_sums_of_doubles_agree_to_the_last_bit(case):
    rows, first, end = case
    table = filled(rows, SUM, np.float64)
    rests = np.zeros_like(table)
    for way in (sliding.combine_all_doubles, sliding.subtract_doubles, sliding.two_stacks_doubles):
        sums, lost = way(table, rests, first, end)
        for w, (a, b) in enumerate(zip(first, end, strict=True)):
            assert (sums[w] + lost[w]).tolist() == [math.fsum(cells(rows, a, b, g)) for g in range(table.shape[1])]


def test_infinities_leave_with_their_slice():
    table = np.array([[1.0], [math.inf], [2.0], [-math.inf], [3.0]])
    first, end = np.array([0, 1, 2, 3, 4], np.int64), np.array([2, 3, 4, 5, 5], np.int64)
    for way in (sliding.combine_all_doubles, sliding.two_stacks_doubles):
        sums, lost = way(table, np.zeros_like(table), first, end)
        assert (sums + lost)[:, 0].tolist() == [math.inf, math.inf, -math.inf, -math.inf, 3.0]


@pytest.mark.parametrize("shape", [(300, 1500, 60, 1), (200, 3, 199, 1), (90, 40, 7, 9)])
def test_many_slices_and_more_groups_than_a_block(shape):
    slices, groups, size, advance = shape
    random = np.random.default_rng(slices)
    first = np.arange(0, slices - size + 1, advance, dtype=np.int64)
    end = first + size
    whole = random.integers(-1000, 1000, (slices, groups))
    views = np.lib.stride_tricks.sliding_window_view(whole, size, axis=0)[::advance]
    for operation, wanted in ((SUM, views.sum(-1)), (MIN, views.min(-1)), (MAX, views.max(-1))):
        assert (sliding.combine_all(whole, first, end, operation) == wanted).all()
        assert (sliding.two_stacks(whole, first, end, operation) == wanted).all()
        numbers = whole.astype(np.float64)
        assert (sliding.two_stacks(numbers, first, end, operation) == wanted).all()
    assert (sliding.subtract(whole, first, end) == views.sum(-1)).all()
    parts = random.normal(0, 1, (slices, groups)) * 10.0 ** random.integers(-6, 6, (slices, groups))
    found = [
        np.add(*way(parts, np.zeros_like(parts), first, end))
        for way in (sliding.combine_all_doubles, sliding.subtract_doubles, sliding.two_stacks_doubles)
    ]
    assert (found[0] == found[1]).all() and (found[0] == found[2]).all()


@given(st.data(), st.sampled_from([np.int32, np.int64]))
@settings(deadline=None)
def test_count_windows(data, dtype):
    values = np.array(data.draw(st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=60)), dtype)
    size, slide = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 25))
    whole = values.tolist()
    pieces = [whole[a : a + size] for a in range(0, len(whole) - size + 1, slide)]
    for operation, fold in ((count_windows.SUM, sum), (count_windows.MIN, min)):
        wanted = [fold(piece) for piece in pieces]
        assert count_windows.bulk(values, size, slide, operation).tolist() == wanted
        for lean in (False, True):
            assert count_windows.per_tuple(values, size, slide, operation, lean=lean).tolist() == wanted
