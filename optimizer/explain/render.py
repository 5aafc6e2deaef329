"""Bound expressions as SQL text, for people and for error messages.

The text means what the expression means: operands are put in parentheses exactly where reading it back by
SQL's precedence would give another tree. It is a description, not the user's own text: BETWEEN appears as
its two comparisons.
"""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta

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
    Value,
    WindowBound,
)
from optimizer.model.types import ColumnType

_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _SIGN, _ATOM = range(8)
_SUMS = frozenset("+-")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def render(expr: Expr, *, qualified: bool = True) -> str:
    """`qualified=False` leaves out the aliases, where it is clear whose columns are meant."""
    return _Renderer(qualified).text(expr, _OR)


def identifier(name: str) -> str:
    """In double quotes unless it is a plain word."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'


class _Renderer:
    def __init__(self, qualified: bool) -> None:
        self._qualified = qualified

    def text(self, expr: Expr, at_least: int) -> str:
        """The text of `expr`, in parentheses if it binds less tightly than `at_least`."""
        text, binds = self._bare(expr)
        return text if binds >= at_least else f"({text})"

    def _bare(self, expr: Expr) -> tuple[str, int]:
        match expr:
            case ColumnRef(alias, column):
                name = identifier(column)
                return (f"{identifier(alias)}.{name}" if self._qualified else name), _ATOM
            case Literal(value, type_):
                text = literal(value, type_)
                return text, _SIGN if text.startswith("-") else _ATOM
            case WindowBound(which):
                return which, _ATOM
            case GroupRef(index):
                return f"#{index + 1}", _ATOM
            case Aggregate(function, arguments, _, parameters, where):
                given = [self.text(a, _OR) for a in arguments] + [literal(p, ColumnType.DOUBLE) for p in parameters]
                text = f"{function}({', '.join(given) or '*'})"
                return text + (f" FILTER (WHERE {self.text(where, _OR)})" if where is not None else ""), _ATOM
            case Compare(op, left, right):
                return f"{self.text(left, _SUM)} {op} {self.text(right, _SUM)}", _COMPARE
            case Arithmetic(op, left, right):
                binds = _SUM if op in _SUMS else _PRODUCT
                # a - (b - c) needs its parentheses, (a - b) - c does not
                return f"{self.text(left, binds)} {op} {self.text(right, binds + 1)}", binds
            case Negate(operand):
                return f"-{self.text(operand, _ATOM)}", _SIGN
            case And(operands):
                return self._list(" AND ", operands, _AND, empty="TRUE")
            case Or(operands):
                return self._list(" OR ", operands, _OR, empty="FALSE")
            case Not(IsNull() | InList() | Like() as operand):
                return self._test(operand, "NOT "), _COMPARE
            case Not(operand):
                return f"NOT {self.text(operand, _NOT)}", _NOT
            case IsNull() | InList() | Like():
                return self._test(expr, ""), _COMPARE
            case Call("EXTRACT", (Literal(str(unit)), operand)):
                return f"EXTRACT({unit} FROM {self.text(operand, _SUM)})", _ATOM
            case Call(function, arguments):
                return f"{function}({', '.join(self.text(a, _OR) for a in arguments)})", _ATOM
            case Cast(operand, type_):
                return f"CAST({self.text(operand, _OR)} AS {type_})", _ATOM
            case Case(branches, otherwise):
                texts = [f"WHEN {self.text(when, _OR)} THEN {self.text(then, _OR)}" for when, then in branches]
                texts += [] if otherwise is None else [f"ELSE {self.text(otherwise, _OR)}"]
                return f"CASE {' '.join(texts)} END", _ATOM

    def _list(self, word: str, operands: tuple[Expr, ...], binds: int, empty: str) -> tuple[str, int]:
        if not operands:
            return empty, _ATOM
        if len(operands) == 1:
            return self._bare(operands[0])
        return word.join(self.text(operand, binds + 1) for operand in operands), binds

    def _test(self, expr: IsNull | InList | Like, negated: str) -> str:
        subject = self.text(expr.operand, _SUM)
        match expr:
            case IsNull():
                return f"{subject} IS {negated}NULL"
            case InList(_, values):
                return f"{subject} {negated}IN ({', '.join(literal(v.value, v.type) for v in values)})"
            case Like(_, pattern, escape):
                end = f" ESCAPE {quoted(escape)}" if escape is not None else ""
                return f"{subject} {negated}LIKE {quoted(pattern)}{end}"


def literal(value: Value, type_: ColumnType) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return quoted(value)
        case int() if type_ == ColumnType.TIMESTAMP:
            return _timestamp(value)
        case float() if not math.isfinite(value):
            return f"CAST('{value}' AS DOUBLE)"
        case _:
            return repr(value)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _timestamp(ms: int) -> str:
    try:
        at = datetime(1970, 1, 1) + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms} ms"  # beyond the years SQL can write
    precision = "milliseconds" if ms % 1000 else "seconds"
    return f"TIMESTAMP '{at.isoformat(sep=' ', timespec=precision)}'"
