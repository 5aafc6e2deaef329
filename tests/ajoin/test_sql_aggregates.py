"""Calls of aggregates: which function each spelling means, with which types and names, and what is refused."""

from dataclasses import replace

import pytest

from ajoin.sql import parse_query
from optimizer.model.aggregates import BUILT_IN, AggregateFunction
from optimizer.model.types import NUMBERS, ColumnType
from optimizer.model.vocabulary import Vocabulary
from tests.ajoin.sql_support import WINDOW, fold, refused, show
from tests.builders import PAPER

JOINED = f"FROM V JOIN W ON V.vID = W.vID {WINDOW}"

# One item of SELECT -> the name and the expression of the output.
CALLS = [
    ("COUNT(*)", "count", "COUNT(*):BIGINT"),
    ("count( * ) AS n", "n", "COUNT(*):BIGINT"),
    ("COUNT(1)", "count", "COUNT(*):BIGINT"),
    ("COUNT(NULL)", "count", "COUNT(None:STRING):BIGINT"),
    ("COUNT(geo)", "count", "COUNT(V.geo):BIGINT"),
    ("COUNT(ALL geo)", "count", "COUNT(V.geo):BIGINT"),
    ("COUNT(DISTINCT geo)", "count", "COUNT_DISTINCT(V.geo):BIGINT"),
    ("COUNT_DISTINCT(geo)", "count_distinct", "COUNT_DISTINCT(V.geo):BIGINT"),
    ("SUM(length)", "sum", "SUM(V.length):BIGINT"),
    ("SUM(vID)", "sum", "SUM(V.vID):BIGINT"),
    ("SUM(length / 2.0)", "sum", "SUM((V.length / 2.0:DOUBLE):DOUBLE):DOUBLE"),
    ("SUM(1)", "sum", "SUM(1:INT):BIGINT"),
    ("AVG(length)", "avg", "AVG(V.length):DOUBLE"),
    ("MIN(geo)", "min", "MIN(V.geo):STRING"),
    ("Max(time)", "max", "MAX(V.time):TIMESTAMP"),
    ("MAX(length)", "max", "MAX(V.length):INT"),
    ("MIN(length > 3)", "min", "MIN((V.length > 3:INT)):BOOLEAN"),
    ("STDDEV(length)", "stddev", "STDDEV(V.length):DOUBLE"),
    ("STDDEV_SAMP(length)", "stddev_samp", "STDDEV(V.length):DOUBLE"),
    ("STDDEV_POP(length)", "stddev_pop", "STDDEV_POP(V.length):DOUBLE"),
    ("VARIANCE(length)", "variance", "VARIANCE(V.length):DOUBLE"),
    ("VAR_SAMP(length)", "var_samp", "VARIANCE(V.length):DOUBLE"),
    ("VAR_POP(length)", "var_pop", "VARIANCE_POP(V.length):DOUBLE"),
    ("VARIANCE_POP(length)", "variance_pop", "VARIANCE_POP(V.length):DOUBLE"),
    ("MEDIAN(length)", "median", "MEDIAN(V.length):DOUBLE"),
    ("QUANTILE(length, 0.9)", "quantile", "QUANTILE(V.length, 0.9):DOUBLE"),
    ("QUANTILE(length, 1)", "quantile", "QUANTILE(V.length, 1.0):DOUBLE"),
    ("QUANTILE_CONT(length, 0)", "quantile_cont", "QUANTILE(V.length, 0.0):DOUBLE"),
    ("PERCENTILE_CONT(length, 0.25)", "percentile_cont", "QUANTILE(V.length, 0.25):DOUBLE"),
    (
        "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY length ASC)",
        "percentile_cont",
        "QUANTILE(V.length, 0.5):DOUBLE",
    ),
    ("FIRST(geo)", "first", "FIRST(V.geo):STRING"),
    ("FIRST_VALUE(geo)", "first_value", "FIRST(V.geo):STRING"),
    ("LAST(geo) IGNORE NULLS", "last", "LAST(V.geo):STRING"),
    ("LAST_VALUE(geo)", "last_value", "LAST(V.geo):STRING"),
    ("ANY_VALUE(lang)", "any_value", "ANY_VALUE(V.lang):STRING"),
    ("ARG_MIN(geo, length)", "arg_min", "ARG_MIN(V.geo, V.length):STRING"),
    ("MIN_BY(length, geo)", "min_by", "ARG_MIN(V.length, V.geo):INT"),
    ("ARG_MAX(geo, time)", "arg_max", "ARG_MAX(V.geo, V.time):STRING"),
    ("MAX_BY(geo, time)", "max_by", "ARG_MAX(V.geo, V.time):STRING"),
    ("APPROX_COUNT_DISTINCT(geo)", "approx_count_distinct", "APPROX_COUNT_DISTINCT(V.geo):BIGINT"),
    ("APPROX_DISTINCT(geo)", "approx_distinct", "APPROX_COUNT_DISTINCT(V.geo):BIGINT"),
    ("((SUM(length)))", "sum", "SUM(V.length):BIGINT"),
    # FILTER
    ("COUNT(*) FILTER (WHERE geo = 'DE')", "count", "COUNT(*) IF (V.geo = 'DE':STRING):BIGINT"),
    ("SUM(length) FILTER (WHERE vID > 1)", "sum", "SUM(V.length) IF (V.vID > 1:INT):BIGINT"),
    (
        "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY length) FILTER (WHERE TRUE)",
        "percentile_cont",
        "QUANTILE(V.length, 0.5) IF True:BOOLEAN:DOUBLE",
    ),
    # computing with aggregates
    ("SUM(length) * 1.0 / COUNT(*) AS x", "x", "((SUM(V.length):BIGINT * 1.0:DOUBLE):DOUBLE / COUNT(*):BIGINT):DOUBLE"),
    ("MAX(time) - window_start AS x", "x", "(MAX(V.time):TIMESTAMP - window_start):BIGINT"),
    ("MIN(geo) LIKE 'D%' AS x", "x", "(MIN(V.geo):STRING LIKE 'D%')"),
]


