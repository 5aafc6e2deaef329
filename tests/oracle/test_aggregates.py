"""Aggregate functions over lists of values, by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from optimizer.model.aggregates import BUILT_IN
from optimizer.model.expressions import Aggregate, Literal
from optimizer.model.types import ColumnType as T
from tests.folds import calc, count
from tests.oracle.aggregates import FUNCTIONS, aggregate, quantile
from tests.oracle.cases import ONE, a, deliveries


def of(function, values, column="A.i", p=None, where=None):
    """The function over one column that has these values."""
    call = ONE.agg(function, column, p=p, where=where)
    return aggregate(call, [{"A": {column[2:]: v}} for v in values], (0, 10))


def pairs(function, *xy, x="A.s", y="A.i"):
    return aggregate(ONE.agg(function, x, y), [{"A": {x[2:]: a, y[2:]: b}} for a, b in xy], (0, 10))


def test_every_function_of_the_model_is_known():
    apart = {"COUNT", "COUNT_DISTINCT", "APPROX_COUNT_DISTINCT", "SUM", "QUANTILE", "ARG_MIN", "ARG_MAX"}
    assert BUILT_IN.keys() == FUNCTIONS.keys() | apart
    assert not FUNCTIONS.keys() & apart


@pytest.mark.parametrize(
    ("function", "result"),
    [
        ("COUNT", 4),
        ("SUM", 11),
        ("AVG", 2.75),
        ("MIN", 1),
        ("MAX", 5),
        ("VARIANCE", 8.75 / 3),
        ("VARIANCE_POP", 8.75 / 4),
        ("STDDEV", math.sqrt(8.75 / 3)),
        ("STDDEV_POP", math.sqrt(8.75 / 4)),
        ("ANY_VALUE", 1),
        ("FIRST", 3),
        ("LAST", 2),
        ("MEDIAN", 2.5),
        ("COUNT_DISTINCT", 4),
        ("APPROX_COUNT_DISTINCT", 4),
    ],
)
def test_integers_with_nulls_among_them(function, result):
    # 3, 5, 1, 2: mean 11/4, squared distances 1/16 + 81/16 + 49/16 + 9/16 = 140/16 = 8.75
    value = of(function, [None, 3, None, 5, 1, 2, None])
    assert value == pytest.approx(result, rel=1e-15)
    assert type(value) is type(result)


@pytest.mark.parametrize("values", [[], [None], [None, None]])
def test_over_no_value(values):
    for function in BUILT_IN.keys() - {"ARG_MIN", "ARG_MAX", "QUANTILE"}:
        assert of(function, values) == (0 if "COUNT" in function else None), function
    assert of("QUANTILE", values, p=0.5) is None
    assert pairs("ARG_MIN", *((v, v) for v in values)) is None
    assert aggregate(count(), [{"A": {"i": v}} for v in values], (0, 10)) == len(values)


def test_of_one_value_a_sample_has_no_variance():
    assert of("VARIANCE", [7]) is None
    assert of("STDDEV", [7, None]) is None
    assert of("VARIANCE_POP", [7]) == 0.0
    assert of("STDDEV_POP", [7]) == 0.0


def test_sums_that_do_not_fit():
    most = (1 << 63) - 1
    assert of("SUM", [most, 1], "A.k") is None
    assert of("SUM", [-most, -1], "A.k") == -most - 1
    assert of("SUM", [most, 1, -1], "A.k") == most, "only the whole sum counts, in whatever order it is added"
    assert of("AVG", [most, most], "A.k") == float(most)


def test_doubles():
    assert of("SUM", [0.5, None, 1.25], "A.d") == 1.75
    assert of("SUM", [1e308, 1e308], "A.d") == math.inf
    assert of("SUM", [1e16, 1.0, -1e16], "A.d") == 1.0, "added exactly, rounded once"
    assert of("AVG", [1e308, 1e308], "A.d") == 1e308
    assert of("SUM", [math.inf, 1.0], "A.d") == math.inf
    assert math.isnan(of("VARIANCE", [math.inf, 1.0], "A.d"))
    assert of("COUNT_DISTINCT", [0.0, -0.0, math.nan, math.nan, None], "A.d") == 2
    assert isinstance(of("SUM", [1.0], "A.d"), float)


def test_variance_is_exact_where_the_mean_is_large():
    values = [(1 << 53) + i for i in range(4)]
    assert of("VARIANCE", values, "A.k") == float(Fraction(5, 3))


def test_quantiles_lie_between_neighbours():
    assert [quantile([40, 10, 20, 30], p) for p in (0, 0.25, 0.5, 0.9, 1)] == [10, 17.5, 25, 37, 40]
    assert quantile([5], 0.3) == 5.0
    assert of("QUANTILE", [1, None, 2], p=0.25) == 1.25
    assert isinstance(of("MEDIAN", [1]), float)


def test_texts_are_ordered_by_code_points():
    texts = ["b", "é", "B", "", "\U0001f600", "\uffff"]
    assert of("MIN", texts, "A.s") == ""
    assert of("MAX", texts, "A.s") == "\U0001f600"
    assert of("ANY_VALUE", [None, "b", "B"], "A.s") == "B"
    assert of("MAX", [3, 9], "A.ts") == 9


def test_booleans_have_an_order():
    call = Aggregate("MAX", (Literal(True, T.BOOLEAN),), T.BOOLEAN)
    assert aggregate(call, [{"A": {}}], (0, 10)) is True
    assert FUNCTIONS["MIN"]([True, False]) is False


def test_first_and_last_are_in_the_order_given():
    assert of("FIRST", [None, 9, 1], "A.i") == 9
    assert of("LAST", [9, 1, None], "A.i") == 1


def test_arg_min_and_arg_max():
    assert pairs("ARG_MIN", ("x", 3), ("y", 1), ("z", 2)) == "y"
    assert pairs("ARG_MAX", ("x", 3), ("y", 1), ("z", None)) == "x"
    assert pairs("ARG_MAX", ("x", None)) is None
    # ties: the smallest x; NULL only if all are
    assert pairs("ARG_MIN", ("b", 1), ("a", 1), (None, 1), ("0", 2)) == "a"
    assert pairs("ARG_MIN", (None, 1), ("a", 2)) is None


def test_a_filter_leaves_tuples_out():
    assert of("SUM", [1, 5, None, 7], where=("A.i", ">", 2)) == 12
    assert aggregate(count(ONE.agg("COUNT", "A.i", where=("A.i", ">", 2)).where), [{"A": {"i": 1}}], (0, 1)) == 0


def test_arguments_are_expressions():
    i = ONE.column("A.i")
    call = ONE.agg("SUM", calc(i, "*", i))
    assert aggregate(call, [{"A": {"i": v}} for v in (1, 2, None, 3)], (0, 10)) == 14


def test_select_computes_with_aggregates():
    total, n = ONE.agg("SUM", "A.i"), count()
    mean = calc(calc(total, "*", 1.0), "/", n)
    asked = ONE.query(window=10, group=["A.k"], select={"k": "#0", "mean": mean, "until": "window_end"})
    assert deliveries(asked, a(1, k=7, i=2), a(2, k=7, i=3), a(3, k=7)) == [(0, 10, 0, 7, 5 / 3, 10)]
