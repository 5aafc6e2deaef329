"""Groups of time windows by hand: which row is delivered after which epoch, with which revision."""

from __future__ import annotations

import pytest

from optimizer.errors import InvalidRequest
from optimizer.model.expressions import And, GroupRef, WindowBound
from optimizer.model.types import ColumnType
from optimizer.model.windows import FixedWindow
from tests.folds import calc, count, is_
from tests.oracle.cases import CREATE, DELETE, EPOCH, ONE, TWO, a, asked, b, deliveries, run, watermark

COUNTED = {"n": count()}


def counted(*lines, window=10, **timing):
    """(window_start, window_end, revision, count) of A joined with B."""
    return deliveries(TWO.query(window=window, on=["A.k = B.k"], select=COUNTED), *lines, **timing)


def summed(*lines, window=10, having=None, where=(), **timing):
    """(window_start, window_end, revision, k, sum of i) of A by k."""
    select = {"k": "#0", "total": ONE.agg("SUM", "A.i")}
    query = ONE.query(window=window, group=["A.k"], select=select, having=having, where=where)
    return deliveries(query, *lines, **timing)


# -- closing and revisions ------------------------------------------------------------------------------------


def test_everything_closes_at_the_end():
    assert counted(a(1), b(2), b(3), a(15)) == [(0, 10, 0, 2)]


def test_unless_nothing_is_flushed():
    assert counted(a(1), b(2), a(15), b(15), flush=False) == [(0, 10, 0, 1)]
    assert counted(a(1), b(2), a(9), b(9), flush=False) == []
    assert counted(a(1), b(2), a(10), b(10), flush=False) == [(0, 10, 0, 1)], "a watermark at the end closes"


def test_late_combinations_are_revisions_of_a_closed_window():
    # epoch 1 closes [0,10) with one row; epoch 2 adds two late ones, epoch 3 none, epoch 4 one more
    lines = [a(1), b(2), a(30), b(30), EPOCH, a(3), a(4), EPOCH, a(5, k=7), EPOCH, a(6)]
    assert counted(*lines, lateness=99) == [(0, 10, 0, 1), (0, 10, 1, 3), (0, 10, 2, 4), (30, 40, 0, 1)]


def test_a_late_tuple_for_an_open_window_is_no_revision():
    # B's watermark holds [0,10) open
    assert counted(a(1), b(2), a(30), EPOCH, a(3), lateness=99) == [(0, 10, 0, 2)]


def test_a_closed_window_without_rows_starts_with_revision_0():
    assert counted(a(30), b(30), EPOCH, a(3), b(3), lateness=99) == [(0, 10, 0, 1), (30, 40, 0, 1)]


def test_the_same_values_again_are_a_revision_too():
    # a NULL changes no sum, but it changes the group's content
    lines = [a(1, i=4), a(10), EPOCH, a(2)]
    assert summed(*lines, lateness=99) == [(0, 10, 0, 1, 4), (0, 10, 1, 1, 4), (10, 20, 0, 1, None)]


def test_revisions_are_per_group():
    lines = [a(1, k=1, i=4), a(2, k=2, i=5), a(10, k=3), EPOCH, a(3, k=2, i=1), EPOCH, a(4, k=9, i=8)]
    assert summed(*lines, lateness=99, flush=False) == [
        (0, 10, 0, 1, 4),
        (0, 10, 0, 2, 5),
        (0, 10, 1, 2, 6),
        (0, 10, 0, 9, 8),
    ]


def test_what_is_dropped_or_filtered_changes_nothing():
    # accepted down to 10 - 5; a6 with i = 0 does not pass WHERE
    lines = [a(1, i=4), a(10, i=1), EPOCH, a(4, i=1), a(6, i=0)]
    assert summed(*lines, where=[("A.i", ">", 0)], lateness=5) == [(0, 10, 0, 1, 4), (10, 20, 0, 1, 1)]


