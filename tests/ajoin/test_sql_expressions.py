"""Conditions and scalar expressions: what each operator binds to, with which types, and in which order."""

import pytest

from tests.ajoin.sql_support import JOINED, WINDOW, refused, select, show, where

# One stream's condition -> the selection it becomes.
SELECTIONS = [
    # comparisons and constants
    ("V.length = 5", "(V.length = 5:INT)"),
    ("V.length <> 5", "(V.length <> 5:INT)"),
    ("V.length != 5", "(V.length <> 5:INT)"),
    ("V.length < 5", "(V.length < 5:INT)"),
    ("V.length <= 5", "(V.length <= 5:INT)"),
    ("V.length > -5", "(V.length > -5:INT)"),
    ("V.length >= - (5)", "(V.length >= -5:INT)"),
    ("V.length = - -5", "(V.length = 5:INT)"),
    ("V.length = +5", "(V.length = 5:INT)"),
    ("5 = V.length", "(5:INT = V.length)"),
    ("V.vID = 2147483647", "(V.vID = 2147483647:INT)"),
    ("V.vID = 2147483648", "(V.vID = 2147483648:BIGINT)"),
    ("V.vID = -2147483648", "(V.vID = -2147483648:INT)"),
    ("V.vID = 9223372036854775807", "(V.vID = 9223372036854775807:BIGINT)"),
    ("V.vID = -9223372036854775808", "(V.vID = -9223372036854775808:BIGINT)"),
    ("V.vID = 000000000000000000000000007", "(V.vID = 7:INT)"),
    ("V.length < 1.5", "(V.length < 1.5:DOUBLE)"),
    ("V.length < .5", "(V.length < 0.5:DOUBLE)"),
    ("V.length < 15e-1", "(V.length < 1.5:DOUBLE)"),
    ("V.length < -1E3", "(V.length < -1000.0:DOUBLE)"),
    ("V.geo = 'DE'", "(V.geo = 'DE':STRING)"),
    ("V.geo = 'it''s \\ ünï 😀'", '(V.geo = "it\'s \\\\ ünï 😀":STRING)'),
    ("V.geo = ''", "(V.geo = '':STRING)"),
    ("V.geo = '-- no comment'", "(V.geo = '-- no comment':STRING)"),
    ("C.photo", "C.photo"),
    ("C.photo = TRUE", "(C.photo = True:BOOLEAN)"),
    ("C.photo <> false", "(C.photo <> False:BOOLEAN)"),
    ("TRUE", "True:BOOLEAN"),
    ("1 = 0", "(1:INT = 0:INT)"),
    # NULL has the type of the other side
    ("V.length = NULL", "(V.length = None:INT)"),
    ("NULL < V.geo", "(None:STRING < V.geo)"),
    ("(NULL) = V.time", "(None:TIMESTAMP = V.time)"),
    ("NULL", "None:BOOLEAN"),
    ("C.photo AND NULL OR C.photo", "((C.photo AND None:BOOLEAN) OR C.photo)"),
    ("V.length + NULL > 1", "((V.length + None:INT):INT > 1:INT)"),
    ("V.time + NULL > 1", "((V.time + None:BIGINT):TIMESTAMP > 1:TIMESTAMP)"),
    ("NULL - V.time > 1", "((None:TIMESTAMP - V.time):BIGINT > 1:INT)"),
    ("V.length IN (NULL, 1)", "(V.length IN None:INT, 1:INT)"),
    ("NULL IN (1.5, NULL)", "(None:DOUBLE IN 1.5:DOUBLE, None:DOUBLE)"),
    ("V.geo LIKE NULL", "None:BOOLEAN"),
    ("NULL LIKE 'a'", "(None:STRING LIKE 'a')"),
    ("NULL IS NULL", "(None:STRING IS NULL)"),
    # time
    ("V.time >= 1000", "(V.time >= 1000:TIMESTAMP)"),
    ("-1 < V.time", "(-1:TIMESTAMP < V.time)"),
    ("V.time > TIMESTAMP '1970-01-02 00:00:00'", "(V.time > 86400000:TIMESTAMP)"),
    ("V.time > TIMESTAMP '1970-01-01 00:00:01.5'", "(V.time > 1500:TIMESTAMP)"),
    ("V.time > TIMESTAMP '1970-01-01T00:00:00.123Z'", "(V.time > 123:TIMESTAMP)"),
    ("V.time > TIMESTAMP '1970-01-01 00:01'", "(V.time > 60000:TIMESTAMP)"),
    ("V.time > TIMESTAMP '1970-01-02'", "(V.time > 86400000:TIMESTAMP)"),
    ("V.time > TIMESTAMP '1969-12-31 23:59:59.999'", "(V.time > -1:TIMESTAMP)"),
    ("V.time + 5 > 1", "((V.time + 5:INT):TIMESTAMP > 1:TIMESTAMP)"),
    ("5 + V.time > 1", "((5:INT + V.time):TIMESTAMP > 1:TIMESTAMP)"),
    ("V.time - V.vID > 1", "((V.time - V.vID):TIMESTAMP > 1:TIMESTAMP)"),
    ("V.time - V.time > 1", "((V.time - V.time):BIGINT > 1:INT)"),
    ("V.time + INTERVAL '2 hours' > 1", "((V.time + 7200000:BIGINT):TIMESTAMP > 1:TIMESTAMP)"),
    ("V.time - INTERVAL '1' DAY > 1", "((V.time - 86400000:BIGINT):TIMESTAMP > 1:TIMESTAMP)"),
    (
        "V.time - INTERVAL '1 minute' + 5 > 1",
        "(((V.time - 60000:BIGINT):TIMESTAMP + 5:INT):TIMESTAMP > 1:TIMESTAMP)",
    ),
    ("V.time - V.time < INTERVAL '5 ms'", "((V.time - V.time):BIGINT < 5:BIGINT)"),
    ("V.time - V.time < INTERVAL 3 MINUTES", "((V.time - V.time):BIGINT < 180000:BIGINT)"),
    ("V.time IN (1, TIMESTAMP '1970-01-01')", "(V.time IN 1:TIMESTAMP, 0:TIMESTAMP)"),
    ("V.time BETWEEN 1 AND 2", "((V.time >= 1:TIMESTAMP) AND (V.time <= 2:TIMESTAMP))"),
    # lists, ranges, patterns, NULL tests
    ("V.length BETWEEN 1 AND 2 + 3", "((V.length >= 1:INT) AND (V.length <= (2:INT + 3:INT):INT))"),
    ("V.length NOT BETWEEN 1 AND 2", "(NOT ((V.length >= 1:INT) AND (V.length <= 2:INT)))"),
    ("V.length IN (1, -2)", "(V.length IN 1:INT, -2:INT)"),
    ("V.vID IN (1)", "(V.vID IN 1:BIGINT)"),
    ("V.length IN (1, 3000000000)", "(V.length IN 1:BIGINT, 3000000000:BIGINT)"),
    ("V.length IN (1, 2.5)", "(V.length IN 1.0:DOUBLE, 2.5:DOUBLE)"),
    ("V.geo NOT IN ('DE', 'US')", "(NOT (V.geo IN 'DE':STRING, 'US':STRING))"),
    ("C.photo IN (TRUE, NULL)", "(C.photo IN True:BOOLEAN, None:BOOLEAN)"),
    ("V.geo LIKE 'D%'", "(V.geo LIKE 'D%')"),
    ("V.geo NOT LIKE 'D_'", "(NOT (V.geo LIKE 'D_'))"),
    ("V.geo LIKE '50!%' ESCAPE '!'", "(V.geo LIKE '50!%' ESCAPE '!')"),
    ("V.geo LIKE 'a!!' ESCAPE '!'", "(V.geo LIKE 'a!!' ESCAPE '!')"),
    ("V.geo NOT LIKE '!_' ESCAPE '!'", "(NOT (V.geo LIKE '!_' ESCAPE '!'))"),
    ("V.geo IS NULL", "(V.geo IS NULL)"),
    ("V.geo IS NOT NULL", "(NOT (V.geo IS NULL))"),
    ("NOT V.geo IS NULL", "(NOT (V.geo IS NULL))"),
    ("C.photo IS TRUE", "(NOT ((C.photo OR None:BOOLEAN) IS NULL))"),
    ("C.photo IS NOT TRUE", "(NOT (NOT ((C.photo OR None:BOOLEAN) IS NULL)))"),
    ("C.photo IS FALSE", "(NOT ((C.photo AND None:BOOLEAN) IS NULL))"),
    ("C.photo IS UNKNOWN", "(C.photo IS NULL)"),
    # arithmetic and its types
    ("V.length + 1 > 0", "((V.length + 1:INT):INT > 0:INT)"),
    ("V.length * V.vID > 0", "((V.length * V.vID):BIGINT > 0:INT)"),
    ("V.vID / 2 > 0", "((V.vID / 2:INT):BIGINT > 0:INT)"),
    ("V.length / 2.0 > 0", "((V.length / 2.0:DOUBLE):DOUBLE > 0:INT)"),
    ("V.vID % 10 = 3", "((V.vID % 10:INT):BIGINT = 3:INT)"),
    ("-V.length < 0", "((-V.length):INT < 0:INT)"),
    # precedence
    ("V.length - 1 - 2 = 0", "(((V.length - 1:INT):INT - 2:INT):INT = 0:INT)"),
    ("V.length + 2 * 3 = 0", "((V.length + (2:INT * 3:INT):INT):INT = 0:INT)"),
    ("(V.length + 2) * 3 = 0", "(((V.length + 2:INT):INT * 3:INT):INT = 0:INT)"),
    ("V.length + 7 % 4 = 0", "((V.length + (7:INT % 4:INT):INT):INT = 0:INT)"),
    ("-V.length + 1 = 0", "(((-V.length):INT + 1:INT):INT = 0:INT)"),
    (
        "V.length = 1 OR V.length = 2 AND V.vID = 3",
        "((V.length = 1:INT) OR ((V.length = 2:INT) AND (V.vID = 3:INT)))",
    ),
    ("NOT V.length = 1 OR V.vID = 2", "((NOT (V.length = 1:INT)) OR (V.vID = 2:INT))"),
    ("NOT (V.length = 1 OR V.vID = 2)", "(NOT ((V.length = 1:INT) OR (V.vID = 2:INT)))"),
    ("NOT NOT C.photo", "(NOT (NOT C.photo))"),
    ("V.length = 1 IS TRUE", "(NOT (((V.length = 1:INT) OR None:BOOLEAN) IS NULL))"),
    (
        "V.length = 1 OR (V.length = 2 OR V.length = 3)",
        "((V.length = 1:INT) OR (V.length = 2:INT) OR (V.length = 3:INT))",
    ),
]


