"""Slices and windows against their definitions, written as loops over all windows near by."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runtime.kernels.slices import slice_starts, window_range

times = st.integers(-200, 200)
shapes = st.tuples(st.integers(1, 40), st.integers(1, 40))


def windows_of(t, size, advance):
    """All k whose window [k*advance, k*advance + size) holds t."""
    return {k for k in range(-500, 500) if k * advance <= t < k * advance + size}


@given(st.lists(times, min_size=1, max_size=20), st.lists(shapes, min_size=1, max_size=4))
def test_a_slice_starts_at_the_latest_edge_of_any_window_shape(given_times, given_shapes):
    sizes = np.array([s for s, _ in given_shapes], np.int64)
    advances = np.array([a for _, a in given_shapes], np.int64)
    starts = slice_starts(np.array(given_times, np.int64), sizes, advances)
    edges = {edge for s, a in given_shapes for k in range(-500, 500) for edge in (k * a, k * a + s)}
    assert starts.tolist() == [max(e for e in edges if e <= t) for t in given_times]


@given(times, times, st.lists(shapes, min_size=1, max_size=4))
def test_tuples_of_one_slice_lie_in_exactly_the_same_windows(a, b, given_shapes):
    sizes = np.array([s for s, _ in given_shapes], np.int64)
    advances = np.array([d for _, d in given_shapes], np.int64)
    first, second = slice_starts(np.array([a, b], np.int64), sizes, advances)
    start = int(first)
    for size, advance in given_shapes:
        if first == second:
            assert windows_of(a, size, advance) == windows_of(b, size, advance)
        # and the slice's start stands for all of it
        assert windows_of(start, size, advance) == windows_of(a, size, advance)


@given(times, st.integers(0, 80), shapes, st.one_of(st.none(), times))
def test_a_window_range_holds_the_windows_of_both_ends_that_start_in_time(lo, length, shape, active_from):
    size, advance = shape
    hi = lo + length
    first, last = window_range(np.array([lo]), np.array([hi]), size, advance, active_from)
    both = windows_of(lo, size, advance) & windows_of(hi, size, advance)
    in_time = {k for k in both if active_from is None or k * advance >= active_from}
    assert set(range(int(first[0]), int(last[0]) + 1)) == in_time
