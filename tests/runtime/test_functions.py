"""The vectorised functions against the oracle's, which work on one plain value at a time."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.cost.shapes import digest
from optimizer.model import expressions as ex
from optimizer.model.functions import FUNCTIONS
from optimizer.model.text_widths import text_width
from optimizer.model.types import ColumnType as T
from runtime.columns import pieces
from runtime.columns.evaluate import evaluate, truth
from runtime.columns.pieces import truth_in_pieces
from tests.oracle import values as oracle
from tests.runtime.expressions import COLUMNS, as_columns, as_values, ref
from tests.runtime.functions import any_call, calls, cases, casts, rows
from tests.runtime.test_evaluate import check
from tests.runtime.test_predicate_index import check as check_index


@given(any_call(), rows())
def test_nested_calls(expr, given_rows):
    check(expr, given_rows)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@settings(max_examples=60)
@given(st.data(), rows())
def test_each_function(name, data, given_rows):
    function = FUNCTIONS[name]
    type = data.draw(st.sampled_from(sorted(function.arguments[0]) if function.gives is None else [function.gives]))
    check(data.draw(calls(type, 1, name)), given_rows)


@pytest.mark.parametrize("to", list(T))
@given(st.data(), rows())
def test_each_cast(to, data, given_rows):
    check(data.draw(casts(to, 1)), given_rows)


@given(st.lists(st.one_of(calls(T.BOOLEAN, 2), cases(T.BOOLEAN, 2)), min_size=1, max_size=8), rows())
def test_selections_with_functions(given_conditions, given_rows):
    check_index(dict(enumerate(given_conditions)), given_rows)


@given(calls(T.BOOLEAN, 2), rows(30), st.integers(1, 200))
def test_pieces_give_the_same(condition, given_rows, limit):
    data = as_columns(given_rows)
    whole = truth(condition, lambda ref: data[ref.column], len(given_rows))
    with patch.object(pieces, "BYTES", limit):
        assert truth_in_pieces(condition, lambda ref: data[ref.column], len(given_rows)).tolist() == whole.tolist()


@given(st.one_of(calls(T.STRING, 2), casts(T.STRING, 2), cases(T.STRING, 2)), rows())
def test_no_text_is_longer_than_foreseen(expr, given_rows):
    for row in given_rows:
        text = oracle.evaluate(expr, {"a": row})
        bound = text_width(expr, lambda ref, row=row: len((row[ref.column] or "").encode()))
        assert len((text or "").encode()) <= bound


@given(st.lists(any_call(), min_size=2, max_size=2))
def test_different_selections_have_different_names(both):
    assert (digest(both[0]) == digest(both[1])) == (both[0] == both[1])


def test_names_tell_functions_and_types_apart():
    given = [ex.Call("UPPER", (ref("s"),), T.STRING), ex.Call("LOWER", (ref("s"),), T.STRING)]
    given += [ex.Cast(ref("s"), T.INT), ex.Cast(ref("s"), T.BIGINT)]
    yes = ex.Literal(True, T.BOOLEAN)
    given += [ex.Case(((yes, ref("j")),), None, T.BIGINT), ex.Case(((yes, ref("j")),), None, T.DOUBLE)]
    given += [ex.Case(((ref("b"), yes),), None, T.BOOLEAN), ex.Case(((ref("b"), yes),), yes, T.BOOLEAN)]
    assert len({digest(e) for e in given}) == len(given)


def test_made_texts_are_distinct_again():
    data = as_columns([{**dict.fromkeys(COLUMNS), "s": s} for s in ("a", "A", "aa", None, "A")])
    upper = evaluate(ex.Call("UPPER", (ref("s"),), T.STRING), lambda column: data[column.column], 5)
    assert upper.dictionary.to_pylist() == ["A", "AA"]


def test_hard_roundings():
    """Flink's, which look at the decimal digits."""
    values = {1.005: 1.01, 2.675: 2.68, 1.115: 1.12, 0.285: 0.29, -1.005: -1.01, 1e300: 1e300, 0.1 + 0.2: 0.3}
    data = as_columns([{**dict.fromkeys(COLUMNS), "d": d} for d in values])
    expr = ex.Call("ROUND", (ref("d"), ex.Literal(2, T.INT)), T.DOUBLE)
    assert as_values(evaluate(expr, lambda column: data[column.column], len(values))) == list(values.values())
