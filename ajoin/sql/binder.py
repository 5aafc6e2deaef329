"""From syntax to meaning: every expression gets its columns and its type, or an error that names both types.

Binding is total over the nodes listed in `_bind` and refuses all others, so an operator that sqlglot learns
to read tomorrow is an error here, not a wrong answer. AND / OR chains of any length are one node; every
other nesting is bounded by MAX_DEPTH, because the bound value is hashed, compared and walked recursively
for the rest of its life. MAX_NODES bounds the whole statement: BETWEEN repeats its operand, so nested ones
would double with each level.

NULL has no type of its own: it takes that of the other side (`wanted`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from sqlglot import exp

from ajoin.sql import literals
from ajoin.sql.coercion import arithmetic_type, as_timestamp, flat, is_null, mismatch_hint, widen
from ajoin.sql.functions import bind_call, bind_case, bind_cast, bind_concat
from ajoin.sql.places import At, sql_error, too_complex
from ajoin.sql.reasons import Reason
from ajoin.sql.scope import Scope
from optimizer.model.expressions import (
    And,
    Arithmetic,
    Compare,
    Expr,
    InList,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
)
from optimizer.model.types import NUMBERS, ColumnType, common_type

MAX_DEPTH = 64
MAX_NODES = 65_536
_BOOLEAN = ColumnType.BOOLEAN
_COMPARE = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_ARGS: dict[type[exp.Expr], set[str]] = {
    exp.In: {"this", "expressions"},
    exp.Like: {"this", "expression", "negate"},
    exp.Is: {"this", "expression", "negate"},
    exp.Between: {"this", "low", "high"},
}
_SPELLING: dict[type[exp.Expr], str] = {
    exp.RegexpLike: "RLIKE",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
    exp.Tuple: "a list of values",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.Bracket: "[...]",
    exp.Dot: "a name with more than two parts",
}


Special = Callable[["Binder", exp.Expr], Expr | None]
"""What a node means that is no scalar expression, such as an aggregate; None: it is one."""


@dataclass(slots=True)
class Binder:
    scope: Scope
    special: Special | None = None
    depth: int = 0
    nodes: int = 0

    def condition(self, node: exp.Expr) -> Expr:
        """An expression where SQL needs a truth value."""
        expr = self.bind(node, _BOOLEAN)
        if expr.type != _BOOLEAN:
            self.fail(
                node,
                Reason.TYPE_MISMATCH,
                f"a condition must be BOOLEAN, this is {expr.type}",
                "compare it with something",
            )
        return expr

    def bind(self, node: exp.Expr, wanted: ColumnType) -> Expr:
        if self.depth >= MAX_DEPTH or self.nodes >= MAX_NODES:
            raise too_complex(self.scope.sql, node)
        self.depth += 1
        self.nodes += 1
        try:
            meant = self.special(self, node) if self.special else None
            return self._bind(node, wanted) if meant is None else meant
        finally:
            self.depth -= 1

    def fail(self, at: At, reason: Reason, message: str, hint: str = "") -> NoReturn:
        raise sql_error(self.scope.sql, at, reason, message, hint)

    def _bind(self, node: exp.Expr, wanted: ColumnType) -> Expr:  # noqa: RET503 - ends in NoReturn
        self._check_args(node)
        match node:
            case exp.Paren():
                return self.bind(node.this, wanted)
            case exp.Column():
                return self.scope.column(node)
            case exp.Null():
                return Literal(None, wanted)
            case exp.Boolean():
                return Literal(bool(node.this), _BOOLEAN)
            case exp.Literal() if node.is_string:
                return Literal(node.name, ColumnType.STRING)
            case exp.Literal():
                return literals.number(self.scope.sql, node, negative=False)
            case exp.Interval():
                return Literal(literals.interval_ms(self.scope.sql, node), ColumnType.BIGINT)
            case exp.Cast():
                return bind_cast(self, node)
            case exp.Case():
                return bind_case(self, node, wanted)
            case exp.Anonymous():
                return bind_call(self, node, wanted)
            case exp.DPipe():
                return bind_concat(self, flat(node, exp.DPipe))
            case exp.Neg():
                return self._negate(node, wanted)
            case exp.And():
                return And(tuple(self.condition(part) for part in flat(node, exp.And)))
            case exp.Or():
                return Or(tuple(self.condition(part) for part in flat(node, exp.Or)))
            case exp.Not():
                return Not(self.condition(node.this))
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                return self.compare(_COMPARE[type(node)], node.this, node.expression, node)
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Mod():
                return self.arithmetic(_ARITHMETIC[type(node)], node.this, node.expression, node, wanted)
            case exp.Between():
                low = self.compare(">=", node.this, node.args["low"], node)
                return And((low, self.compare("<=", node.this, node.args["high"], node)))
            case exp.In():
                return self._in_list(node)
            case exp.Escape():
                return self._like(node.this, node.expression)
            case exp.Like():
                return self._like(node, None)
            case exp.Is():
                return self._is(node)
        self._refuse(node)

    # -- operators

    def _pair(self, left: exp.Expr, right: exp.Expr, wanted: ColumnType) -> tuple[Expr, Expr]:
        """Both sides; a NULL takes the type of the other one."""
        if is_null(left):
            b = self.bind(right, wanted)
            return self.bind(left, b.type), b
        a = self.bind(left, wanted)
        return a, self.bind(right, a.type)

    def compare(self, op: str, left: exp.Expr, right: exp.Expr, at: exp.Expr) -> Expr:
        a, b = self._pair(left, right, ColumnType.STRING)
        a, b = as_timestamp(a, left, b), as_timestamp(b, right, a)
        if common_type(a.type, b.type) is None:
            self.fail(
                at,
                Reason.TYPE_MISMATCH,
                f"cannot compare {a.type} with {b.type}",
                mismatch_hint(a.type, b.type),
            )
        return Compare(op, a, b)

    def arithmetic(self, op: str, left: exp.Expr, right: exp.Expr, at: exp.Expr, wanted: ColumnType) -> Expr:
        a, b = self._pair(left, right, wanted if wanted in NUMBERS else ColumnType.INT)
        if b.type == ColumnType.TIMESTAMP and is_null(right):
            b = Literal(None, ColumnType.BIGINT)
        result = arithmetic_type(op, a.type, b.type)
        if result is None:
            self.fail(at, Reason.TYPE_MISMATCH, f"cannot compute {a.type} {op} {b.type}")
        return Arithmetic(op, a, b, result)

    def _negate(self, node: exp.Expr, wanted: ColumnType) -> Expr:
        inner, negative = node, False
        while isinstance(inner, (exp.Neg, exp.Paren)):
            negative ^= isinstance(inner, exp.Neg)
            inner = inner.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return literals.number(self.scope.sql, inner, negative=negative)
        operand = self.bind(node.this, wanted if wanted in NUMBERS else ColumnType.INT)
        if operand.type not in NUMBERS:
            self.fail(node, Reason.TYPE_MISMATCH, f"cannot negate {operand.type}")
        return Negate(operand, operand.type)

    def _in_list(self, node: exp.Expr) -> Expr:
        """All values get the one type in which they are compared with the operand."""
        items = node.expressions
        if not items:
            self.fail(node, Reason.SQL_SYNTAX, "IN needs at least one value")
        typed = next((i for i in items if not is_null(i)), items[0])
        operand, _ = self._pair(node.this, typed, ColumnType.STRING)
        values = []
        for item in items:
            value = as_timestamp(self.bind(item, operand.type), item, operand)
            if not isinstance(value, Literal):
                self.fail(
                    item,
                    Reason.UNSUPPORTED_EXPRESSION,
                    "IN takes constants only",
                    "use comparisons joined by OR",
                )
            if common_type(operand.type, value.type) is None:
                self.fail(
                    item,
                    Reason.TYPE_MISMATCH,
                    f"cannot compare {operand.type} with {value.type}",
                    mismatch_hint(operand.type, value.type),
                )
            values.append(value)
        shared = operand.type
        for value in values:
            shared = common_type(shared, value.type) or shared
        return InList(operand, tuple(widen(v, shared) for v in values))

    def _like(self, node: exp.Expr, escape: exp.Expr | None) -> Expr:
        if not isinstance(node, exp.Like):
            self._refuse(node)
        self._check_args(node)
        operand = self.bind(node.this, ColumnType.STRING)
        pattern = self.bind(node.expression, ColumnType.STRING)
        sign = self.bind(escape, ColumnType.STRING) if escape is not None else None
        if operand.type != ColumnType.STRING or pattern.type != ColumnType.STRING:
            self.fail(
                node,
                Reason.TYPE_MISMATCH,
                f"LIKE compares STRING with STRING, not {operand.type} with {pattern.type}",
            )
        if not isinstance(pattern, Literal):
            self.fail(node.expression, Reason.UNSUPPORTED_EXPRESSION, "the pattern of LIKE must be a constant")
        char = sign.value if isinstance(sign, Literal) else None
        if escape is not None and not (isinstance(char, str) and len(char) == 1):
            self.fail(escape, Reason.INVALID_LITERAL, "ESCAPE takes exactly one character")
        if not isinstance(pattern.value, str):
            return Literal(None, _BOOLEAN)
        mark = char if isinstance(char, str) else None
        if mark and pattern.value.replace(mark * 2, "").endswith(mark):
            self.fail(node.expression, Reason.INVALID_LITERAL, "the pattern ends with its escape character")
        like = Like(operand, pattern.value, mark)
        return Not(like) if node.args.get("negate") else like

    def _is(self, node: exp.Expr) -> Expr:
        """IS [NOT] NULL, TRUE, FALSE; never NULL themselves.

        `x OR NULL` is NULL unless x is TRUE, and `x AND NULL` is NULL unless x is FALSE: no need to repeat x.
        """
        right = node.expression
        result: Expr
        if isinstance(right, exp.Null):
            result = IsNull(self.bind(node.this, ColumnType.STRING))
        elif isinstance(right, exp.Boolean):
            truth = self.condition(node.this)
            unknown = Literal(None, _BOOLEAN)
            result = Not(IsNull(Or((truth, unknown)) if right.this else And((truth, unknown))))
        else:
            self._refuse(node)
        return Not(result) if node.args.get("negate") else result

    # -- refusals

    def _check_args(self, node: exp.Expr) -> None:
        allowed = _ARGS.get(type(node))
        if allowed is not None and any(value for key, value in node.args.items() if key not in allowed):
            self._refuse(node)

    def _refuse(self, node: exp.Expr) -> NoReturn:
        if isinstance(node, exp.Star):
            self.fail(node, Reason.SQL_SYNTAX, "* is only allowed as an item of SELECT")
        if isinstance(node, exp.Func) and not isinstance(node, (exp.Connector, exp.Binary, exp.Case)):
            hint = "" if node.expressions or node.this else "put a column of that name in double quotes"
            self.fail(node, Reason.UNSUPPORTED_FUNCTION, f"function {node.sql_name().upper()} is not supported", hint)
        what = _SPELLING.get(type(node), node.key.upper())
        self.fail(node, Reason.UNSUPPORTED_EXPRESSION, f"{what} is not supported")
