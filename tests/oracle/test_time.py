"""Watermarks, lateness, and the first and last window of an ad-hoc query."""

from __future__ import annotations

import pytest

from optimizer.errors import AlreadyExists, NotFound
from tests.oracle import ExpectedStream
from tests.oracle.cases import CREATE, DELETE, EPOCH, a, asked, b, query, rows, run, told, watermark


def test_a_tuple_at_the_watermark_is_not_late_and_one_before_it_is_dropped():
    # epoch 1   a20                     watermark(A) = 20
    # epoch 2        a20 in time, a19 late and too late
    expected = run(query(10), a(20), EPOCH, a(20), a(19), b(20), b(15))
    assert expected.streams["A"] == ExpectedStream(tuples=2, late_dropped=1, dead_letter=0)
    assert told(asked(expected).rows) == [(20, 30, 20, 20), (20, 30, 20, 20)]


def test_lateness_is_judged_by_the_previous_epoch():
    # Inside one epoch everything is in time, however far back; B has no watermark yet at all.
    expected = run(query(100), a(50), a(10), EPOCH, b(5))
    assert expected.streams["A"].tuples == 2
    assert expected.streams["B"].tuples == 1
    assert told(asked(expected).rows) == [(0, 100, 10, 5), (0, 100, 50, 5)]


def test_allowed_lateness_ends_exactly_at_its_bound():
    # watermark 20 - delay 4 = 16; accepted down to 16 - 6 = 10
    #        9 | 10 ........ 15 | 16 .....
    #  dropped | late, accepted | in time
    expected = run(query(100), a(20), EPOCH, a(9), a(10), a(15), a(16), delay=4, lateness=6)
    assert expected.streams["A"] == ExpectedStream(tuples=4, late_dropped=1, dead_letter=0)


def test_an_accepted_late_tuple_still_gives_rows_of_closed_windows():
    late = rows(query(10), a(3), b(3), EPOCH, a(30), b(30), EPOCH, a(4), lateness=30)
    assert late == [(0, 10, 3, 3), (0, 10, 4, 3), (30, 40, 30, 30)]


def test_the_watermark_never_moves_back():
    # Neither an accepted late tuple nor a smaller explicit watermark lowers 20.
    expected = run(query(10), a(20), EPOCH, a(15), watermark("A", 3), EPOCH, a(14), a(15), lateness=5)
    assert expected.streams["A"] == ExpectedStream(tuples=3, late_dropped=1, dead_letter=0)


def test_an_explicit_watermark_acts_when_its_epoch_ends():
    # It stands before a5 in the same epoch: a5 is in time. In the next epoch a5 is late.
    expected = run(query(10), watermark("A", 10), a(5), EPOCH, a(5), a(10))
    assert expected.streams["A"] == ExpectedStream(tuples=2, late_dropped=1, dead_letter=0)


def test_an_explicit_watermark_outlives_epochs_that_bring_less():
    expected = run(query(10), watermark("A", 10), EPOCH, EPOCH, a(11), EPOCH, a(10), b(0), delay=5)
    assert expected.streams["A"] == ExpectedStream(tuples=2, late_dropped=0, dead_letter=0)
    expected = run(query(10), watermark("A", 10), EPOCH, a(11), EPOCH, a(9), delay=5)
    assert expected.streams["A"] == ExpectedStream(tuples=1, late_dropped=1, dead_letter=0)


def test_a_query_starts_with_the_first_window_after_everything_accepted():
    # accepted before: a9, b3   ->  T = 10, and [10,20) starts at T
    # time     0         10        20
    # A        |       a9|   a12   |
    # B        | b3      |   b14   |
    # windows  [--- 0 ---[--- 10 --[    only the second one
    expected = run(query(10), a(9), b(3), EPOCH, CREATE, a(12), b(14), b(9))
    assert asked(expected).active_from == 10
    assert told(asked(expected).rows) == [(10, 20, 12, 14)]
    # One millisecond later T = 11 and [10,20) has begun without the query.
    expected = run(query(10), a(10), EPOCH, CREATE, a(12), b(14), a(20), b(20))
    assert asked(expected).active_from == 20
    assert told(asked(expected).rows) == [(20, 30, 20, 20)]