@pytest.mark.parametrize(("item", "name", "expected"), CALLS)
def test_call(item: str, name: str, expected: str) -> None:
    query = fold(item)
    assert [(o.name, show(o.expr)) for o in query.outputs] == [(name, expected)]
    assert query.folds and not query.groups


def test_every_built_in_function_can_be_called_by_its_name() -> None:
    called = {a.function for item, _, _ in CALLS for a in fold(item).aggregates}
    assert called == set(BUILT_IN)


@pytest.mark.parametrize(
    ("marked", "reason", "token", "say"),
    [
        ("SUM(^geo)", "TYPE_MISMATCH", "geo", "SUM takes BIGINT or INT or DOUBLE, this is STRING"),
        ("AVG(^time)", "TYPE_MISMATCH", "time", "this is TIMESTAMP"),
        ("MEDIAN(^length > 1)", "TYPE_MISMATCH", "length", "this is BOOLEAN"),
        ("SUM(length) FILTER (WHERE ^vID)", "TYPE_MISMATCH", "vID", "BOOLEAN"),
        ("^SUM()", "ARGUMENT_COUNT", "SUM", "SUM takes 1 argument, here are 0"),
        ("^COUNT()", "ARGUMENT_COUNT", "COUNT", "here are 0"),
        ("^SUM(length, vID)", "ARGUMENT_COUNT", "SUM", "here are 2"),
        ("^COUNT(DISTINCT geo, lang)", "ARGUMENT_COUNT", "COUNT", "here are 2"),
        ("^ARG_MIN(geo)", "ARGUMENT_COUNT", "ARG_MIN", "ARG_MIN takes 2 arguments"),
        ("^QUANTILE(length)", "ARGUMENT_COUNT", "QUANTILE", "takes 2"),
        ("^PERCENTILE_CONT(0.5)", "ARGUMENT_COUNT", "PERCENTILE_CONT", "takes 2"),
        ("SUM(^*)", "SQL_SYNTAX", "*", "only COUNT"),
        ("QUANTILE(length, ^1.5)", "INVALID_LITERAL", "1.5", "0 to 1"),
        ("QUANTILE(length, -^0.5)", "INVALID_LITERAL", "0.5", "0 to 1"),
        ("QUANTILE(length, ^'x')", "INVALID_LITERAL", "'x'", "0 to 1"),
        ("QUANTILE(length, ^NULL)", "INVALID_LITERAL", "NULL", "0 to 1"),
        ("QUANTILE(length, ^TRUE)", "INVALID_LITERAL", "TRUE", "0 to 1"),
        ("QUANTILE(length, ^vID)", "UNSUPPORTED_EXPRESSION", "vID", "constant"),
        ("^SUM(DISTINCT length)", "UNSUPPORTED_AGGREGATION", "SUM", "COUNT(DISTINCT x)"),
        ("^SUM(length) WITHIN GROUP (ORDER BY vID)", "UNSUPPORTED_AGGREGATION", "SUM", "PERCENTILE_CONT"),
        (
            "^PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY length DESC)",
            "UNSUPPORTED_AGGREGATION",
            "PERCENTILE_CONT",
            "ascending",
        ),
        ("^FIRST(geo) RESPECT NULLS", "UNSUPPORTED_AGGREGATION", "FIRST", "left out"),
        ("^summ(length) FILTER (WHERE TRUE)", "UNSUPPORTED_AGGREGATION", "summ", "did you mean SUM"),
        ("MAX(^length ORDER BY vID)", "UNSUPPORTED_EXPRESSION", "length", "ORDER"),
        ("SUM(^length AS x)", "UNSUPPORTED_EXPRESSION", "length", "ALIAS"),
        ("COUNT(^V.*)", "UNSUPPORTED_EXPRESSION", "V.*", "source.column"),
        ("SUM(^SUM(length))", "MISPLACED_AGGREGATE", "SUM", "the arguments of SUM"),
        ("COUNT(*) FILTER (WHERE ^COUNT(*) > 1)", "MISPLACED_AGGREGATE", "COUNT", "the arguments of COUNT"),
        ("MAX(^time - window_start)", "WINDOW_BOUND_IN_CONDITION", "time", "MAX(time) - window_start"),
        ("COUNT(*) FILTER (WHERE ^time > window_start)", "WINDOW_BOUND_IN_CONDITION", "time", "folded once"),
        ("^COUNT(*) + 1", "MISSING_OUTPUT_NAME", "COUNT", "AS"),
        ("SUM(length), ^SUM(vID)", "DUPLICATE_OUTPUT", "SUM", "'sum'"),
    ],
)
def test_refused_call(marked: str, reason: str, token: str, say: str) -> None:
    assert say in str(refused(f"SELECT {marked} FROM V {WINDOW}", reason, token))


