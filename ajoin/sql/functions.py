"""Calls, CASE and CAST: from syntax to bound expressions, or an error that says which argument is wrong and why.

What a function takes is in optimizer.model.functions; this file only compares. Whatever text a user writes that could
be wrong for every row (a unit, a regular expression, a number of digits) must be a constant and is checked here, so
that a query that was accepted never fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ajoin.sql import literals
from ajoin.sql.coercion import as_timestamp, is_null, mismatch_hint
from ajoin.sql.reasons import Reason
from ajoin.sql.scope import listing, similar
from optimizer.model.expressions import Call, Case, Cast, Expr, Literal
from optimizer.model.functions import FUNCTIONS, OTHER_NAMES, UNITS, ScalarFunction, castable
from optimizer.model.types import INTEGERS, ColumnType, common_type
from optimizer.model.vocabulary import PLUGIN_HINT

if TYPE_CHECKING:
    from ajoin.sql.binder import Binder

_T = ColumnType
_TYPES = {
    exp.DType.INT: _T.INT,
    exp.DType.BIGINT: _T.BIGINT,
    exp.DType.DOUBLE: _T.DOUBLE,
    exp.DType.TEXT: _T.STRING,
    exp.DType.VARCHAR: _T.STRING,
    exp.DType.BOOLEAN: _T.BOOLEAN,
    exp.DType.TIMESTAMP: _T.TIMESTAMP,
}
_ORDINALS = ("first", "second", "third")
_NAMES = sorted({*FUNCTIONS, *OTHER_NAMES, "MOD", "CAST"})


def bind_call(binder: Binder, node: exp.Anonymous, wanted: ColumnType) -> Expr:
    written = node.name.upper()
    name = OTHER_NAMES.get(written, written)
    arguments = node.expressions
    if name == "MOD":
        _check_count(binder, node, written, len(arguments), 2, 2)
        return binder.arithmetic("%", arguments[0], arguments[1], node, wanted)
    function = FUNCTIONS.get(name)
    if function is None or isinstance(node.this, exp.Identifier):
        hint = (similar(written, _NAMES) or PLUGIN_HINT) if arguments else "put a column of that name in double quotes"
        binder.fail(node, Reason.UNSUPPORTED_FUNCTION, f"there is no function {written}", hint)
    _check_count(binder, node, written, len(arguments), function.fewest(), function.most())
    if function.alike:
        bound, shared = unify(binder, arguments, wanted, written)
        return Call(name, bound, bound[0].type if name == "NULLIF" else shared)
    bound = tuple(_argument(binder, function, written, i, a, wanted) for i, a in enumerate(arguments))
    return Call(name, bound, function.gives or bound[0].type)


def unify(
    binder: Binder, nodes: Sequence[exp.Expr], wanted: ColumnType, what: str
) -> tuple[tuple[Expr, ...], ColumnType]:
    """All of them, and the one type they are brought to; NULL has that type."""
    known = [(node, binder.bind(node, wanted)) for node in nodes if not is_null(node)]
    if not known:
        return tuple(binder.bind(node, wanted) for node in nodes), wanted
    time = next((e for _, e in known if e.type is _T.TIMESTAMP), None)
    typed = [(n, as_timestamp(e, n, time) if time is not None else e) for n, e in known]
    shared = typed[0][1].type
    for node, expr in typed:
        both = common_type(shared, expr.type)
        if both is None:
            message = f"{what} needs values of one type, not {shared} and {expr.type}"
            binder.fail(node, Reason.TYPE_MISMATCH, message, mismatch_hint(shared, expr.type) or _cast_hint(shared))
        shared = both
    values = iter([expr for _, expr in typed])
    return tuple(binder.bind(n, shared) if is_null(n) else next(values) for n in nodes), shared


def bind_case(binder: Binder, node: exp.Case, wanted: ColumnType) -> Expr:
    """Both forms; `CASE x WHEN v` asks x = v, so NULL matches nothing."""
    subject, branches, default = node.args.get("this"), node.args["ifs"], node.args.get("default")
    conditions = [
        binder.condition(b.this) if subject is None else binder.compare("=", subject, b.this, b.this) for b in branches
    ]
    results = [b.args["true"] for b in branches] + ([default] if default is not None else [])
    bound, shared = unify(binder, results, wanted, "CASE")
    otherwise = bound[-1] if default is not None else None
    return Case(tuple(zip(conditions, bound, strict=False)), otherwise, shared)


def bind_concat(binder: Binder, parts: list[exp.Expr]) -> Expr:
    function = FUNCTIONS["CONCAT"]
    return Call("CONCAT", tuple(_argument(binder, function, "||", 0, p, _T.STRING) for p in parts), _T.STRING)


def bind_cast(binder: Binder, node: exp.Cast) -> Expr:
    """Also TIMESTAMP 'text', which sqlglot reads as CAST('text' AS TIMESTAMP): a constant, checked here."""
    operand, kind = node.this, node.args["to"]
    plain = type(node) in (exp.Cast, exp.TryCast) and not any(node.args.get(a) for a in ("format", "action", "default"))
    length = [p.name for p in kind.expressions] if isinstance(kind, exp.DataType) else []
    to = _TYPES.get(kind.this) if plain and isinstance(kind, exp.DataType) else None
    if to is None or (length and (to, length) != (_T.TIMESTAMP, ["3"])):
        what = f"cannot cast to {kind.sql()}" if plain else "this form of CAST is not supported"
        hint = f"write CAST(x AS type) with one of the types {listing(_T)}"
        binder.fail(node, Reason.UNSUPPORTED_FUNCTION, what, hint)
    inner = operand.unnest()
    if to is _T.TIMESTAMP and isinstance(inner, exp.Literal) and inner.is_string:
        return literals.timestamp(binder.scope.sql, inner)
    if is_null(operand):
        return Literal(None, to)
    bound = binder.bind(operand, to)
    if to is _T.TIMESTAMP and isinstance(bound, Literal) and bound.type in INTEGERS:
        return Literal(bound.value, to)
    if not castable(bound.type, to):
        hint = "a TIMESTAMP is cast from and to STRING and BIGINT (milliseconds since 1970)"
        binder.fail(node, Reason.TYPE_MISMATCH, f"cannot cast {bound.type} to {to}", hint)
    return Cast(bound, to)


def _check_count(binder: Binder, node: exp.Expr, name: str, given: int, fewest: int, most: int | None) -> None:
    if given >= fewest and (most is None or given <= most):
        return
    takes = f"at least {fewest}" if most is None else f"{fewest}" if fewest == most else f"{fewest} or {most}"
    arguments = "argument" if takes.endswith(" 1") or takes == "1" else "arguments"
    binder.fail(node, Reason.ARGUMENT_COUNT, f"{name} takes {takes} {arguments}, this call has {given}")


def _argument(
    binder: Binder, function: ScalarFunction, name: str, position: int, node: exp.Expr, wanted: ColumnType
) -> Expr:
    allowed = function.takes(position)
    preferred = wanted if wanted in allowed else min(allowed, key=lambda t: (t is not _T.INT, t))
    bound = binder.bind(node, preferred)
    if bound.type not in allowed:
        takes = " or ".join(sorted(allowed))
        which = "on both sides" if name == "||" else f"as its {_ordinal(position)} argument"
        hint = _cast_hint(_T.STRING) if allowed == {_T.STRING} else ""
        binder.fail(node, Reason.TYPE_MISMATCH, f"{name} takes {takes} {which}, this is {bound.type}", hint)
    if position in function.constant:
        if not isinstance(bound, Literal):
            message = f"the {_ordinal(position)} argument of {name} must be a constant"
            binder.fail(node, Reason.UNSUPPORTED_EXPRESSION, message)
        return _constant(binder, function.name, node, bound)
    return bound


def _constant(binder: Binder, name: str, node: exp.Expr, constant: Literal) -> Literal:
    if name in UNITS:
        unit = str(constant.value).upper()
        if unit not in UNITS[name]:
            message = f"{name} knows no unit {unit[:40]}"
            binder.fail(node, Reason.INVALID_LITERAL, message, f"use one of {', '.join(UNITS[name])}")
        return Literal(unit, _T.STRING)
    if name == "REGEXP_LIKE" and isinstance(constant.value, str):
        try:
            pc.match_substring_regex(pa.array([""]), pattern=constant.value)
        except (pa.ArrowInvalid, UnicodeError) as error:
            why = str(error).removeprefix("Invalid regular expression: ")
            hint = "regular expressions are those of RE2: no backreferences, no look-around"
            binder.fail(node, Reason.INVALID_LITERAL, f"this is no regular expression: {why}", hint)
    return constant


def _ordinal(position: int) -> str:
    return _ORDINALS[position] if position < len(_ORDINALS) else f"{position + 1}th"


def _cast_hint(to: ColumnType) -> str:
    return f"convert it: CAST(... AS {to})"