@pytest.mark.parametrize(("condition", "expected"), SELECTIONS)
def test_single_stream_condition(condition: str, expected: str) -> None:
    query = where(condition)
    assert not query.residual
    assert [show(expr) for _, expr in query.selections] == [expected]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("V.length < W.duration", ["(V.length < W.duration)"]),
        ("V.vID = W.vID + 1", ["(V.vID = (W.vID + 1:INT):BIGINT)"]),
        ("V.geo = W.geo OR V.lang = 'de'", ["((V.geo = W.geo) OR (V.lang = 'de':STRING))"]),
        ("V.geo = W.geo OR W.geo = V.lang", ["((V.geo = W.geo) OR (W.geo = V.lang))"]),
        ("NOT V.geo = W.geo", ["(NOT (V.geo = W.geo))"]),
        ("V.geo <> W.geo AND V.lang <> W.geo", ["(V.geo <> W.geo)", "(V.lang <> W.geo)"]),
        ("V.length BETWEEN W.duration AND 9", ["(V.length >= W.duration)"]),
        ("(V.length > W.duration) = C.photo", ["((V.length > W.duration) = C.photo)"]),
        ("V.time - W.time < 10", ["((V.time - W.time):BIGINT < 10:INT)"]),
    ],
)
def test_cross_stream_condition(condition: str, expected: list[str]) -> None:
    assert [show(expr) for expr in where(condition).residual] == expected


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("a.length + 1 AS x", "(a.length + 1:INT):INT"),
        ("a.length > b.duration AS x", "(a.length > b.duration)"),
        ("a.geo LIKE 'D%' AS x", "(a.geo LIKE 'D%')"),
        ("7 AS x", "7:INT"),
        ("'s' AS x", "'s':STRING"),
        ("NULL AS x", "None:STRING"),
        ("TIMESTAMP '1970-01-01' AS x", "0:TIMESTAMP"),
        ("INTERVAL '1 second' AS x", "1000:BIGINT"),
        ("window_end - window_start AS x", "(window_end - window_start):BIGINT"),
        ("a.time - window_start AS x", "(a.time - window_start):BIGINT"),
        ("a.length AS x", "a.length"),
        ("length x", "a.length"),
    ],
)
def test_scalar_output(items: str, expected: str) -> None:
    (output,) = select(items).outputs
    assert (output.name, show(output.expr)) == ("x", expected)


