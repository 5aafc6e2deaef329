"""Functions, CASE and CAST: what each call binds to, with which type, and what is refused at which place."""

import pytest

from optimizer.explain.render import render
from optimizer.model.functions import FUNCTIONS, OTHER_NAMES
from tests.ajoin.sql_support import JOINED, WINDOW, refused, select, show, where

CALLS = [
    ("COALESCE(a.geo, 'x')", "COALESCE(a.geo, 'x':STRING):STRING"),
    ("coalesce(NULL, a.length, 2.5, a.vID)", "COALESCE(None:DOUBLE, a.length, 2.5:DOUBLE, a.vID):DOUBLE"),
    ("IFNULL(a.time, 0)", "COALESCE(a.time, 0:TIMESTAMP):TIMESTAMP"),
    ("COALESCE((4) + a.length, (a.vID))", "COALESCE((4:INT + a.length):INT, a.vID):BIGINT"),
    ("COALESCE(NULL)", "COALESCE(None:STRING):STRING"),
    ("NULLIF(a.length, 2.5)", "NULLIF(a.length, 2.5:DOUBLE):INT"),
    ("NULLIF(a.time, 5)", "NULLIF(a.time, 5:TIMESTAMP):TIMESTAMP"),
    ("GREATEST(a.length, a.vID)", "GREATEST(a.length, a.vID):BIGINT"),
    ("LEAST(a.time, b.time, NULL)", "LEAST(a.time, b.time, None:TIMESTAMP):TIMESTAMP"),
    ("ABS(-a.length)", "ABS((-a.length):INT):INT"),
    ("ABS(NULL)", "ABS(None:INT):INT"),
    ("ROUND(1.5)", "ROUND(1.5:DOUBLE):DOUBLE"),
    ("ROUND(a.vID, -2)", "ROUND(a.vID, -2:INT):BIGINT"),
    ("FLOOR(a.length)", "FLOOR(a.length):INT"),
    ("CEILING(1.5)", "CEIL(1.5:DOUBLE):DOUBLE"),
    ("MOD(a.vID + 1, 3)", "((a.vID + 1:INT):BIGINT % 3:INT):BIGINT"),
    ("POW(a.length, 2)", "POWER(a.length, 2:INT):DOUBLE"),
    ("SQRT(a.vID)", "SQRT(a.vID):DOUBLE"),
    ("LN(a.length)", "LN(a.length):DOUBLE"),
    ("UPPER(LOWER(a.geo))", "UPPER(LOWER(a.geo):STRING):STRING"),
    ("UPPER(NULL)", "UPPER(None:STRING):STRING"),
    ("CHAR_LENGTH(a.geo)", "LENGTH(a.geo):INT"),
    ("SUBSTRING(a.geo, 2)", "SUBSTRING(a.geo, 2:INT):STRING"),
    ("SUBSTR(a.geo, a.length, 3)", "SUBSTRING(a.geo, a.length, 3:INT):STRING"),
    ("SUBSTRING(a.geo FROM 2 FOR 3)", "SUBSTRING(a.geo, 2:INT, 3:INT):STRING"),
    ("SUBSTRING(a.geo FOR 3)", "SUBSTRING(a.geo, 1:INT, 3:INT):STRING"),
    ("TRIM(a.geo)", "TRIM(a.geo):STRING"),
    ("TRIM(LEADING FROM a.geo)", "LTRIM(a.geo):STRING"),
    ("TRIM(TRAILING 'x' FROM a.geo)", "RTRIM(a.geo, 'x':STRING):STRING"),
    ("TRIM(BOTH 'x' FROM a.geo)", "TRIM(a.geo, 'x':STRING):STRING"),
    ("TRIM('x' FROM a.geo)", "TRIM(a.geo, 'x':STRING):STRING"),
    ("TRIM(a.geo, 'x')", "TRIM(a.geo, 'x':STRING):STRING"),
    ("LTRIM(a.geo, a.lang)", "LTRIM(a.geo, a.lang):STRING"),
    ("CONCAT(a.geo, '-', NULL)", "CONCAT(a.geo, '-':STRING, None:STRING):STRING"),
    ("a.geo || '-' || (a.lang || 'x')", "CONCAT(a.geo, '-':STRING, a.lang, 'x':STRING):STRING"),
    ("REPLACE(a.geo, 'x', '')", "REPLACE(a.geo, 'x':STRING, '':STRING):STRING"),
    ("STARTSWITH(a.geo, a.lang)", "STARTS_WITH(a.geo, a.lang):BOOLEAN"),
    ("REGEXP_LIKE(a.geo, '^D+')", "REGEXP_LIKE(a.geo, '^D+':STRING):BOOLEAN"),
    ("EXTRACT(year FROM a.time)", "EXTRACT('YEAR':STRING, a.time):BIGINT"),
    ("EXTRACT(DOW FROM window_start)", "EXTRACT('DOW':STRING, window_start):BIGINT"),
    ("DATE_TRUNC('day', a.time + 5)", "DATE_TRUNC('DAY':STRING, (a.time + 5:INT):TIMESTAMP):TIMESTAMP"),
    ("CAST(a.geo AS INTEGER)", "CAST(a.geo AS INT)"),
    ("TRY_CAST(a.length AS VARCHAR)", "CAST(a.length AS STRING)"),
    ("a.time::BIGINT", "CAST(a.time AS BIGINT)"),
    ("CAST(a.geo AS TIMESTAMP(3))", "CAST(a.geo AS TIMESTAMP)"),
    ("CAST(5 AS TIMESTAMP)", "5:TIMESTAMP"),
    ("CAST('1970-01-02' AS TIMESTAMP)", "86400000:TIMESTAMP"),
    ("CAST(NULL AS DOUBLE PRECISION)", "None:DOUBLE"),
    ("CASE WHEN a.length > 1 THEN 1 ELSE 2.5 END", "CASE[(a.length > 1:INT) -> 1:INT; else 2.5:DOUBLE]:DOUBLE"),
    ("CASE a.geo WHEN 'x' THEN NULL WHEN NULL THEN 7 END",
     "CASE[(a.geo = 'x':STRING) -> None:INT; (a.geo = None:STRING) -> 7:INT]:INT"),
    ("CASE a.time WHEN 5 THEN a.time ELSE 0 END", "CASE[(a.time = 5:TIMESTAMP) -> a.time; else 0:TIMESTAMP]:TIMESTAMP"),
]  # fmt: skip