@pytest.mark.parametrize(
    ("marked", "hint"),
    [
        (f"SELECT COUNT(*) FROM V WHERE ^SUM(length) > 1 {WINDOW}", "HAVING"),
        (f"SELECT COUNT(*) FROM V JOIN W ON ^SUM(length) > 1 {WINDOW}", "HAVING"),
        (f"SELECT COUNT(*) FROM V GROUP BY ^SUM(length) {WINDOW}", ""),
        ("SELECT COUNT(*) FROM V WINDOW PUNCTUATED BY (^SUM(length) > 1)", ""),
    ],
)
def test_where_no_aggregate_can_stand(marked: str, hint: str) -> None:
    assert hint in refused(marked, "MISPLACED_AGGREGATE", "SUM").hint


def test_over_a_join() -> None:
    query = parse_query(f"SELECT SUM(duration), COUNT(*) FILTER (WHERE V.geo = W.geo) AS same {JOINED}", PAPER)
    assert [show(o.expr) for o in query.outputs] == ["SUM(W.duration):BIGINT", "COUNT(*) IF (V.geo = W.geo):BIGINT"]
    error = refused(f"SELECT ^LAST(V.geo) {JOINED}", "UNSUPPORTED_AGGREGATION", "LAST")
    assert "order" in error.message and "ARG_MAX" in error.hint


def test_an_aggregate_used_twice_is_computed_once() -> None:
    query = fold("COUNT(*) AS a, COUNT(*) * 2 AS b", "HAVING COUNT(*) > 1")
    assert [show(a) for a in query.aggregates] == ["COUNT(*):BIGINT"]


def test_registered_functions_are_called_like_built_in_ones() -> None:
    mine = {
        "GEO_MEAN": AggregateFunction("GEO_MEAN", (NUMBERS,), ColumnType.DOUBLE),
        "MODE": AggregateFunction("MODE", (frozenset(ColumnType),), None, parameters=1),
    }
    words = Vocabulary({**BUILT_IN, **mine})
    sql = f"SELECT geo_mean(length + 1) FILTER (WHERE vID > 1), MODE(geo, 'x') AS m FROM V {WINDOW}"
    query = parse_query(sql, PAPER, vocabulary=words)
    assert [(o.name, show(o.expr)) for o in query.outputs] == [
        ("geo_mean", "GEO_MEAN((V.length + 1:INT):INT) IF (V.vID > 1:INT):DOUBLE"),
        ("m", "MODE(V.geo, x):STRING"),
    ]
    refused(f"SELECT ^geo_mean(length) AS g FROM V {WINDOW}", "UNSUPPORTED_FUNCTION", "geo_mean")


def test_spellings_are_one_query() -> None:
    one = fold("STDDEV(length) AS s, QUANTILE(length, 0.5) AS q")
    other = fold("stddev_samp(length) AS s, PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY length) AS q")
    assert replace(one, sql="") == replace(other, sql="")
