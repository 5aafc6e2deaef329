"""The judge: it finds every kind of difference and no other."""

from __future__ import annotations

from tests.oracle import check, check_report, rows_by_query
from tests.oracle.cases import DELETE, EPOCH, a, b, query, run

LIVE = run(query(10), a(1), b(2), a(11), b(12))
GONE = run(query(10), a(1), b(2), a(11), b(12), EPOCH, DELETE)
RUNNING = {"q": {"state": "RUNNING", "active_from": None, "active_until": None}}
DELETED = {"q": {"state": "DELETED", "active_from": None, "active_until": 11}}


def row(start, at, bt, **more):
    return {
        "query": "q",
        "window_start": start,
        "window_end": start + 10,
        "row": {"A.ts": at, "B.ts": bt},
        **more,
    }


FIRST, SECOND = row(0, 1, 2), row(10, 11, 12)


def differences(expected, queries, *rows):
    return check(expected, rows_by_query(rows), queries)


def test_what_was_expected_in_any_order():
    assert differences(LIVE, RUNNING, SECOND, FIRST) == []


def test_missing_unexpected_and_repeated_rows():
    assert differences(LIVE, RUNNING, FIRST)[0] == "q: missing 1x in [10, 20): {'A.ts': 11, 'B.ts': 12}"
    assert differences(LIVE, RUNNING, FIRST, FIRST, SECOND)[0].startswith("q: repeated 1x in [0, 10)")
    wrong_window = {**FIRST, "window_start": -10, "window_end": 0}
    assert differences(LIVE, RUNNING, FIRST, SECOND, wrong_window)[0].startswith("q: unexpected 1x in [-10, 0)")


def test_values_have_types():
    told = differences(LIVE, RUNNING, FIRST, row(10, 11.0, 12))
    assert [t.split(" in ")[0] for t in told if " in [" in t] == ["q: missing 1x", "q: unexpected 1x"]
    assert differences(LIVE, RUNNING, row(0, True, 2), SECOND)


def test_columns_have_names():
    assert differences(LIVE, RUNNING, FIRST, {**SECOND, "row": {"ts": 11, "B.ts": 12}})
    assert differences(LIVE, RUNNING, FIRST, {**SECOND, "row": {"A.ts": 11, "B.ts": 12, "x": None}})


def test_a_deleted_query_owes_its_closed_windows_only():
    assert differences(GONE, DELETED, FIRST) == []
    assert differences(GONE, DELETED, FIRST, SECOND) == []
    assert differences(GONE, DELETED, SECOND)[0].startswith("q: missing 1x in [0, 10)")
    assert differences(GONE, DELETED, FIRST, SECOND, SECOND)[0].startswith("q: repeated 1x in [10, 20)")


def test_state_and_bounds():
    assert differences(GONE, RUNNING, FIRST) == [
        "q: state is 'RUNNING', expected 'DELETED'",
        "q: active_until is None, expected 11",
    ]
    late = {"q": {**RUNNING["q"], "active_from": 10}}
    assert differences(LIVE, late, FIRST, SECOND) == ["q: active_from is 10, expected None"]
    counted = {"q": {**RUNNING["q"], "rows": 3}}
    assert differences(LIVE, counted, FIRST, SECOND) == ["q: rows is 3, expected 2"]


def test_queries_nobody_knows_and_queries_nobody_reports():
    assert differences(LIVE, {}, FIRST, SECOND) == ["q: created, but not reported"]
    stranger = {**FIRST, "query": "z"}
    assert differences(LIVE, RUNNING, FIRST, SECOND, stranger) == ["z: rows of a query that never existed"]
    assert differences(LIVE, {**RUNNING, "z": {}}, FIRST, SECOND) == ["z: reported, but never created"]


def test_a_join_row_has_no_revision():
    assert len(differences(LIVE, RUNNING, FIRST, {**SECOND, "revision": 1})) == 1


def test_long_differences_are_cut():
    many = [row(10 * i, 10 * i, 10 * i) for i in range(2, 30)]
    told = differences(LIVE, RUNNING, FIRST, SECOND, *many)
    assert len(told) == 7
    assert "23 more different rows, 28 in all" in told[5]


def test_the_report_of_a_run():
    report = {"tuples": {"A": 2, "B": 2}, "late_dropped": {"A": 0}, "dead_letter": {"A": 1}}
    assert check_report(LIVE, report) == ["stream A: dead_letter is 1, expected 0"]
