"""The vectorised evaluator against the oracle's, which works on one plain value at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from optimizer.model import expressions as ex
from runtime.columns.column import NUMPY_TYPES, compacted, concat
from runtime.columns.evaluate import evaluate, truth
from tests.oracle import values as oracle
from tests.runtime.expressions import COLUMNS, as_columns, as_values, conditions, numbers, ref, rows


def same(a, b):
    return type(a) is type(b) and (repr(a) == repr(b) if isinstance(a, float) else a == b)


def check(expr, given_rows):
    data = as_columns(given_rows)
    result = evaluate(expr, lambda column: data[column.column], len(given_rows))
    assert result.type is expr.type
    assert len(result) == len(given_rows)
    found = as_values(result)
    expected = [oracle.evaluate(expr, {"a": row}) for row in given_rows]
    wrong = [(r, f, e) for r, f, e in zip(given_rows, found, expected, strict=True) if not same(f, e)]
    assert not wrong, f"{expr}: (row, found, expected) {wrong[:3]}"
    return data, expected


@given(conditions(), rows())
def test_conditions_follow_three_valued_logic(condition, given_rows):
    data, expected = check(condition, given_rows)
    passed = truth(condition, lambda column: data[column.column], len(given_rows))
    assert passed.tolist() == [value is True for value in expected]


@given(numbers(), rows())
def test_arithmetic_wraps_truncates_and_follows_ieee(expr, given_rows):
    check(expr, given_rows)


@given(rows(), st.integers(0, 12))
def test_columns_survive_arrow_cutting_and_putting_together(given_rows, cut):
    for name in COLUMNS:
        parts = [as_columns(given_rows[:cut])[name], as_columns(given_rows[cut:])[name]]
        together = concat(parts)
        assert together.values.dtype == NUMPY_TYPES[COLUMNS[name]]
        assert all(same(a, b[name]) for a, b in zip(as_values(together), given_rows, strict=True))


@given(rows(), st.data())
def test_a_dictionary_is_cut_to_what_rows_use(given_rows, data):
    column = as_columns(given_rows)["s"]
    chosen = np.array(
        data.draw(st.lists(st.integers(0, max(0, len(given_rows) - 1)), max_size=3 * bool(given_rows))), int
    )
    few = compacted(column.take(chosen))
    assert as_values(few) == [given_rows[i]["s"] for i in chosen]
    assert len(few.dictionary) <= len(chosen)


def test_window_bounds_are_looked_up_like_columns():
    data = as_columns([{**dict.fromkeys(COLUMNS), "u": 5}])
    expr = ex.Compare("<", ref("u"), ex.WindowBound("window_end"))
    assert truth(expr, lambda c: data["u"] if isinstance(c, ex.ColumnRef) else as_bound(10), 1).tolist() == [True]
    assert truth(expr, lambda c: data["u"] if isinstance(c, ex.ColumnRef) else as_bound(5), 1).tolist() == [False]


def as_bound(value):
    return as_columns([{**dict.fromkeys(COLUMNS), "u": value}])["u"]
