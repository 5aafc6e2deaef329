"""Expressions as SQL text: parentheses only where they are needed, and always there."""

from __future__ import annotations

import pytest

from optimizer.explain.render import identifier, render
from optimizer.model.expressions import (
    And,
    Arithmetic,
    Call,
    Case,
    Cast,
    ColumnRef,
    Compare,
    Expr,
    InList,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
    WindowBound,
)
from optimizer.model.types import ColumnType

BIGINT, DOUBLE, STRING, TIMESTAMP = (
    ColumnType.BIGINT,
    ColumnType.DOUBLE,
    ColumnType.STRING,
    ColumnType.TIMESTAMP,
)
A, B, C = (ColumnRef("v", name, BIGINT) for name in "abc")
NAME = ColumnRef("v", "name", STRING)


def num(value: float | None) -> Literal:
    return Literal(value, DOUBLE if isinstance(value, float) else BIGINT)


def text(value: str) -> Literal:
    return Literal(value, STRING)


def calc(op: str, left: Expr, right: Expr) -> Arithmetic:
    return Arithmetic(op, left, right, BIGINT)


LESS = Compare("<", A, num(3))
SAME = Compare("=", B, C)


@pytest.mark.parametrize(
    ("expr", "sql"),
    [
        (LESS, "a < 3"),
        (Compare("<>", NAME, text("it's")), "name <> 'it''s'"),
        (Compare("=", A, num(None)), "a = NULL"),
        (Compare(">=", A, num(-2)), "a >= -2"),
        (Compare("<", A, num(0.1)), "a < 0.1"),
        (Compare("<", A, num(float("inf"))), "a < CAST('inf' AS DOUBLE)"),
        (Literal(True, ColumnType.BOOLEAN), "TRUE"),
        (Compare("<", A, Literal(1_700_000_000_000, TIMESTAMP)), "a < TIMESTAMP '2023-11-14 22:13:20'"),
        (Compare("<", A, Literal(-1, TIMESTAMP)), "a < TIMESTAMP '1969-12-31 23:59:59.999'"),
        (Compare("<", A, Literal(2**62, TIMESTAMP)), f"a < {2**62} ms"),
        (WindowBound("window_end"), "window_end"),
        (And((LESS, SAME)), "a < 3 AND b = c"),
        (Or((And((LESS, SAME)), LESS)), "a < 3 AND b = c OR a < 3"),
        (And((Or((LESS, SAME)), LESS)), "(a < 3 OR b = c) AND a < 3"),
        (And((LESS,)), "a < 3"),
        (And(()), "TRUE"),
        (Not(LESS), "NOT a < 3"),
        (Not(And((LESS, SAME))), "NOT (a < 3 AND b = c)"),
        (Not(Not(LESS)), "NOT NOT a < 3"),
        (IsNull(A), "a IS NULL"),
        (Not(IsNull(calc("+", A, B))), "a + b IS NOT NULL"),
        (IsNull(LESS), "(a < 3) IS NULL"),
        (InList(A, (num(1), num(None))), "a IN (1, NULL)"),
        (Not(InList(NAME, (text("x"), text("y")))), "name NOT IN ('x', 'y')"),
        (Like(NAME, "50\\%_", "\\"), "name LIKE '50\\%_' ESCAPE '\\'"),
        (Not(Like(NAME, "a%")), "name NOT LIKE 'a%'"),
        (calc("-", calc("-", A, B), C), "a - b - c"),
        (calc("-", A, calc("-", B, C)), "a - (b - c)"),
        (calc("*", calc("+", A, B), C), "(a + b) * c"),
        (calc("+", calc("*", A, B), C), "a * b + c"),
        (calc("/", A, calc("%", B, C)), "a / (b % c)"),
        (calc("-", A, num(-1)), "a - -1"),
        (Negate(A, BIGINT), "-a"),
        (Negate(Negate(A, BIGINT), BIGINT), "-(-a)"),
        (Negate(num(-1), BIGINT), "-(-1)"),
        (Negate(calc("+", A, B), BIGINT), "-(a + b)"),
        (Compare("=", LESS, SAME), "(a < 3) = (b = c)"),
        (Call("ROUND", (calc("+", A, B), num(-1)), BIGINT), "ROUND(a + b, -1)"),
        (Call("EXTRACT", (text("YEAR"), ColumnRef("v", "t", TIMESTAMP)), BIGINT), "EXTRACT(YEAR FROM t)"),
        (Call("COALESCE", (LESS, SAME), ColumnType.BOOLEAN), "COALESCE(a < 3, b = c)"),
        (Negate(Cast(NAME, BIGINT), BIGINT), "-CAST(name AS BIGINT)"),
        (Case(((LESS, A), (SAME, B)), num(0), BIGINT), "CASE WHEN a < 3 THEN a WHEN b = c THEN b ELSE 0 END"),
        (Compare("<", Case(((LESS, A),), None, BIGINT), B), "CASE WHEN a < 3 THEN a END < b"),
    ],
)
def test_expressions(expr: Expr, sql: str) -> None:
    assert render(expr, qualified=False) == sql


def test_columns_are_qualified_and_odd_names_quoted() -> None:
    odd = ColumnRef("die Videos", 'a "b"', BIGINT)
    assert render(Compare("=", odd, A)) == '"die Videos"."a ""b""" = v.a'
    assert identifier("Straße") == '"Straße"'
    assert identifier("_x1") == "_x1"
