"""Query sets from the predicate index against evaluating every query's condition on every tuple."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.model import expressions as ex
from optimizer.model.types import ColumnType as T
from runtime.columns.predicate_index import PredicateIndex, Selection
from runtime.columns.querysets import has
from tests.oracle.values import evaluate
from tests.runtime.expressions import COLUMNS, OPS, VALUES, as_columns, comparisons, conditions, ref, rows

SLOTS = [0, 1, 2, 31, 63, 64, 65, 100, 127, 128, 150]


def check(selections, given_rows, words=3):
    index = PredicateIndex([Selection(slot, condition) for slot, condition in selections.items()], words)
    data = as_columns(given_rows)
    sets = index.query_sets(lambda name: data[name], len(given_rows))
    assert sets.shape == (len(given_rows), words)
    for slot in range(64 * words):
        condition = selections.get(slot)
        found = has(sets, slot).tolist()
        if slot not in selections:
            assert not any(found), f"slot {slot} belongs to nobody"
        else:
            expected = [condition is None or evaluate(condition, {"a": row}) is True for row in given_rows]
            assert found == expected, f"slot {slot}: {condition}"


@given(st.dictionaries(st.sampled_from(SLOTS), st.one_of(st.none(), conditions()), max_size=8), rows())
def test_a_tuples_query_set_holds_exactly_the_queries_it_passes(selections, given_rows):
    check(selections, given_rows)


@given(st.lists(comparisons(0), min_size=1, max_size=30), rows())
def test_many_queries_share_the_constants_of_a_column(given_conditions, given_rows):
    check(dict(enumerate(given_conditions)), given_rows)


@pytest.mark.parametrize("type", [T.BIGINT, T.INT, T.DOUBLE, T.TIMESTAMP, T.STRING, T.BOOLEAN])
@pytest.mark.parametrize("op", OPS)
def test_every_value_against_every_constant(type, op):
    """All boundaries at once: each constant is a query, each value (and NULL, and NaN) a tuple."""
    name = next(c for c, t in COLUMNS.items() if t is type)
    constants = [v for v in VALUES[type] if v == v]
    selections = {slot: ex.Compare(op, ref(name), ex.Literal(v, type)) for slot, v in enumerate(constants)}
    given_rows = [{**dict.fromkeys(COLUMNS), name: v} for v in [None, *VALUES[type]]]
    check(selections, given_rows)


@pytest.mark.parametrize("op", OPS)
def test_an_integer_column_beside_double_constants_compares_as_double(op):
    big = (1 << 53) + 1
    selections = {
        0: ex.Compare(op, ref("k"), ex.Literal(float(1 << 53), T.DOUBLE)),
        1: ex.Compare(op, ref("k"), ex.Literal(big, T.BIGINT)),
        2: ex.InList(ref("k"), (ex.Literal(0.5, T.DOUBLE), ex.Literal(7, T.BIGINT))),
    }
    check(selections, [{**dict.fromkeys(COLUMNS), "k": v} for v in (big, big - 1, big + 1, 7, 0, None)])


@pytest.mark.parametrize("op", OPS)
def test_a_nan_constant_equals_nothing_and_differs_from_everything(op):
    selections = {0: ex.Compare(op, ref("d"), ex.Literal(math.nan, T.DOUBLE))}
    check(selections, [{**dict.fromkeys(COLUMNS), "d": v} for v in (0.0, math.nan, math.inf, None)])


def test_no_tuples_and_no_queries():
    check({}, [])
    check({5: None}, [])
    check({}, [dict.fromkeys(COLUMNS)])


def test_the_same_index_serves_batches_with_different_dictionaries():
    index = PredicateIndex([Selection(0, ex.Compare("=", ref("s"), ex.Literal("b", T.STRING)))], 1)
    for texts in (["a", "b", None], ["b"], ["c"], [None], ["b", "b", "a"]):
        data = as_columns([{**dict.fromkeys(COLUMNS), "s": text} for text in texts])
        sets = index.query_sets(lambda name, data=data: data[name], len(texts))
        assert sets[:, 0].tolist() == [np.uint64(text == "b") for text in texts]
