"""The judge: it finds every kind of difference and no other."""

from __future__ import annotations

from optimizer.model.windows import Unwindowed
from tests.oracle import check, check_report, rows_by_query
from tests.oracle.cases import DELETE, EPOCH, ONE, a, b, query, run

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


# -- queries that fold, and rows without a window -------------------------------------------------------------------

BY_KEY = ONE.query(
    window=10,
    group=["A.k"],
    select={"k": "#0", "n": ONE.agg("APPROX_COUNT_DISTINCT", "A.i"), "mean": ONE.agg("AVG", "A.d")},
)
FOLDED = run(
    BY_KEY, a(1, k=1, i=1, d=0.1), a(2, k=1, i=2, d=0.2), a(3, k=2, d=3.0), a(10), EPOCH, a(4, k=1, d=0.3), lateness=9
)


def folded(k, n, mean, revision=0, start=0):
    row = {"k": k, "n": n, "mean": mean}
    return {"query": "q", "window_start": start, "window_end": start + 10, "row": row, "revision": revision}


FOLDS = [folded(1, 2, 0.15), folded(2, 0, 3.0), folded(1, 2, 0.2, revision=1), folded(1, 0, None, start=10)]


def test_rows_of_groups_with_their_revisions():
    assert differences(FOLDED, RUNNING, *FOLDS) == []
    assert differences(FOLDED, RUNNING, *FOLDS[:2], FOLDS[3])[0].startswith("q: missing 1x in [0, 10)")
    unnumbered = [*FOLDS[:2], {**FOLDS[2], "revision": 0}, FOLDS[3]]
    assert len([t for t in differences(FOLDED, RUNNING, *unnumbered) if " in [0" in t]) == 2
    assert differences(FOLDED, RUNNING, *FOLDS, FOLDS[1])[0].startswith("q: repeated 1x in [0, 10)")


def test_sums_in_another_order_are_the_same():
    almost = [{**f, "row": {**f["row"], "mean": f["row"]["mean"] and f["row"]["mean"] * (1 + 1e-12)}} for f in FOLDS]
    assert differences(FOLDED, RUNNING, *almost) == []
    wrong = [folded(1, 2, 0.15 * (1 + 1e-6)), *FOLDS[1:]]
    assert [t.split(" in ")[0] for t in differences(FOLDED, RUNNING, *wrong)[::2]] == [
        "q: missing 1x",
        "q: unexpected 1x",
    ]
    assert differences(FOLDED, RUNNING, folded(1, 2, None), *FOLDS[1:])
    assert differences(FOLDED, RUNNING, folded(1, 2, 0), *FOLDS[1:])


def test_every_row_finds_only_one_other():
    almost = folded(2, 0, 3.0 + 1e-12)
    assert differences(FOLDED, RUNNING, *FOLDS, almost)[0].startswith("q: unexpected 1x in [0, 10)")


def test_estimates_may_be_wrong_by_a_little():
    assert differences(FOLDED, RUNNING, folded(1, 3, 0.15), *FOLDS[1:]) == []
    assert differences(FOLDED, RUNNING, folded(1, 4, 0.15), *FOLDS[1:])
    exact = run(ONE.query(window=10, select={"n": ONE.agg("COUNT_DISTINCT", "A.i")}), a(1, i=1), a(2, i=2))
    line = {"query": "q", "window_start": 0, "window_end": 10, "row": {"n": 3}, "revision": 0}
    assert differences(exact, RUNNING, line)
    assert differences(exact, RUNNING, {**line, "row": {"n": 2}}) == []


def test_doubles_of_rows_that_were_not_computed_are_exact():
    plain = run(ONE.query(window=Unwindowed(), select={"d": "A.d"}), a(1, d=0.1), a(2, d=0.2))
    lines = [{"query": "q", "window_start": None, "window_end": None, "row": {"d": d}} for d in (0.1, 0.2)]
    assert differences(plain, RUNNING, *lines) == []
    other = {**lines[1], "row": {"d": 0.2 + 1e-16 + 1e-15}}
    told = differences(plain, RUNNING, lines[0], other)
    assert told[0] == "q: missing 1x: {'d': 0.2}"
    assert told[2].startswith("q: unexpected 1x: {'d': 0.2")