def test_hopping_and_negative_starts():
    expected = run(query((10, 4)), a(-7), EPOCH, CREATE)
    assert asked(expected).active_from == -4
    expected = run(query((3, 10)), a(0), EPOCH, CREATE)
    assert asked(expected).active_from == 10


def test_only_accepted_tuples_of_its_own_streams_bound_a_query():
    # B's 99 does not count for A joined with itself, nor does an explicit watermark or a dead letter.
    twice = query(10, "A x", "A y", on=["x.k = y.k"])
    expected = run(twice, b(99), watermark("A", 50), a(None), EPOCH, CREATE, a(60))
    assert asked(expected).active_from is None
    assert told(asked(expected).rows) == [(60, 70, 60, 60)]


def test_control_lines_act_before_the_tuples_around_them():
    # a5 stands before the creation, but in the same epoch.
    expected = run(query(10), a(5), b(6), CREATE)
    assert asked(expected).active_from is None
    assert told(asked(expected).rows) == [(0, 10, 5, 6)]


def test_a_deleted_query_owes_closed_windows_and_may_have_given_more():
    # time     0         10        20        30
    # A        | a1      | a12     |   a24   |      watermark 24
    # B        |  b2     |  b13    |  b22    |      watermark 22  -> active_until = 22
    # windows  [--- 0 ---[--- 10 --[--- 20 --[
    #             owed      owed     optional
    before = [a(1), b(2), a(12), b(13), a(24), b(22), EPOCH]
    expected = asked(run(query(10), *before, DELETE, a(25), b(25)))
    assert (expected.state, expected.active_from, expected.active_until) == ("DELETED", None, 22)
    assert told(expected.rows) == [(0, 10, 1, 2), (10, 20, 12, 13)]
    assert told(expected.optional) == [(20, 30, 24, 22)]


def test_a_window_that_ends_at_the_watermark_is_owed():
    expected = asked(run(query(10), a(1), b(2), a(20), b(10), EPOCH, DELETE))
    assert expected.active_until == 10
    assert told(expected.rows) == [(0, 10, 1, 2)]


def test_a_tuple_accepted_late_after_the_deletion_is_not_seen():
    expected = asked(run(query(10), a(1), b(2), a(20), b(20), EPOCH, DELETE, a(3), lateness=99))
    assert told(expected.rows) == [(0, 10, 1, 2)]
    assert told(expected.optional) == [(20, 30, 20, 20)]


def test_deleted_without_a_watermark_on_every_stream():
    expected = asked(run(query(10), a(1), EPOCH, DELETE, b(2)))
    assert expected.active_until is None
    assert not expected.rows
    assert not expected.optional


def test_deleted_in_the_batch_that_created_it():
    expected = asked(run(query(10), CREATE, DELETE, a(1), b(2)))
    assert (expected.state, expected.active_until) == ("DELETED", None)
    assert not expected.rows + expected.optional


def test_mistakes_are_errors_unless_they_are_expected():
    with pytest.raises(NotFound):
        run(query(10), DELETE, DELETE)
    with pytest.raises(AlreadyExists):
        run(query(10), CREATE, CREATE)
    with pytest.raises(NotFound):
        run(query(10), {"event": "Z", "row": {}})
    expected = run(query(10), CREATE, {**CREATE, "expect_error": True}, {"delete": "z", "expect_error": True})
    assert expected.errors == ((4, "ALREADY_EXISTS"), (5, "QUERY_NOT_FOUND"))


def test_operations_change_nothing():
    operations = [
        {"force": {"query": "q", "order": ["A", "B"]}},
        {"force": {"groups": {"q": 1}}},
        {"scale": {"partitions": 3}},
        {"optimize": "full"},
        {"restart": "kill"},
    ]
    plain = run(query(10), a(1), EPOCH, b(2))
    assert run(query(10), a(1), *operations, EPOCH, *operations, b(2)) == plain