@pytest.mark.parametrize(("item", "expected"), CALLS)
def test_call(item: str, expected: str) -> None:
    (output,) = select(f"{item} AS x").outputs
    assert show(output.expr) == expected


@pytest.mark.parametrize("item", [item for item, _ in CALLS])
def test_the_rendered_text_binds_to_the_same_expression(item: str) -> None:
    (output,) = select(f"{item} AS x").outputs
    (again,) = select(f"{render(output.expr)} AS x").outputs
    if "NULL" not in item and "TIMESTAMP" not in show(output.expr):  # constants that take their type from beside them
        assert again == output


def test_every_function_is_tried() -> None:
    called = " ".join(item.upper() for item, _ in CALLS)
    bound = " ".join(expected for _, expected in CALLS)
    assert not [f for f in FUNCTIONS if f"{f}(" not in bound]
    assert set(OTHER_NAMES.values()) <= set(FUNCTIONS)
    assert all(f"{name}(" in called for name in ("IFNULL", "POW", "SUBSTR", "STARTSWITH", "CEILING", "CHAR_LENGTH"))


def test_conditions_with_functions_are_sorted_like_others() -> None:
    query = where("UPPER(V.geo) = 'DE' AND CONCAT(V.geo, W.geo) = 'x' AND CASE WHEN C.photo THEN TRUE END")
    assert [show(e) for e in query.residual] == ["(CONCAT(V.geo, W.geo):STRING = 'x':STRING)"]
    assert dict(query.selections).keys() == {"V", "C"}


