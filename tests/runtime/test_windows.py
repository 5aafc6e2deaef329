"""Slices and windows over arrays against their definitions, written as loops over all windows near by."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from optimizer.model.windows import PeriodicWindow
from runtime.windows.registry import JoinWindows, logic_of, slice_starts

times = st.integers(-200, 200)
windows = st.builds(PeriodicWindow, st.integers(1, 40), st.integers(1, 40))


def windows_of(t, window):
    """The starts of all windows that hold t."""
    starts = (k * window.advance_ms for k in range(-500, 500))
    return {start for start in starts if start <= t < start + window.size_ms}


@given(st.lists(times, min_size=1, max_size=20), st.lists(windows, min_size=1, max_size=4))
def test_a_slice_starts_at_the_latest_edge_of_any_window(given_times, given_windows):
    starts = slice_starts(given_windows, np.array(given_times, np.int64))
    edges = {
        edge
        for w in given_windows
        for k in range(-500, 500)
        for edge in (k * w.advance_ms, k * w.advance_ms + w.size_ms)
    }
    assert starts.tolist() == [max(e for e in edges if e <= t) for t in given_times]


def laid_out(held, most):
    """(row, start of window) of all pieces."""
    pieces = [(np.empty(0, np.int64), np.empty(0, np.int64)), *held.pieces(most)]
    return [np.concatenate(column) for column in zip(*pieces, strict=True)]


@given(times, times, st.lists(windows, min_size=1, max_size=4))
def test_tuples_of_one_slice_lie_in_exactly_the_same_windows(a, b, given_windows):
    first, second = slice_starts(given_windows, np.array([a, b], np.int64))
    for window in given_windows:
        if first == second:
            assert windows_of(a, window) == windows_of(b, window)
        # and the slice's start stands for all of it
        assert windows_of(int(first), window) == windows_of(a, window)


@given(st.lists(st.tuples(times, st.integers(0, 80)), min_size=1, max_size=5), windows, st.one_of(st.none(), times))
def test_a_row_is_in_the_windows_of_both_its_ends_that_start_in_time(spans, window, active_from):
    lo, hi = np.array([a for a, _ in spans], np.int64), np.array([a + length for a, length in spans], np.int64)
    held = logic_of(window).holding(lo, hi, active_from)
    rows, starts = laid_out(held, 1 << 20)
    expected = [
        (row, start)
        for row, (a, b) in enumerate(zip(lo.tolist(), hi.tolist(), strict=True))
        for start in sorted(windows_of(a, window) & windows_of(b, window))
        if active_from is None or start >= active_from
    ]
    assert list(zip(rows.tolist(), starts.tolist(), strict=True)) == expected
    assert held.counts.tolist() == [sum(r == row for r, _ in expected) for row in range(len(spans))]
    assert logic_of(window).ends(starts).tolist() == [window.end(start) for _, start in expected]
    for most in (1, 2, 7):
        assert all(len(piece) <= most for piece, _ in held.pieces(most))
        assert [a.tolist() for a in laid_out(held, most)] == [rows.tolist(), starts.tolist()]
    _, last = laid_out(held.take(np.array([len(spans) - 1])), 1 << 20)
    assert last.tolist() == [start for row, start in expected if row == len(spans) - 1]


@given(times, windows)
def test_a_time_is_in_no_window_in_one_or_in_several(t, window):
    logic, holding = logic_of(window), windows_of(t, window)
    assert bool(logic.outside(np.array([t]))[0]) == (not holding)
    assert logic.gaps or holding
    if len(holding) > 1:
        assert logic.overlapping
    elif holding and not logic.overlapping:
        assert set(logic.starts(np.array([t])).tolist()) == holding


@given(times, st.integers(0, 80), st.lists(windows, min_size=1, max_size=3))
def test_slices_that_are_apart_share_no_window(lo, length, given_windows):
    hi = lo + length
    both = JoinWindows([(w, [slot]) for slot, w in enumerate(given_windows)], 1)
    if both.apart(lo, hi):
        assert not any(windows_of(lo, w) & windows_of(hi, w) for w in given_windows)
