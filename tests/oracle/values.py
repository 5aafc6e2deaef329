"""Scalar expressions over plain Python values, written to be read next to the SQL standard.

NULL is None, and TRUE / FALSE / UNKNOWN are True / False / None. `evaluate` looks a column up through
`rows`, which maps an alias to a dict of that source's columns; a value already has the Python type of its
column (int, float, str, bool), because decoding took care of that. Nothing here is shared with the engine's
evaluator: one value at a time, no arrays, so that a mistake would have to be made twice to stay hidden.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from optimizer.model.expressions import (
    Aggregate,
    And,
    Arithmetic,
    Call,
    Case,
    Cast,
    ColumnRef,
    Compare,
    Expr,
    GroupRef,
    InList,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
    WindowBound,
)
from optimizer.model.types import ColumnType, common_type
from tests.oracle import functions

Rows = Mapping[str, Mapping[str, Any]]
BITS = {ColumnType.INT: 32, ColumnType.BIGINT: 64, ColumnType.TIMESTAMP: 64}


def evaluate(
    expr: Expr, rows: Rows, window: tuple[Any, Any] | None = None, folded: Mapping[Expr, Any] | None = None
) -> Any:
    """The expression's value for one combination of tuples (and, for SELECT, the window they share).

    In SELECT and HAVING of a query that folds there are aggregates and group items in the place of columns; `folded`
    says what they are worth."""
    match expr:
        case Aggregate() | GroupRef():
            assert folded is not None, "aggregates only exist in SELECT and HAVING"
            return folded[expr]
        case Literal():
            return _as(expr.value, expr.type)
        case ColumnRef():
            return rows[expr.alias][expr.column]
        case WindowBound():
            assert window is not None, "window_start and window_end only exist in SELECT"
            return window[0] if expr.which == "window_start" else window[1]
        case Compare():
            left, right = evaluate(expr.left, rows, window, folded), evaluate(expr.right, rows, window, folded)
            return compare(expr.op, left, expr.left.type, right, expr.right.type)
        case Arithmetic():
            left, right = evaluate(expr.left, rows, window, folded), evaluate(expr.right, rows, window, folded)
            return arithmetic(expr.op, left, right, expr.type)
        case Negate():
            value = evaluate(expr.operand, rows, window, folded)
            if value is None:
                return None
            return -value if expr.type == ColumnType.DOUBLE else wrap(-value, expr.type)
        case And():
            values = [evaluate(e, rows, window, folded) for e in expr.operands]
            return False if False in values else None if None in values else True
        case Or():
            values = [evaluate(e, rows, window, folded) for e in expr.operands]
            return True if True in values else None if None in values else False
        case Not():
            value = evaluate(expr.operand, rows, window, folded)
            return None if value is None else not value
        case IsNull():
            return evaluate(expr.operand, rows, window, folded) is None
        case InList():
            value = evaluate(expr.operand, rows, window, folded)
            hits = [compare("=", value, expr.operand.type, v.value, v.type) for v in expr.values]
            return True if True in hits else None if None in hits else False
        case Like():
            value = evaluate(expr.operand, rows, window, folded)
            return None if value is None else like(value, expr.pattern, expr.escape)
        case Cast():
            return functions.cast(evaluate(expr.operand, rows, window), expr.operand.type, expr.type)
        case Call():
            arguments = [evaluate(a, rows, window) for a in expr.arguments]
            return functions.call(expr.function, arguments, [a.type for a in expr.arguments], expr.type)
        case Case():
            for condition, result in expr.branches:
                if evaluate(condition, rows, window) is True:
                    return _as(evaluate(result, rows, window), expr.type)
            return None if expr.otherwise is None else _as(evaluate(expr.otherwise, rows, window), expr.type)
    raise TypeError(f"unknown expression {expr!r}")


def compare(op: str, left: Any, left_type: ColumnType, right: Any, right_type: ColumnType) -> bool | None:
    if left is None or right is None:
        return None
    type_ = common_type(left_type, right_type)
    assert type_ is not None, f"{left_type} and {right_type} cannot be compared"
    a, b = _as(left, type_), _as(right, type_)
    match op:
        case "=":
            return a == b
        case "<>":
            return a != b
        case "<":
            return a < b
        case "<=":
            return a <= b
        case ">":
            return a > b
        case ">=":
            return a >= b
    raise ValueError(f"unknown comparison {op!r}")


def arithmetic(op: str, left: Any, right: Any, type_: ColumnType) -> Any:
    if left is None or right is None:
        return None
    if type_ == ColumnType.DOUBLE:
        return _float_arithmetic(op, float(left), float(right))
    if op in "/%":
        if right == 0:
            return None
        quotient = abs(left) // abs(right)
        if (left < 0) != (right < 0):
            quotient = -quotient
        # left == quotient * right + remainder, so the remainder has the sign of the dividend.
        return wrap(quotient if op == "/" else left - quotient * right, type_)
    return wrap({"+": left + right, "-": left - right, "*": left * right}[op], type_)


def _float_arithmetic(op: str, left: float, right: float) -> float:
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/" if right == 0.0:
            if left == 0.0 or math.isnan(left):
                return math.nan
            return math.copysign(math.inf, left) * math.copysign(1.0, right)
        case "/":
            return left / right
        case "%" if right == 0.0 or math.isinf(left):
            return math.nan
        case "%":
            return math.fmod(left, right)
    raise ValueError(f"unknown operator {op!r}")


def wrap(value: int, type_: ColumnType) -> int:
    """Two's complement: keep the low bits, read the top one as the sign."""
    bits = BITS[type_]
    value %= 1 << bits
    return value - (1 << bits) if value >= 1 << (bits - 1) else value


def like(text: str, pattern: str, escape: str | None = None) -> bool:
    """% any run, _ any one character; the character after the escape stands for itself."""
    if not pattern:
        return not text
    first, rest = pattern[0], pattern[1:]
    if escape is not None and first == escape and rest:
        return text[:1] == rest[0] and like(text[1:], rest[1:], escape)
    if first == "%":
        return any(like(text[i:], rest, escape) for i in range(len(text) + 1))
    if first == "_":
        return bool(text) and like(text[1:], rest, escape)
    return text[:1] == first and like(text[1:], rest, escape)


def _as(value: Any, type_: ColumnType) -> Any:
    return float(value) if type_ == ColumnType.DOUBLE and value is not None else value
