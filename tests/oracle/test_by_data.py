"""Sessions, count and punctuated windows by hand, with each of their rules for revisions."""

from __future__ import annotations

from dataclasses import replace

from optimizer.model.windows import CountWindow, PunctuatedWindow, SessionWindow
from tests.folds import count, is_
from tests.oracle.cases import CREATE, DELETE, EPOCH, ONE, a, asked, deliveries, run, watermark


def total(window, *lines, having=None, where=(), ttl=None, **timing):
    """(window_start, window_end, revision, k, sum of i) by k."""
    select = {"k": "#0", "total": ONE.agg("SUM", "A.i")}
    query = ONE.query(window=window, group=["A.k"], select=select, having=having, where=where)
    return deliveries(replace(query, state_ttl_ms=ttl), *lines, **timing)


def sessions(*lines, gap=5, **how):
    return total(SessionWindow(gap), *lines, **how)


def counts(*lines, size=2, advance=None, **how):
    return total(CountWindow(size, advance or size), *lines, **how)


PUNCTUATION = PunctuatedWindow(is_(ONE.column("A.d"), "=", ONE.column("A.d")), "d = d")
"""Every tuple that has a d."""


def punctuated(*lines, **how):
    return total(PUNCTUATION, *lines, **how)


# -- sessions -------------------------------------------------------------------------------------------------------


def test_a_distance_equal_to_the_gap_belongs_together():
    assert sessions(a(0, i=1), a(5, i=2), a(11, i=4)) == [(0, 10, 0, 1, 3), (11, 16, 0, 1, 4)]


def test_sessions_out_of_order_and_per_group():
    lines = [a(8, i=1), a(30, i=2), a(4, i=4), a(0, k=2, i=8), a(6, k=2, i=16), a(12, i=32)]
    assert sessions(*lines) == [(0, 5, 0, 2, 8), (4, 17, 0, 1, 37), (6, 11, 0, 2, 16), (30, 35, 0, 1, 2)]


def test_a_session_closes_when_the_watermark_is_beyond_its_end():
    assert sessions(a(0, i=1), watermark("A", 5), flush=False) == []
    assert sessions(a(0, i=1), watermark("A", 6), flush=False) == [(0, 5, 0, 1, 1)]
    # and a tuple at the watermark 5 is in time and extends it
    assert sessions(a(0, i=1), watermark("A", 5), EPOCH, a(5, i=2)) == [(0, 10, 0, 1, 3)]


def test_a_late_tuple_inside_is_the_next_revision():
    lines = [a(0, i=1), a(4, i=2), a(20, i=4), EPOCH, a(2, i=8)]
    assert sessions(*lines, lateness=99) == [(0, 9, 0, 1, 3), (0, 9, 1, 1, 11), (20, 25, 0, 1, 4)]


def test_a_session_may_grow_at_both_ends():
    lines = [a(10, i=1), a(40), EPOCH, a(7, i=2), EPOCH, a(12, i=4)]
    assert sessions(*lines, lateness=99, flush=False) == [
        (7, 15, 1, 1, 3),
        (7, 17, 2, 1, 7),
        (10, 15, 0, 1, 1),
    ]


def test_a_new_session_among_delivered_ones_begins_at_0():
    lines = [a(0, i=1), a(40), EPOCH, a(20, i=2)]
    assert sessions(*lines, lateness=99, flush=False) == [(0, 5, 0, 1, 1), (20, 25, 0, 1, 2)]


def test_a_session_that_absorbs_others_is_above_all_of_them():
    # [0,5) reaches revision 1, [8,13) revision 0; a4 joins them: revision 2; then one more tuple: 3
    lines = [a(0, i=1), a(8, i=2), a(40), EPOCH, a(0, i=4), EPOCH, a(4, i=8), EPOCH, a(8, i=16)]
    assert sessions(*lines, lateness=99, flush=False) == [
        (0, 5, 0, 1, 1),
        (0, 5, 1, 1, 5),
        (0, 13, 2, 1, 15),
        (0, 13, 3, 1, 31),
        (8, 13, 0, 1, 2),
    ]


