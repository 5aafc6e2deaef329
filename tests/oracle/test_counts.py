"""COUNT(*) by hand: which window is delivered after which epoch, with which revision."""

from __future__ import annotations

from dataclasses import replace

from optimizer.model.expressions import CountAll
from optimizer.model.query import Output
from tests.oracle.cases import DELETE, EPOCH, a, asked, b, query, run, thaw


def counted(*lines, window=10, **timing):
    """(window_start, window_end, revision, count)"""
    plain = query(window)
    expected = asked(run(replace(plain, outputs=(Output("n", CountAll()),)), *lines, **timing))
    assert expected.counts and not expected.optional
    rows = [(r[0], r[1], thaw(r)["revision"], thaw(r)["n"]) for r in expected.rows.elements()]
    return sorted(rows)


def test_everything_closes_at_the_end():
    assert counted(a(1), b(2), b(3), a(15)) == [(0, 10, 0, 2)]


def test_late_combinations_are_revisions_of_a_closed_window():
    # epoch 1 closes [0,10) with one row; epoch 2 adds two late ones, epoch 3 none, epoch 4 one more
    lines = [a(1), b(2), a(30), b(30), EPOCH, a(3), a(4), EPOCH, a(5, k=7), EPOCH, a(6)]
    assert counted(*lines, lateness=99) == [(0, 10, 0, 1), (0, 10, 1, 3), (0, 10, 2, 4), (30, 40, 0, 1)]


def test_a_late_tuple_for_an_open_window_is_no_revision():
    # B's watermark holds [0,10) open
    assert counted(a(1), b(2), a(30), EPOCH, a(3), lateness=99) == [(0, 10, 0, 2)]


def test_a_closed_window_without_rows_starts_with_revision_0():
    assert counted(a(30), b(30), EPOCH, a(3), b(3), lateness=99) == [(0, 10, 0, 1), (30, 40, 0, 1)]


def test_after_deletion_nothing_closes():
    assert counted(a(1), b(2), a(12), b(13), EPOCH, DELETE, a(30), b(30)) == [(0, 10, 0, 1)]
    assert counted(a(1), b(2), EPOCH, DELETE) == []


def test_hopping_windows_count_a_combination_each():
    assert counted(a(8), b(9), window=(10, 5)) == [(0, 10, 0, 1), (5, 15, 0, 1)]
