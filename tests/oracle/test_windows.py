"""Which windows a row belongs to, drawn on the time axis."""

from __future__ import annotations

from tests.oracle.cases import a, b, query, rows


def test_tumbling_windows_are_half_open():
    # time     0         10        20
    # A        |a0       |a10      |
    # B        |       b9|b10      |b20
    # windows  [--- 0 ---[--- 10 --[---
    assert rows(query(10), a(0), a(10), b(9), b(10), b(20)) == [(0, 10, 0, 9), (10, 20, 10, 10)]


def test_windows_before_the_unix_epoch_are_aligned_to_it_too():
    # time     -10       0         10
    # A        |  a-7  a-1|        |
    # B        |b-10     |b0
    # windows  [-- -10 --[--- 0 ---[
    assert rows(query(10), a(-7), a(-1), b(-10), b(0)) == [(-10, 0, -7, -10), (-10, 0, -1, -10)]


def test_a_combination_is_a_row_of_every_hopping_window_that_holds_it():
    # time     0    5    10   15   20
    # A        |    |  a8|    |
    # B        |    |    |b11 |
    # [0,10)   [---------[             a8
    # [5,15)        [---------[        a8 b11   <- row
    # [10,20)            [---------[      b11
    assert rows(query((10, 5)), a(8), b(11)) == [(5, 15, 8, 11)]
    # both in [5,10): they share [0,10) and [5,15)
    assert rows(query((10, 5)), a(8), b(9)) == [(0, 10, 8, 9), (5, 15, 8, 9)]


def test_the_advance_need_not_divide_the_size():
    # size 10, advance 4:  [0,10) [4,14) [8,18) ... and before 0: [-4,6) [-8,2)
    # A a5, B b9           both in [0,10), [4,14); not in [-4,6) (b9), not in [8,18) (a5)
    assert rows(query((10, 4)), a(5), b(9)) == [(0, 10, 5, 9), (4, 14, 5, 9)]


def test_gaps_between_windows_swallow_tuples():
    # size 5, advance 10
    # time     0    5    10   15   20
    # windows  [----[    [----[    [---
    # A        | a2 |a5  |    |
    # B        |  b4| b7 |b12 |
    assert rows(query((5, 10)), a(2), a(5), b(4), b(7), b(12)) == [(0, 5, 2, 4)]


def test_a_window_longer_than_all_data_holds_everything():
    assert rows(query(1_000_000), a(5), b(999_999)) == [(0, 1_000_000, 5, 999_999)]


def test_tuples_of_different_epochs_meet():
    assert rows(query(10), a(1), {"epoch": True}, b(2)) == [(0, 10, 1, 2)]


def test_times_beyond_what_a_double_can_count():
    big = 1 << 60
    assert rows(query(2), a(big + 1), b(big), b(big + 2)) == [(big, big + 2, big + 1, big)]