MISMATCHES = [
    ("^V.length > 'x'", "V.length", "INT with STRING"),
    ("^'x' = V.vID", "'x'", "STRING with BIGINT"),
    ("^C.photo = 1", "C.photo", "BOOLEAN with INT"),
    ("^V.time > '2024-01-01'", "V.time", "TIMESTAMP with STRING"),
    ("^V.time > 1.5", "V.time", "TIMESTAMP with DOUBLE"),
    ("^V.time > V.vID", "V.time", "TIMESTAMP with BIGINT"),
    ("^V.time > INTERVAL '1 s'", "V.time", "TIMESTAMP with BIGINT"),
    ("^V.time - INTERVAL '1 minute' + '5 seconds' > 1", "V.time", "TIMESTAMP + STRING"),
    ("^V.time = W.vID", "V.time", "TIMESTAMP with BIGINT"),
    ("^V.geo = W.vID", "V.geo", "STRING with BIGINT"),
    ("V.length IN (1, ^'x')", "'x'", "INT with STRING"),
    ("^V.length BETWEEN 1 AND 'x'", "V.length", "INT with STRING"),
    ("^V.geo + 1 > 1", "V.geo", "STRING + INT"),
    ("^V.time + V.time > 1", "V.time", "TIMESTAMP + TIMESTAMP"),
    ("^V.time * 2 > 1", "V.time", "TIMESTAMP * INT"),
    ("^5 - V.time > 1", "5", "INT - TIMESTAMP"),
    ("^V.time + 1.5 > 1", "V.time", "TIMESTAMP + DOUBLE"),
    ("-^V.geo = 1", "V.geo", "negate STRING"),
    ("^V.length LIKE 'x'", "V.length", "INT with STRING"),
    ("^V.geo LIKE 5", "V.geo", "STRING with INT"),
    ("^V.length", "V.length", "this is INT"),
    ("NOT ^V.geo", "V.geo", "this is STRING"),
    ("C.photo AND ^V.length + 1", "V.length", "this is INT"),
    ("^V.length IS TRUE", "V.length", "this is INT"),
]