@pytest.mark.parametrize(
    ("condition", "reason", "token", "says"),
    [
        # names
        ("^UPER(V.geo) = 'X'", "UNSUPPORTED_FUNCTION", "UPER", "there is no function UPER (did you mean UPPER"),
        ("^my_udf(V.geo) = 'X'", "UNSUPPORTED_FUNCTION", "my_udf", "there is no function MY_UDF"),
        ("^LOG10(V.length) = 1", "UNSUPPORTED_FUNCTION", "LOG10", "there is no function LOG10"),
        ('^"UPPER"(V.geo) = 1', "UNSUPPORTED_FUNCTION", '"UPPER"', "there is no function UPPER"),
        ("^NOW() > V.time", "UNSUPPORTED_FUNCTION", "NOW", "double quotes"),
        ("^V.geo RLIKE 'x'", "UNSUPPORTED_EXPRESSION", "V.geo", "RLIKE is not supported"),
        # how many
        ("^UPPER() = 'X'", "ARGUMENT_COUNT", "UPPER", "UPPER takes 1 argument, this call has 0"),
        ("^UPPER(V.geo, 1) = 'X'", "ARGUMENT_COUNT", "UPPER", "UPPER takes 1 argument, this call has 2"),
        ("^ROUND(1, 2, 3) = 1", "ARGUMENT_COUNT", "ROUND", "ROUND takes 1 or 2 arguments, this call has 3"),
        ("^MOD(V.length, 1, 2) = 1", "ARGUMENT_COUNT", "MOD", "MOD takes 2 arguments, this call has 3"),
        ("^CONCAT() = 'x'", "ARGUMENT_COUNT", "CONCAT", "CONCAT takes at least 1 argument, this call has 0"),
        ("^SUBSTR(V.geo) = 'x'", "ARGUMENT_COUNT", "SUBSTR", "SUBSTR takes 2 or 3 arguments, this call has 1"),
        ("^SUBSTRING(V.geo, 1, 2, 3) = 'x'", "ARGUMENT_COUNT", "SUBSTRING", "this call has 4"),
        ("^NULLIF(V.geo) = 'x'", "ARGUMENT_COUNT", "NULLIF", "NULLIF takes 2 arguments"),
        # types
        ("UPPER(^V.length) = 'x'", "TYPE_MISMATCH", "V.length", "STRING as its first argument, this is INT"),
        ("ABS(^V.geo) = 1", "TYPE_MISMATCH", "V.geo", "ABS takes BIGINT or DOUBLE or INT as its first argument"),
        ("V.geo || ^V.length = 'x'", "TYPE_MISMATCH", "V.length", "|| takes STRING on both sides, this is INT"),
        ("CONCAT('a', 'b', 'c', ^5) = 'x'", "TYPE_MISMATCH", "5", "as its 4th argument"),
        ("SUBSTRING(V.geo, ^1.5) = 'x'", "TYPE_MISMATCH", "1.5", "as its second argument, this is DOUBLE"),
        ("EXTRACT(YEAR FROM ^V.vID) = 1", "TYPE_MISMATCH", "V.vID", "EXTRACT takes TIMESTAMP as its second argument"),
        ("COALESCE(V.geo, ^V.length) = 'x'", "TYPE_MISMATCH", "V.length", "not STRING and INT (convert it: CAST("),
        ("GREATEST(V.time, ^1.5) > 1", "TYPE_MISMATCH", "1.5", "needs values of one type, not TIMESTAMP and DOUBLE"),
        ("CASE WHEN C.photo THEN 1 ELSE ^'x' END = 1", "TYPE_MISMATCH", "'x'", "CASE needs values of one type"),
        ("CASE WHEN ^V.length THEN 1 END = 1", "TYPE_MISMATCH", "V.length", "a condition must be BOOLEAN"),
        ("CASE V.geo WHEN ^1 THEN 1 END = 1", "TYPE_MISMATCH", "1", "cannot compare STRING with INT"),
        ("^UPPER(V.geo) = 1", "TYPE_MISMATCH", "UPPER", "cannot compare STRING with INT"),
        ("^MOD(V.geo, 2) = 1", "TYPE_MISMATCH", "MOD", "cannot compute STRING % INT"),
        # constants
        ("REPLACE(V.geo, 'a', ^V.lang) = 'x'", "UNSUPPORTED_EXPRESSION", "V.lang", "third argument of REPLACE"),
        ("REGEXP_LIKE(V.geo, ^V.lang)", "UNSUPPORTED_EXPRESSION", "V.lang", "must be a constant"),
        ("ROUND(1.5, ^V.length) = 1", "UNSUPPORTED_EXPRESSION", "V.length", "second argument of ROUND"),
        ("REGEXP_LIKE(V.geo, ^'(')", "INVALID_LITERAL", "'('", "this is no regular expression: missing )"),
        ("REGEXP_LIKE(V.geo, ^'(a)\\1')", "INVALID_LITERAL", "'(a)\\1'", "no backreferences"),
        ("REGEXP_LIKE(V.geo, ^'((a{999}){999}){999}')", "INVALID_LITERAL", "'((a{999}){999}){999}'", "repetition size"),
        ("EXTRACT(^fortnight FROM V.time) = 1", "INVALID_LITERAL", "fortnight", "no unit FORTNIGHT (use one of"),
        ("DATE_TRUNC(^'dow', V.time) > 1", "INVALID_LITERAL", "'dow'", "DATE_TRUNC knows no unit DOW"),
        # casts
        ("CAST(^V.length AS DECIMAL(3, 1)) = 1", "UNSUPPORTED_FUNCTION", "V.length", "cannot cast to DECIMAL(3, 1)"),
        ("CAST(^V.geo AS VARCHAR(3)) = 'x'", "UNSUPPORTED_FUNCTION", "V.geo", "one of the types BIGINT, INT"),
        ("CAST(^C.photo AS TIMESTAMP) = 1", "TYPE_MISMATCH", "C.photo", "cannot cast BOOLEAN to TIMESTAMP"),
        ("CAST(^V.time AS INT) = 1", "TYPE_MISMATCH", "V.time", "cannot cast TIMESTAMP to INT"),
        ("CAST(^'soon' AS TIMESTAMP) = 1", "INVALID_LITERAL", "'soon'", "is not a TIMESTAMP"),
        # syntax
        ("EXTRACT(^YEAR) = 1", "SQL_SYNTAX", "YEAR", "unit FROM time"),
        ("SUBSTRING(V.geo FROM 1 ^TO 3) = 'x'", "SQL_SYNTAX", "TO", "expected"),
        ("CAST(V.geo ^) = 'x'", "SQL_SYNTAX", ")", "AS after CAST"),
        ("UPPER(DISTINCT ^V.geo) = 'x'", "UNSUPPORTED_EXPRESSION", "V.geo", "DISTINCT"),
        ("UPPER(^*) = 'x'", "SQL_SYNTAX", "*", "*"),
        ("^SUM(V.vID) > 1", "MISPLACED_AGGREGATE", "SUM", "HAVING"),
    ],
)  # fmt: skip
def test_refused(condition: str, reason: str, token: str, says: str) -> None:
    assert says in str(refused(f"{JOINED} AND {condition} {WINDOW}", reason, token))


def test_a_column_may_be_called_like_a_function() -> None:
    assert show(where("V.length = LENGTH(V.geo)").selections[0][1]) == "(V.length = LENGTH(V.geo):INT)"
    assert [show(o.expr) for o in select("length, LENGTH(a.geo) AS n").outputs] == ["a.length", "LENGTH(a.geo):INT"]