def test_a_session_that_opens_again_comes_when_it_closes():
    # [0,5) is delivered with watermark 8; late a5 makes it [0,10), which is open until the watermark is 11
    lines = [a(0, i=1), watermark("A", 8), EPOCH, a(5, i=2), EPOCH, watermark("A", 10), EPOCH, a(1, k=1, i=4)]
    assert sessions(*lines, lateness=99, flush=False) == [(0, 5, 0, 1, 1)]
    assert sessions(*lines, EPOCH, watermark("A", 11), lateness=99, flush=False) == [(0, 5, 0, 1, 1), (0, 10, 1, 1, 7)]


def test_an_open_session_absorbs_a_delivered_one():
    # a7 is open (its end is 12) when a3 ties it to the delivered [0,5)
    lines = [a(0, i=1), a(7, i=2), EPOCH, a(3, i=4)]
    assert sessions(*lines, lateness=99, flush=False) == [(0, 5, 0, 1, 1)]
    assert sessions(*lines, lateness=99) == [(0, 5, 0, 1, 1), (0, 12, 1, 1, 7)]


def test_a_session_that_was_held_back_replaces_nothing():
    # total > 1: [0,5) is held back, [8,13) delivered as 0; together they are revision 1
    having = is_(ONE.agg("SUM", "A.i"), ">", 1)
    lines = [a(0, i=1), a(8, i=2), a(40), EPOCH, a(4, i=8)]
    assert sessions(*lines, having=having, lateness=99, flush=False) == [(0, 13, 1, 1, 11), (8, 13, 0, 1, 2)]


def test_held_back_for_a_while_the_session_goes_on_from_what_was_delivered():
    having = is_(ONE.agg("SUM", "A.i"), ">", 0)
    lines = [a(0, i=1), a(40), EPOCH, a(3, i=-5), EPOCH, a(3, i=9)]
    assert sessions(*lines, having=having, lateness=99, flush=False) == [(0, 5, 0, 1, 1), (0, 8, 1, 1, 5)]


def test_sessions_are_made_of_what_passes():
    lines = [a(0, i=1), a(4, i=-1), a(8, i=2)]
    assert sessions(*lines, where=[("A.i", ">", 0)]) == [(0, 5, 0, 1, 1), (8, 13, 0, 1, 2)]


def test_a_session_query_sees_tuples_from_its_creation_on():
    # a10 was accepted: T = 11; late a9 is not seen, late a11 is, and a14 begins no earlier
    lines = [a(10, i=1), EPOCH, CREATE, a(14, i=2), EPOCH, a(9, i=4), a(11, i=8)]
    query = ONE.query(window=SessionWindow(5), select={"total": ONE.agg("SUM", "A.i")})
    expected = asked(run(query, *lines, lateness=99))
    assert expected.active_from == 11
    assert deliveries(query, *lines, lateness=99) == [(11, 19, 0, 10)]


def test_a_deleted_session_query_owes_what_was_delivered():
    lines = [a(0, i=1), a(9, i=2), EPOCH, DELETE, a(40)]
    assert sessions(*lines) == [(0, 5, 0, 1, 1)]


# -- count windows --------------------------------------------------------------------------------------------------


def test_positions_in_order_of_time_then_arrival():
    lines = [a(5, i=1), a(3, i=2), a(5, i=4), a(1, i=8), a(9, i=16)]
    # order: 1(8) 3(2) 5(1) 5(4) 9(16)
    assert counts(*lines) == [(0, 2, 0, 1, 10), (2, 4, 0, 1, 5)], "the third one is not full"
    assert counts(*lines, size=3, advance=1) == [(0, 3, 0, 1, 11), (1, 4, 0, 1, 7), (2, 5, 0, 1, 21)]
    assert counts(*lines, size=1, advance=3) == [(0, 1, 0, 1, 8), (3, 4, 0, 1, 4)]


def test_positions_count_what_passes_per_group():
    lines = [a(1, i=1), a(2, i=-1), a(3, k=2, i=2), a(4, i=4), a(5, k=2, i=8)]
    assert counts(*lines, where=[("A.i", ">", 0)]) == [(0, 2, 0, 1, 5), (0, 2, 0, 2, 10)]


def test_a_full_window_closes_with_the_time_of_its_last_tuple():
    assert counts(a(1, i=1), a(9, i=2), delay=1, flush=False) == []
    assert counts(a(1, i=1), a(9, i=2), flush=False) == [(0, 2, 0, 1, 3)]
    assert counts(a(1, i=1), a(9, i=2), delay=1) == [(0, 2, 0, 1, 3)]
    assert counts(a(1, i=1), flush=True) == []


