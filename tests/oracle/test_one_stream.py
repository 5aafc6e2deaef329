"""Queries for the rows of one stream, with windows and without."""

from __future__ import annotations

from optimizer.model.windows import FixedWindow, Unwindowed
from tests.folds import calc
from tests.oracle.cases import CREATE, DELETE, EPOCH, ONE, a, asked, b, rows, run, told

PLAIN = ONE.query(window=Unwindowed(), where=[("A.i", ">", 0)], select={"ts": "A.ts", "i": "A.i"})


def test_each_tuple_that_passes_once_and_without_a_window():
    assert rows(PLAIN, a(3, i=1), a(2, i=0), a(1, i=2), a(1, i=2), a(5)) == [
        (None, None, 1, 3),
        (None, None, 2, 1),
        (None, None, 2, 1),
    ], "columns in order of their names: i, ts"


def test_expressions_and_bounds_that_are_null():
    query = ONE.query(window=Unwindowed(), select={"x": calc(ONE.column("A.i"), "+", 1), "y": "window_start"})
    assert rows(query, a(1, i=4)) == [(None, None, 5, None)]


def test_it_sees_tuples_from_its_creation_on():
    expected = asked(run(PLAIN, a(10, i=1), b(99), EPOCH, CREATE, a(10, i=2), a(11, i=3), EPOCH, a(9, i=4), lateness=9))
    assert expected.active_from == 11
    assert told(expected.rows) == [(None, None, 3, 11)]
    assert not expected.folds
    assert asked(run(PLAIN, b(3), EPOCH, CREATE)).active_from is None


def test_late_tuples_come_too_and_dropped_ones_do_not():
    assert rows(PLAIN, a(10, i=1), EPOCH, a(7, i=2), a(4, i=3), lateness=5) == [(None, None, 1, 10), (None, None, 2, 7)]


def test_deleted_it_owes_everything_that_came_before():
    expected = asked(run(PLAIN, a(10, i=1), EPOCH, a(20, i=2), EPOCH, DELETE, a(30, i=3)))
    assert (expected.state, expected.active_until) == ("DELETED", 20)
    assert told(expected.rows) == [(None, None, 1, 10), (None, None, 2, 20)]
    assert not expected.optional


def test_with_a_window_one_row_per_window():
    query = ONE.query(window=(10, 5), select={"ts": "A.ts", "until": "window_end"})
    assert rows(query, a(3), a(7)) == [(-5, 5, 3, 5), (0, 10, 3, 10), (0, 10, 7, 10), (5, 15, 7, 15)]
    fixed = ONE.query(window=FixedWindow(3, 7), select={"ts": "A.ts"})
    assert rows(fixed, a(2), a(3), a(6), a(7)) == [(3, 7, 3), (3, 7, 6)]


def test_with_a_window_deletion_is_as_for_joins():
    query = ONE.query(window=10, select={"ts": "A.ts"})
    expected = asked(run(query, a(3), a(12), EPOCH, DELETE))
    assert told(expected.rows) == [(0, 10, 3)]
    assert told(expected.optional) == [(10, 20, 12)]
