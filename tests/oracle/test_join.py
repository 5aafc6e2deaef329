"""The inner join of one window: bags, NULLs, self-joins, composite and mixed keys, cycles, residuals."""

from __future__ import annotations

from optimizer.model.expressions import ColumnRef, Compare, WindowBound
from optimizer.model.query import Output, Query
from optimizer.model.types import ColumnType
from tests.oracle.cases import a, b, query, rows

A_TS = ColumnRef("A", "ts", ColumnType.TIMESTAMP)
B_TS = ColumnRef("B", "ts", ColumnType.TIMESTAMP)


def test_equal_tuples_are_different_tuples():
    # 2 equal a's times 3 equal b's
    assert rows(query(10), a(1), a(1), b(2), b(2), b(2)) == [(0, 10, 1, 2)] * 6


def test_null_keys_never_match_not_even_each_other():
    assert rows(query(10), a(1, None), b(2, None), b(3, 1)) == []


def test_one_null_part_of_a_composite_key_is_enough_to_miss():
    both = query(10, on=["A.k = B.k", "A.s = B.s"])
    assert rows(both, a(1, s="x"), b(2, s="x"), b(3, s="y"), a(4), b(5)) == [(0, 10, 1, 2)]


def test_a_self_join_pairs_every_tuple_with_every_one_and_itself():
    # k=1: a1, a2 -> 2 x 2 rows; k=7: a3 -> only with itself
    twice = query(10, "A x", "A y", on=["x.k = y.k"])
    assert rows(twice, a(1), a(2), a(3, 7)) == [
        (0, 10, 1, 1),
        (0, 10, 1, 2),
        (0, 10, 2, 1),
        (0, 10, 2, 2),
        (0, 10, 3, 3),
    ]


def test_each_use_of_a_stream_has_its_own_selection():
    twice = query(10, "A x", "A y", on=["x.k = y.k"], where=[("x.i", ">", 5), ("y.i", "<=", 5)])
    assert rows(twice, a(1, i=9), a(2, i=5), a(3, i=None)) == [(0, 10, 1, 2)]


def test_bigint_and_double_keys_are_compared_as_double():
    # 2**53 and 2**53 + 1 are the same DOUBLE, but not the same BIGINT.
    mixed = query(10, on=["A.k = B.d"])
    assert rows(mixed, a(1, 2**53), a(2, 2**53 + 1), b(3, d=float(2**53))) == [(0, 10, 1, 3), (0, 10, 2, 3)]
    assert rows(query(10), a(1, 2**53), b(3, 2**53 + 1)) == []


def test_zero_has_no_sign_and_nan_has_no_equal():
    doubles = query(10, on=["A.d = B.d"])
    assert rows(doubles, a(1, d=0.0), b(2, d=-0.0)) == [(0, 10, 1, 2)]
    assert rows(doubles, a(1, d=float("nan")), b(2, d=float("nan"))) == []


def test_a_cycle_must_close():
    #   x -- y
    #    \  /     x.k = y.k, y.i = z.i, z.s = x.s
    #     z
    triangle = query(10, "A x", "B y", "A z", on=["x.k = y.k", "y.i = z.i", "z.s = x.s"])
    tuples = [a(1, 1, s="p"), b(2, 1, i=4), a(3, 9, i=4, s="p"), a(4, 9, i=4, s="q")]
    assert rows(triangle, *tuples) == [(0, 10, 1, 2, 3)]


def test_sources_need_not_stand_in_a_joinable_order():
    # FROM x, y, z with x and y only connected through z
    chain = query(10, "A x", "A y", "B z", on=["x.k = z.k", "z.i = y.i"])
    assert rows(chain, a(1, 1, i=0), a(2, 9, i=4), b(3, 1, i=4)) == [(0, 10, 1, 2, 3)]


def test_a_residual_filters_combinations_and_unknown_is_not_true():
    later = query(10, residual=[Compare("<", A_TS, B_TS)])
    assert rows(later, a(5), b(4), b(5), b(6)) == [(0, 10, 5, 6)]
    smaller = Compare("<", ColumnRef("A", "i", ColumnType.INT), ColumnRef("B", "i", ColumnType.INT))
    assert rows(query(10, residual=[smaller]), a(1, i=None), b(2, i=3)) == []


def test_window_bounds_can_be_selected():
    plain = query((10, 5))
    outputs = (Output("start", WindowBound("window_start")), Output("stop", WindowBound("window_end")))
    asked = Query(plain.sql, plain.sources, plain.window, (), plain.equi, (), outputs)
    assert rows(asked, a(6), b(7)) == [(0, 10, 0, 10), (5, 15, 5, 15)]