def test_a_late_tuple_shifts_every_window_behind_it():
    #   1  3 | 5  7 | 9 11 |       4 comes late:   1  3 | 4  5 | 7  9 | 11
    lines = [a(1, i=1), a(3, i=2), a(5, i=4), a(7, i=8), a(9, i=16), a(11, i=32), EPOCH, a(4, i=64)]
    assert counts(*lines, lateness=99) == [
        (0, 2, 0, 1, 3),
        (2, 4, 0, 1, 12),
        (2, 4, 1, 1, 68),
        (4, 6, 0, 1, 48),
        (4, 6, 1, 1, 24),
    ]


def test_a_late_tie_goes_behind_what_has_arrived():
    lines = [a(1, i=1), a(3, i=2), a(3, i=4), a(9, i=8), EPOCH, a(3, i=16)]
    # order now: 1 | 3(2) | 3(4) | 3(16) | 9: only positions from 3 on change
    assert counts(*lines, lateness=99) == [(0, 2, 0, 1, 3), (2, 4, 0, 1, 12), (2, 4, 1, 1, 20)]


def test_a_late_tuple_may_fill_a_window():
    # 1 9 are full; late 2 makes [1 2] and [9 -]
    lines = [a(1, i=1), a(9, i=2), EPOCH, a(2, i=4), EPOCH, a(3, i=8)]
    assert counts(*lines, lateness=99) == [(0, 2, 0, 1, 3), (0, 2, 1, 1, 5), (2, 4, 0, 1, 10)]


def test_a_late_tuple_in_a_gap_between_windows_moves_those_behind():
    # size 1 advance 2: positions 0, 2; late 2 is at position 1
    lines = [a(1, i=1), a(3, i=2), a(5, i=4), EPOCH, a(2, i=8)]
    assert counts(*lines, size=1, advance=2, lateness=99) == [(0, 1, 0, 1, 1), (2, 3, 0, 1, 4), (2, 3, 1, 1, 2)]


def test_positions_count_from_the_creation_on():
    lines = [a(1, i=1), EPOCH, CREATE, a(1, i=2), a(2, i=4), a(3, i=8)]
    assert counts(*lines, lateness=99) == [(0, 2, 0, 1, 12)]


# -- count windows with a STATE_TTL ---------------------------------------------------------------------------------


def test_positions_begin_anew_after_a_pause_that_is_longer():
    lines = [a(0, i=1), a(10, i=2), a(21, i=4), a(31, i=8)]
    assert counts(*lines, ttl=10) == [(0, 2, 0, 1, 3), (0, 2, 0, 1, 12)]
    assert counts(*lines, ttl=11) == [(0, 2, 0, 1, 3), (2, 4, 0, 1, 12)], "exactly that long is no pause"
    assert counts(*lines, size=3, ttl=11) == [(0, 3, 0, 1, 7)]
    assert counts(*lines, size=3, ttl=10) == [], "what is not full when its run ends never closes"


def test_a_pause_is_of_what_passes_in_a_group():
    # a20 does not pass, and b is another group
    lines = [a(0, i=1), a(10, k=2, i=2), a(20, i=-1), a(25, i=4), a(30, k=2, i=8)]
    assert counts(*lines, where=[("A.i", ">", 0)], ttl=20) == [(0, 2, 0, 2, 10)]
    assert counts(*lines, where=[("A.i", ">", 0)], ttl=25) == [(0, 2, 0, 1, 5), (0, 2, 0, 2, 10)]


def test_a_long_ttl_changes_nothing():
    lines = [a(1, i=1), a(3, i=2), a(5, i=4), a(7, i=8), a(9, i=16), a(11, i=32), EPOCH, a(4, i=64), EPOCH, a(0, i=128)]
    assert counts(*lines, lateness=99, ttl=11) == counts(*lines, lateness=99)


def test_overlapping_windows_stay_within_their_run():
    lines = [a(0, i=1), a(1, i=2), a(2, i=4), a(50, i=8), a(51, i=16)]
    assert counts(*lines, size=2, advance=1, ttl=9) == [(0, 2, 0, 1, 3), (0, 2, 0, 1, 24), (1, 3, 0, 1, 6)]