@pytest.mark.parametrize(("condition", "token", "types"), MISMATCHES)
def test_a_type_mismatch_names_both_types(condition: str, token: str, types: str) -> None:
    assert types in refused(f"{JOINED} AND {condition} {WINDOW}", "TYPE_MISMATCH", token).message


@pytest.mark.parametrize(
    ("condition", "reason", "token"),
    [
        ("V.vID = ^9223372036854775808", "LITERAL_OUT_OF_RANGE", "9223372036854775808"),
        ("V.vID = -^9223372036854775809", "LITERAL_OUT_OF_RANGE", "9223372036854775809"),
        ("V.vID < ^1e999", "LITERAL_OUT_OF_RANGE", "1e999"),
        ("V.time > TIMESTAMP ^'yesterday'", "INVALID_LITERAL", "'yesterday'"),
        ("V.time > TIMESTAMP ^'2024-02-30 00:00:00'", "INVALID_LITERAL", "'2024-02-30 00:00:00'"),
        ("V.time > TIMESTAMP ^'2024-01-01 00:00:00.1234'", "INVALID_LITERAL", "'2024-01-01 00:00:00.1234'"),
        ("V.time > TIMESTAMP ^'2024-01-01 00:00:00+01:00'", "INVALID_LITERAL", "'2024-01-01 00:00:00+01:00'"),
        ("V.time + INTERVAL ^'1 fortnight' > 1", "INVALID_LITERAL", "'1 fortnight'"),
        ("V.time + INTERVAL ^'1.0005 seconds' > 1", "INVALID_LITERAL", "'1.0005 seconds'"),
        ("V.time + INTERVAL ^'5' > 1", "INVALID_LITERAL", "'5'"),
        ("V.time + INTERVAL ^'1 minute 5 seconds' > 1", "INVALID_LITERAL", "'1 minute 5 seconds'"),
        ("V.time + INTERVAL '999999999999999999' ^DAY > 1", "INVALID_LITERAL", "DAY"),
        ("V.geo LIKE 'x' ESCAPE ^'ab'", "INVALID_LITERAL", "'ab'"),
        ("V.geo LIKE 'x' ESCAPE ^''", "INVALID_LITERAL", "''"),
        ("V.geo LIKE 'x' ESCAPE ^NULL", "INVALID_LITERAL", "NULL"),
        ("V.geo LIKE ^'x!' ESCAPE '!'", "INVALID_LITERAL", "'x!'"),
        ("V.geo LIKE ^V.lang", "UNSUPPORTED_EXPRESSION", "V.lang"),
        ("^V.geo ILIKE 'x'", "UNSUPPORTED_EXPRESSION", "V.geo"),
        ("V.geo LIKE ANY (^'x')", "UNSUPPORTED_EXPRESSION", "'x'"),
        ("V.length IN (1, ^V.vID)", "UNSUPPORTED_EXPRESSION", "V.vID"),
        ("^V.length IN ()", "SQL_SYNTAX", "V.length"),
        ("V.length IN (1,^)", "SQL_SYNTAX", ")"),
        ("V.length IN (^,1)", "SQL_SYNTAX", ","),
        ("V.length BETWEEN 1 ^2", "SQL_SYNTAX", "2"),
        ("^V.length & 1 = 1", "UNSUPPORTED_EXPRESSION", "V.length"),
        ("^V.length IS DISTINCT FROM 1", "UNSUPPORTED_EXPRESSION", "V.length"),
        ("(^V.length, 1) = (1, 2)", "UNSUPPORTED_EXPRESSION", "V.length"),
        ("V.length = ^?", "UNSUPPORTED_EXPRESSION", "?"),
        ("^V.length[0] = 1", "UNSUPPORTED_EXPRESSION", "V.length"),
        ("^x.V.vID = 1", "UNSUPPORTED_EXPRESSION", "x.V.vID"),
        ("^N'x' = V.geo", "UNSUPPORTED_EXPRESSION", "N'x'"),
        ("^V.* = 1", "UNSUPPORTED_EXPRESSION", "V.*"),
        ("^* = 1", "SQL_SYNTAX", "*"),
        ("^my_udf(V.geo) = 'X'", "UNSUPPORTED_FUNCTION", "my_udf"),
        ("^CURRENT_TIMESTAMP > V.time", "UNSUPPORTED_FUNCTION", "CURRENT_TIMESTAMP"),
        ("V.time > DATE ^'2024-01-01'", "UNSUPPORTED_FUNCTION", "'2024-01-01'"),
        ("^SUM(V.length) > 1", "MISPLACED_AGGREGATE", "SUM"),
        ("EXISTS (^SELECT 1)", "UNSUPPORTED_SUBQUERY", "SELECT"),
        ("V.vID IN (^SELECT vID FROM W)", "UNSUPPORTED_SUBQUERY", "SELECT"),
        ("V.time > ^window_start", "WINDOW_BOUND_IN_CONDITION", "window_start"),
        ("V.^window_end > 5", "WINDOW_BOUND_IN_CONDITION", "window_end"),
    ],
)
def test_refused_condition(condition: str, reason: str, token: str) -> None:
    refused(f"{JOINED} AND {condition} {WINDOW}", reason, token)
