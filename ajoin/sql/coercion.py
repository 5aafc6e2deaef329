"""Which types go together, as pure functions: the rules the binder applies.

INT < BIGINT < DOUBLE. A TIMESTAMP is compared with a TIMESTAMP or an integer constant (milliseconds since
the epoch), moves by integers of milliseconds, and two of them differ by a BIGINT of milliseconds.
"""

from __future__ import annotations

from sqlglot import exp

from optimizer.model.expressions import Expr, Literal
from optimizer.model.types import INTEGERS, NUMBERS, ColumnType, common_type

_TIMESTAMP = ColumnType.TIMESTAMP


def is_null(node: exp.Expr) -> bool:
    while isinstance(node, (exp.Paren, exp.Neg)):
        node = node.this
    return isinstance(node, exp.Null)


def arithmetic_type(op: str, a: ColumnType, b: ColumnType) -> ColumnType | None:
    """The type of the result: INT < BIGINT < DOUBLE; a TIMESTAMP moves by, and differs in, milliseconds."""
    if a in NUMBERS and b in NUMBERS:
        return common_type(a, b)
    if a == _TIMESTAMP and b == _TIMESTAMP:
        return ColumnType.BIGINT if op == "-" else None
    if (a == _TIMESTAMP and b in INTEGERS and op in "+-") or (a in INTEGERS and b == _TIMESTAMP and op == "+"):
        return _TIMESTAMP
    return None


def flat(node: exp.Expr, kind: type[exp.Binary]) -> list[exp.Expr]:
    """The operands of a chain of one operator (AND, OR, ||), left to right, without recursion."""
    parts: list[exp.Expr] = []
    todo = [node]
    while todo:
        at = todo.pop()
        inner = at.unnest()
        if isinstance(inner, kind):
            todo += [inner.expression, inner.this]
        else:
            parts.append(at)
    return parts


def as_timestamp(expr: Expr, node: exp.Expr, other: Expr) -> Expr:
    """An integer constant beside a TIMESTAMP is milliseconds; an INTERVAL is no point in time."""
    if (
        isinstance(expr, Literal)
        and expr.type in INTEGERS
        and other.type == _TIMESTAMP
        and not isinstance(node.unnest(), exp.Interval)
    ):
        return Literal(expr.value, _TIMESTAMP)
    return expr


def widen(value: Literal, to: ColumnType) -> Literal:
    if value.value is not None and to == ColumnType.DOUBLE:
        return Literal(float(value.value), to)
    return Literal(value.value, to)


def mismatch_hint(a: ColumnType, b: ColumnType) -> str:
    if _TIMESTAMP not in (a, b):
        return ""
    return "write TIMESTAMP '2024-01-31 00:00:00' or an integer constant in milliseconds"