def test_a_late_tuple_shifts_its_own_run_only():
    #   1 3 | 5       50 52 |        2 comes late:   1 2 | 3 5
    lines = [a(1, i=1), a(3, i=2), a(5, i=4), a(50, i=8), a(52, i=16), EPOCH, a(2, i=32)]
    assert sorted(counts(*lines, lateness=99, ttl=9)) == [
        (0, 2, 0, 1, 3),
        (0, 2, 0, 1, 24),
        (0, 2, 1, 1, 33),
        (2, 4, 0, 1, 6),
    ]


def test_runs_of_one_group_number_their_revisions_apart():
    lines = [a(1, i=1), a(3, i=2), a(50, i=8), a(52, i=16), EPOCH, a(2, i=32), EPOCH, a(51, i=64), EPOCH, a(0, i=128)]
    assert sorted(counts(*lines, lateness=99, ttl=9)) == [
        (0, 2, 0, 1, 3),
        (0, 2, 0, 1, 24),
        (0, 2, 1, 1, 33),
        (0, 2, 1, 1, 72),
        (0, 2, 2, 1, 129),
        (2, 4, 0, 1, 34),
    ]


def test_a_late_tuple_that_joins_two_runs():
    #   0 4 |   20 24 |        12 comes late:   0 4 | 12 20 | 24
    lines = [a(0, i=1), a(4, i=2), a(20, i=4), a(24, i=8), EPOCH, a(12, i=16)]
    assert counts(*lines, lateness=99, ttl=8) == [
        (0, 2, 0, 1, 3),
        (0, 2, 0, 1, 12),  # of the second run; nothing replaces it
        (2, 4, 0, 1, 20),  # no run had that window before
    ]
    assert counts(*lines, lateness=99, ttl=7) == [(0, 2, 0, 1, 3), (0, 2, 0, 1, 12)], "12 is a run of its own"


def test_the_window_of_joined_runs_is_above_all_that_they_had():
    #   0     20 24 | (revision 1 after late 22)     with 10 in between: 0 10 | 20 22 |
    lines = [a(0, i=1), a(20, i=2), a(24, i=4), EPOCH, a(22, i=8), EPOCH, a(10, i=16)]
    assert counts(*lines, lateness=99, ttl=10) == [
        (0, 2, 0, 1, 6),
        (0, 2, 1, 1, 10),
        (0, 2, 2, 1, 17),
        (2, 4, 0, 1, 10),
    ]


def test_both_of_two_rows_are_replaced():
    # [0 4] has revision 0, [20 22] revision 1; joined by 12, the first window stays [0 4] and does not come again;
    # late -1 makes it [-1 0]: one above both
    lines = [a(0, i=1), a(4, i=2), a(20, i=4), a(24, i=8), EPOCH, a(22, i=16), EPOCH, a(12, i=32), EPOCH, a(-1, i=64)]
    assert [r for r in counts(*lines, lateness=99, ttl=8) if r[0] == 0] == [
        (0, 2, 0, 1, 3),
        (0, 2, 0, 1, 12),
        (0, 2, 1, 1, 20),
        (0, 2, 2, 1, 65),
    ]


def test_what_was_held_back_of_a_run_replaces_nothing():
    having = is_(ONE.agg("SUM", "A.i"), ">", 3)
    lines = [a(0, i=1), a(4, i=2), a(20, i=4), a(24, i=8), EPOCH, a(12, i=16), EPOCH, a(2, i=32)]
    # [0 4] is held back, [20 24] is revision 0 at the same start; [0 2] is 1
    assert counts(*lines, lateness=99, ttl=8, having=having) == [
        (0, 2, 0, 1, 12),
        (0, 2, 1, 1, 33),
        (2, 4, 0, 1, 20),
        (2, 4, 1, 1, 18),
        (4, 6, 0, 1, 12),
    ]


def test_a_session_is_the_same_with_a_ttl():
    lines = [a(0, i=1), a(4, i=2), a(20, i=4), EPOCH, a(2, i=8), EPOCH, a(9, i=16)]
    assert sessions(*lines, lateness=99, ttl=5) == sessions(*lines, lateness=99)


# -- punctuated windows ---------------------------------------------------------------------------------------------


def test_windows_lie_between_edges_and_a_punctuation_opens_one():
    lines = [a(3, i=1), a(5, i=2), a(8, i=4, d=1.0), a(9, i=8), a(12, i=16, d=1.0)]
    assert punctuated(*lines) == [(3, 8, 0, 1, 3), (8, 12, 0, 1, 12)], "nothing closes the last one"


