"""Windows that follow from tuples, revised after their partials were carried: revisions count on from what stands."""

from __future__ import annotations

import pytest

from runtime.engine import close_stage
from tests.lives.engine import differences, play

EPOCH = {"epoch": True}


def a(ts, i=1, k=1):
    return {"event": "A", "row": {"ts": ts, "k": k, "i": i}}


def life(window, *lines, lateness):
    columns = {"ts": "TIMESTAMP", "k": "BIGINT", "i": "INT"}
    stream = {"stream": "A", "schema": columns, "time": "ts", "allowed_lateness_ms": lateness}
    sql = f"SELECT k, SUM(i) AS total FROM A GROUP BY k WINDOW {window}"
    return [stream, {"create": "q", "sql": sql}, *lines]


def rows(lines):
    """(window_start, revision, total) of group 1."""
    assert differences(lines) == []
    results, _, _ = play(lines)
    return [(r["window_start"], r["revision"], r["row"]["total"]) for r in results if r["row"]["k"] == 1]


@pytest.mark.parametrize("carry_from", [1, 2, 8])
@pytest.mark.parametrize(
    ("window", "wanted"),
    [
        ("COUNT (SIZE 2)", [(0, 0, 2), (2, 0, 101), (0, 1, 8), (2, 1, 2), (2, 2, 10), (4, 0, 101)]),
        ("SESSION (12 MS)", [(10, 0, 103), (10, 1, 110), (10, 2, 119)]),
        ("PUNCTUATED BY (i = 100)", [(10, 0, 3), (10, 1, 10), (10, 2, 19)]),
    ],
)
def test_the_epoch_that_carries_brings_a_late_tuple_and_no_watermark(monkeypatch, window, wanted, carry_from):
    """A replay that began with the last watermark instead of that epoch would count its revisions twice."""
    monkeypatch.setattr(close_stage, "CARRY_FROM", carry_from)
    late = [line for n in range(6) for line in (a(11, n, k=2), EPOCH)]
    first = [a(10), a(20), a(30), a(40, 100), EPOCH, {"watermark": "A", "ts": 60}]
    lines = [*first, *late, a(15, 7), EPOCH, a(25, 9), EPOCH]
    assert rows(life(window, *lines, lateness=1000)) == wanted


@pytest.mark.parametrize("carry_from", [1, 8])
def test_a_tuple_between_two_count_windows_may_still_move_into_one(monkeypatch, carry_from):
    """250 is in no window, until 230 comes before it; so it must be kept although no window holds it."""
    monkeypatch.setattr(close_stage, "CARRY_FROM", carry_from)
    other = [line for n in range(8) for line in (a(300, n, k=2), EPOCH)]
    lines = [a(10, 1), a(20, 2), a(250, 4), a(300, k=2), EPOCH, *other, a(230, 8), EPOCH]
    assert rows(life("COUNT (SIZE 1 ADVANCE BY 3)", *lines, lateness=100)) == [(0, 0, 1), (3, 0, 4)]
