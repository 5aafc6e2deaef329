"""The evaluator, one rule a line."""

from __future__ import annotations

import math

import pytest

from optimizer.model.expressions import And, ColumnRef, InList, IsNull, Like, Literal, Negate, Not, Or
from optimizer.model.types import ColumnType
from tests.oracle.values import arithmetic, compare, evaluate, like, wrap

BIGINT, INT, DOUBLE, STRING = ColumnType.BIGINT, ColumnType.INT, ColumnType.DOUBLE, ColumnType.STRING
TRUE, FALSE, UNKNOWN = (Literal(v, ColumnType.BOOLEAN) for v in (True, False, None))


@pytest.mark.parametrize(
    ("op", "left", "right", "type_", "result"),
    [
        ("/", 7, 2, INT, 3),
        ("/", -7, 2, INT, -3),
        ("/", 7, -2, BIGINT, -3),
        ("%", 7, 3, INT, 1),
        ("%", -7, 3, INT, -1),
        ("%", 7, -3, INT, 1),
        ("/", 1, 0, BIGINT, None),
        ("%", 1, 0, BIGINT, None),
        ("/", -(2**31), -1, INT, -(2**31)),
        ("+", 2**31 - 1, 1, INT, -(2**31)),
        ("+", 2**31 - 1, 1, BIGINT, 2**31),
        ("*", 2**62, 2, BIGINT, -(2**63)),
        ("-", -(2**63), 1, BIGINT, 2**63 - 1),
        ("+", 1, None, INT, None),
        ("/", 7, 2, DOUBLE, 3.5),
        ("/", 1, 0, DOUBLE, math.inf),
        ("/", 1.0, -0.0, DOUBLE, -math.inf),
        ("%", -7.5, 2, DOUBLE, -1.5),
    ],
)
def test_arithmetic(op, left, right, type_, result):
    value = arithmetic(op, left, right, type_)
    assert value == result
    assert type(value) is type(result)


@pytest.mark.parametrize(("op", "left", "right"), [("/", 0, 0), ("%", 1, 0), ("%", math.inf, 2)])
def test_arithmetic_without_an_answer_is_nan_in_double(op, left, right):
    assert math.isnan(arithmetic(op, left, right, DOUBLE))


def test_wrapping_keeps_what_fits():
    assert [wrap(v, INT) for v in (-(2**31), -1, 0, 2**31 - 1)] == [-(2**31), -1, 0, 2**31 - 1]
    row = {"a": {"k": -(2**63)}}
    assert evaluate(Negate(ColumnRef("a", "k", BIGINT), BIGINT), row) == -(2**63)


def test_comparisons_happen_in_the_common_type():
    assert compare("=", 2**53 + 1, BIGINT, float(2**53), DOUBLE) is True
    assert compare("=", 2**53 + 1, BIGINT, 2**53, BIGINT) is False
    assert compare("<", 1, INT, 1.5, DOUBLE) is True
    assert compare("<", "a", STRING, "é", STRING) is True
    assert compare("=", None, INT, None, INT) is None


@pytest.mark.parametrize("op", ["=", "<", "<=", ">", ">="])
def test_nan_equals_nothing(op):
    assert compare(op, math.nan, DOUBLE, math.nan, DOUBLE) is False
    assert compare("<>", math.nan, DOUBLE, math.nan, DOUBLE) is True


def test_three_valued_logic():
    table = {(e, f): evaluate(And((e, f)), {}) for e in (TRUE, FALSE, UNKNOWN) for f in (TRUE, FALSE, UNKNOWN)}
    assert table[TRUE, UNKNOWN] is None
    assert table[FALSE, UNKNOWN] is False
    assert table[UNKNOWN, UNKNOWN] is None
    assert table[TRUE, TRUE] is True
    assert evaluate(Or((UNKNOWN, TRUE)), {}) is True
    assert evaluate(Or((UNKNOWN, FALSE)), {}) is None
    assert evaluate(Or((FALSE, FALSE)), {}) is False
    assert evaluate(Not(UNKNOWN), {}) is None
    assert evaluate(Not(FALSE), {}) is True
    assert evaluate(IsNull(UNKNOWN), {}) is True
    assert evaluate(IsNull(FALSE), {}) is False


def test_in_with_nulls():
    def is_in(value, *options):
        column = ColumnRef("a", "k", INT)
        return evaluate(InList(column, tuple(Literal(o, INT) for o in options)), {"a": {"k": value}})

    assert is_in(1, 1, None) is True
    assert is_in(2, 1, None) is None
    assert is_in(2, 1, 3) is False
    assert is_in(None, 1) is None


@pytest.mark.parametrize(
    ("text", "pattern", "escape", "result"),
    [
        ("", "", None, True),
        ("", "%", None, True),
        ("", "_", None, False),
        ("abc", "a%", None, True),
        ("abc", "%c", None, True),
        ("abc", "a_c", None, True),
        ("abc", "A%", None, False),
        ("abc", "%b", None, False),
        ("abc", "%%_%c", None, True),
        ("a\nc", "a_c", None, True),
        ("a%", "a!%", "!", True),
        ("ab", "a!%", "!", False),
        ("a!", "a!!", "!", True),
        ("é", "_", None, True),
        ("a.c", "a.c", None, True),
        ("abc", "a.c", None, False),
        ("a\\c", "a\\c", None, True),
    ],
)
def test_like(text, pattern, escape, result):
    assert like(text, pattern, escape) is result


def test_like_of_null_is_unknown():
    assert evaluate(Like(Literal(None, STRING), "%"), {}) is None