def test_edges_come_from_everything_that_is_accepted():
    # neither the first tuple nor the punctuations are in the group or pass WHERE
    lines = [a(1, k=2, i=-1), a(5, i=2), a(8, k=2, i=-1, d=1.0), a(9, i=8), a(12, k=3, i=-1, d=1.0)]
    assert punctuated(*lines, where=[("A.i", ">", 0)]) == [(1, 8, 0, 1, 2), (8, 12, 0, 1, 8)]


def test_two_punctuations_at_one_time_are_one_edge():
    lines = [a(1, i=1), a(5, i=2, d=1.0), a(5, i=4, d=2.0), a(7, i=8, d=1.0)]
    assert punctuated(*lines) == [(1, 5, 0, 1, 1), (5, 7, 0, 1, 6)]


def test_a_punctuated_window_closes_with_its_end():
    lines = [a(1, i=1), a(5, d=1.0)]
    assert punctuated(*lines, delay=1, flush=False) == []
    assert punctuated(*lines, flush=False) == [(1, 5, 0, 1, 1)]
    assert punctuated(*lines, delay=1) == [(1, 5, 0, 1, 1)]


def test_a_late_tuple_is_a_revision():
    lines = [a(1, i=1), a(5, d=1.0), EPOCH, a(3, i=2), EPOCH, a(3, k=2, i=4)]
    assert punctuated(*lines, lateness=99) == [(1, 5, 0, 1, 1), (1, 5, 1, 1, 3), (1, 5, 0, 2, 4)]


def test_a_late_punctuation_splits_its_window():
    # [1,9) with 1, 3, 6 is delivered; a punctuation at 5 makes [1,5) the next revision and [5,9) a new window
    lines = [a(1, i=1), a(3, i=2), a(6, i=4), a(9, d=1.0), EPOCH, a(5, i=8, d=1.0)]
    assert punctuated(*lines, lateness=99) == [(1, 5, 1, 1, 3), (1, 9, 0, 1, 7), (5, 9, 0, 1, 12)]


def test_a_split_also_changes_groups_that_lose_no_tuple():
    # the group of 1 keeps all its tuples, but its window now ends at 5; the group of 2 has none left in [1,5)
    lines = [a(1, k=1, i=1), a(6, k=2, i=2), a(9, k=3, d=1.0), EPOCH, a(5, k=3, d=1.0)]
    assert punctuated(*lines, lateness=99) == [
        (1, 5, 1, 1, 1),
        (1, 9, 0, 1, 1),
        (1, 9, 0, 2, 2),
        (5, 9, 0, 2, 2),
        (5, 9, 0, 3, None),
    ]


def test_a_part_without_tuples_counts_on_when_one_comes():
    # group 2 was delivered with start 1 once, lost its tuple to [5,9), and gets another one
    lines = [a(1, k=1), a(6, k=2, i=2), a(9, k=3, d=1.0), EPOCH, a(5, k=3, d=1.0), EPOCH, a(2, k=2, i=4)]
    assert [r for r in punctuated(*lines, lateness=99) if r[3] == 2] == [
        (1, 5, 1, 2, 4),
        (1, 9, 0, 2, 2),
        (5, 9, 0, 2, 2),
    ]


def test_a_tuple_before_the_first_moves_the_first_edge():
    # the window of [4,9) now is [1,9): another start, so it begins at 0
    lines = [a(4, i=1), a(9, d=1.0), EPOCH, a(1, i=2)]
    assert punctuated(*lines, lateness=99) == [(1, 9, 0, 1, 3), (4, 9, 0, 1, 1)]
    # if the first tuple is a punctuation, it stays an edge, and there is one window more
    lines = [a(4, i=1, d=1.0), a(9, d=1.0), EPOCH, a(1, i=2)]
    assert punctuated(*lines, lateness=99) == [(1, 4, 0, 1, 2), (4, 9, 0, 1, 1)]


def test_edges_begin_with_the_creation():
    # T = 4: neither a2 nor late a3 is seen; the first edge is 6
    lines = [a(2, d=1.0), a(3, i=1), EPOCH, CREATE, a(3, i=2, d=1.0), a(6, i=4), a(9, d=1.0)]
    assert punctuated(*lines, lateness=99) == [(6, 9, 0, 1, 4)]


def test_without_groups():
    query = ONE.query(window=PUNCTUATION, select={"n": count()})
    assert deliveries(query, a(1, k=1), a(2, k=2), a(3, d=1.0)) == [(1, 3, 0, 2)]
