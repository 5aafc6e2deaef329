"""Streams that fall silent: with an idle timeout they stop holding others back, and may come back."""

from __future__ import annotations

import pytest

from tests.runtime.rig import Rig

AB = "SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)"
AC = "SELECT A.n AS a, C.n AS c FROM A JOIN C ON A.k = C.k WINDOW TUMBLING (SIZE 1 SECOND)"


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path, partitions=1)
    rig.stream("A", k="BIGINT", n="INT")
    rig.stream("B", k="BIGINT", n="INT", idle=5000)
    rig.stream("C", k="BIGINT", n="INT")
    rig.create("ab", AB)
    rig.create("ac", AC)
    return rig


def second(rig, i, *streams, at=None):
    """Second i of event time; one second of processing time passes before it."""
    rig.clock.now += 1000
    rig.epoch({name: [(1, i, 1000 * i if at is None else at)] for name in streams})


def watermark(rig, id):
    return rig.engine.query(id).watermark


def silence(rig):
    """B speaks in second 0 and then not until it counts as idle."""
    second(rig, 0, "A", "B", "C")
    for i in range(1, 8):
        second(rig, i, "A", "C")


def test_a_silent_stream_holds_the_watermark_back_until_its_timeout(rig):
    second(rig, 0, "A", "B", "C")
    for i in range(1, 5):
        second(rig, i, "A", "C")
        assert watermark(rig, "ab") == 0, "4 s of silence are not 5"
    second(rig, 5, "A", "C")
    assert watermark(rig, "ab") == 5000
    second(rig, 6, "A", "C")
    assert watermark(rig, "ab") == 6000
    assert watermark(rig, "ac") == 6000


def test_without_a_timeout_a_silent_stream_holds_back_for_ever(tmp_path):
    rig = Rig(tmp_path, partitions=1)
    for name in "AB":
        rig.stream(name, k="BIGINT", n="INT")
    rig.create("ab", AB)
    second(rig, 0, "A", "B")
    for i in range(1, 50):
        second(rig, i, "A")
    assert watermark(rig, "ab") == 0
    assert len(rig.sources("A")) == 50


def test_while_a_stream_is_idle_old_buckets_go(rig):
    silence(rig)
    assert all(s.max_slice >= 6000 for s in rig.sources("A"))


def test_a_stream_that_comes_back_in_time_joins_as_if_it_had_never_been_away(rig):
    silence(rig)
    second(rig, 7, "B")
    assert rig.rows("ab") == [(0, 1000, 0, 0), (7000, 8000, 7, 7)]
    second(rig, 8, "A", "B", "C")
    assert rig.rows("ab")[-1] == (8000, 9000, 8, 8)


def test_a_stream_that_comes_back_with_the_past_finds_closed_windows_and_breaks_nothing(rig):
    silence(rig)
    before = rig.rows("ac")
    # second 3 is over for this query, its partners are gone; the tuples themselves are not late on their stream
    second(rig, 3, "B", at=3500)
    assert rig.engine.stream("B").late_dropped == 0
    assert rig.rows("ab") == [(0, 1000, 0, 0)]
    assert rig.rows("ac") == before
    # what is open is complete
    for i in (8, 9):
        second(rig, i, "A", "B", "C")
    assert rig.rows("ab") == [(0, 1000, 0, 0), (8000, 9000, 8, 8), (9000, 10000, 9, 9)]
    assert [row[0] for row in rig.rows("ac")] == [1000 * i for i in range(10)]


def test_other_queries_get_the_same_rows_whatever_the_idle_stream_does(tmp_path):
    delivered = []
    for returns in (None, 3500, 6999, 7000, 12_000):
        rig = Rig(tmp_path / str(returns), partitions=2)
        for name, idle in (("A", None), ("B", 5000), ("C", None)):
            rig.stream(name, k="BIGINT", n="INT", idle=idle)
        rig.create("ab", AB)
        rig.create("ac", AC)
        silence(rig)
        for i in range(8, 12):
            if returns is not None and i == 9:
                second(rig, i, "A", "B", "C", at=returns if returns > 9000 else None)
                second(rig, i, "B", at=returns)
            second(rig, i, "A", "C")
            rig.reopen(kill=i % 2 == 0)
        delivered.append([row for row in rig.rows("ac") if row[0] < 9000])
    assert all(rows == delivered[0] for rows in delivered)
    assert len(delivered[0]) == 9


def test_a_stream_that_never_spoke_becomes_idle_too(rig):
    for i in range(7):
        second(rig, i, "A", "C")
    assert watermark(rig, "ab") == 6000
    second(rig, 7, "A", "B", "C")
    assert rig.rows("ab") == [(7000, 8000, 7, 7)]


def test_when_all_streams_are_idle_nothing_moves_back(tmp_path):
    rig = Rig(tmp_path, partitions=1)
    for name in "AB":
        rig.stream(name, k="BIGINT", n="INT", idle=2000)
    rig.create("ab", AB)
    second(rig, 4, "A", "B")
    for _ in range(4):
        rig.clock.now += 1000
        rig.epoch()
    assert watermark(rig, "ab") == 4000
    second(rig, 4, "A", "B")
    assert len(rig.rows("ab")) == 4