def test_after_deletion_nothing_closes():
    assert counted(a(1), b(2), a(12), b(13), EPOCH, DELETE, a(30), b(30)) == [(0, 10, 0, 1)]
    assert counted(a(1), b(2), EPOCH, DELETE) == []
    assert counted(a(1), b(2), a(10), b(10), EPOCH, DELETE, a(3), lateness=99) == [(0, 10, 0, 1)]


def test_a_punctuation_of_the_source_closes_too():
    assert summed(a(1, i=2), watermark("A", 10), flush=False) == [(0, 10, 0, 1, 2)]


# -- windows ------------------------------------------------------------------------------------------------------


def test_hopping_windows_count_a_combination_each():
    assert counted(a(8), b(9), window=(10, 5)) == [(0, 10, 0, 1), (5, 15, 0, 1)]


def test_tumbling_sliding_and_out_of_order():
    # in one epoch, in any order: 1, 22, 13, 9, 19 -> tumbling 10; then sliding by 5
    tuples = [a(22, i=5), a(1, i=1), a(13, i=3), a(9, i=2), a(19, i=4)]
    assert summed(*tuples) == [(0, 10, 0, 1, 3), (10, 20, 0, 1, 7), (20, 30, 0, 1, 5)]
    assert summed(*tuples, window=(10, 5)) == [
        (-5, 5, 0, 1, 1),
        (0, 10, 0, 1, 3),
        (5, 15, 0, 1, 5),
        (10, 20, 0, 1, 7),
        (15, 25, 0, 1, 9),
        (20, 30, 0, 1, 5),
    ]


def test_a_late_tuple_revises_those_of_its_windows_that_were_delivered():
    # sliding 10 by 5, watermark 15 has closed [0,10) and [5,15); a7 is in both, a12 in [5,15) and open [10,20)
    lines = [a(1, i=1), a(15, i=9), EPOCH, a(7, i=2), EPOCH, a(12, i=4)]
    assert summed(*lines, window=(10, 5), lateness=99, flush=False) == [
        (-5, 5, 0, 1, 1),
        (0, 10, 0, 1, 1),
        (0, 10, 1, 1, 3),
        (5, 15, 0, 1, 2),
        (5, 15, 1, 1, 6),
    ]


def test_one_window_between_two_times():
    fixed = FixedWindow(5, 12)
    lines = [a(4, i=1), a(5, i=2), a(11, i=4), a(12, i=8), EPOCH, a(6, i=16)]
    assert summed(*lines, window=fixed, lateness=99) == [(5, 12, 0, 1, 6), (5, 12, 1, 1, 22)]
    joined = TWO.query(window=fixed, on=["A.k = B.k"], select=COUNTED)
    assert deliveries(joined, a(5), b(11), b(12), a(4)) == [(5, 12, 0, 1)]


def test_one_window_that_has_begun_already():
    fixed = ONE.query(window=FixedWindow(10, 20), select=COUNTED)
    with pytest.raises(InvalidRequest) as refused:
        run(fixed, a(10), EPOCH, CREATE)
    assert refused.value.reason == "WINDOW_IN_PAST"
    expected = run(fixed, a(9), EPOCH, CREATE, a(12))
    assert asked(expected).active_from == 10
    assert deliveries(fixed, a(9), EPOCH, CREATE, a(12)) == [(10, 20, 0, 1)]
    assert asked(run(fixed, a(12))).active_from is None


def test_an_ad_hoc_query_begins_with_a_whole_window():
    # a12 was accepted: T = 13, the first window is [20,30); late tuples before it are not seen
    lines = [a(12, i=1), EPOCH, CREATE, a(15, i=2), a(20, i=4), a(31, i=8)]
    assert summed(*lines, lateness=99) == [(20, 30, 0, 1, 4), (30, 40, 0, 1, 8)]


# -- groups -------------------------------------------------------------------------------------------------------


def test_null_is_a_group():
    lines = [a(1, k=None, i=1), a(2, k=None, i=2), a(3, k=3, i=4)]
    assert summed(*lines) == [(0, 10, 0, 3, 4), (0, 10, 0, None, 3)]


def test_groups_by_expressions_and_by_several():
    i = ONE.column("A.i")
    query = ONE.query(window=10, group=[calc(i, "%", 2), "A.s"], select={"even": "#0", "s": "#1", "n": count()})
    lines = [a(1, i=1, s="x"), a(2, i=3, s="x"), a(3, i=2, s="x"), a(4, i=5, s="y"), a(5)]
    assert deliveries(query, *lines) == [
        (0, 10, 0, 0, "x", 1),
        (0, 10, 0, 1, "x", 2),
        (0, 10, 0, 1, "y", 1),
        (0, 10, 0, None, None, 1),
    ]


def test_plus_and_minus_zero_are_one_group():
    query = ONE.query(window=10, group=["A.d"], select={"d": "#0", "n": count()})
    assert deliveries(query, a(1, d=-0.0), a(2, d=0.0)) == [(0, 10, 0, 0.0, 2)]


def test_groups_without_aggregates_and_aggregates_without_groups():
    assert deliveries(ONE.query(window=10, group=["A.k"], select={"k": "#0"}), a(1, k=4), a(2, k=4)) == [(0, 10, 0, 4)]
    assert deliveries(ONE.query(window=10, select=COUNTED), a(1, k=4), a(2, k=5)) == [(0, 10, 0, 2)]


def test_the_window_itself_may_be_a_group():
    query = ONE.query(window=10, group=[WindowBound("window_end")], select={"until": "#0", "n": count()})
    assert deliveries(query, a(1), a(11)) == [(0, 10, 0, 10, 1), (10, 20, 0, 20, 1)]


def test_groups_over_a_join():
    # k = 1: (a1, b2), (a1, b3), k = 2: (a4, b5); by B.s, sums of A.i
    query = TWO.query(
        window=10, on=["A.k = B.k"], group=["B.s"], select={"s": "#0", "t": TWO.agg("SUM", "A.i"), "n": count()}
    )
    lines = [a(1, k=1, i=10), b(2, k=1, s="x"), b(3, k=1, s="y"), a(4, k=2, i=5), b(5, k=2, s="x")]
    assert deliveries(query, *lines) == [(0, 10, 0, "x", 15, 2), (0, 10, 0, "y", 10, 1)]


def test_first_and_last_go_by_event_time_then_by_arrival():
    select = {"first": ONE.agg("FIRST", "A.i"), "last": ONE.agg("LAST", "A.i")}
    query = ONE.query(window=10, select=select)
    lines = [a(5, i=1), a(3, i=2), a(3, i=3), a(5, i=4), a(10), EPOCH, a(3, i=5), a(2), a(5, i=6)]
    assert deliveries(query, *lines, lateness=99, flush=False) == [(0, 10, 0, 2, 4), (0, 10, 1, 2, 6)]


# -- HAVING -------------------------------------------------------------------------------------------------------


def test_having_holds_back_and_takes_no_number():
    # total > 3: held back when it closes, delivered first as revision 0 when a late tuple makes it 5;
    # then -4 makes it 1, held back; then 9 makes it 10, revision 1
    having = is_(ONE.agg("SUM", "A.i"), ">", 3)
    lines = [a(1, i=2), a(10), EPOCH, a(2, i=3), EPOCH, a(3, i=-4), EPOCH, EPOCH, a(4, i=9)]
    assert summed(*lines, having=having, lateness=99) == [(0, 10, 0, 1, 5), (0, 10, 1, 1, 10)]


def test_having_that_is_null_is_not_true():
    assert summed(a(1), having=is_(ONE.agg("SUM", "A.i"), "<", 3)) == []


def test_having_may_use_groups_and_what_is_not_selected():
    both = And((is_(GroupRef(0, ColumnType.BIGINT), "<>", 2), is_(ONE.agg("MAX", "A.ts"), ">=", 4)))
    lines = [a(4, k=1, i=1), a(5, k=2, i=2), a(3, k=3, i=3)]
    assert summed(*lines, having=both) == [(0, 10, 0, 1, 1)]
