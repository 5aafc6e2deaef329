"""Vectorised evaluation of bound expressions with SQL's three-valued logic.

A result is (values, valid): `valid[i]` False means NULL. For booleans values[i] is only meaningful where valid; a row
passes a condition when both are True (`truth`). Columns come from a callback, so the same evaluator serves the source
operator (one stream), the sink (joined rows) and the predicate index (interval positions instead of values).

String comparisons use Arrow's kernels; code point order and UTF-8 byte order are the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.model import expressions as ex
from optimizer.model.types import ColumnType, common_type
from runtime.columns.casts import cast
from runtime.columns.column import NUMPY_TYPES, ColumnData, compacted, decoded, from_arrow, nulls
from runtime.columns.functions import call
from runtime.columns.like import LikePattern
from runtime.columns.texts import chosen

Mask = npt.NDArray[np.bool_]
Lookup = Callable[[Any], ColumnData]
"""Gives the values of a ColumnRef (or, where rows are made, of a WindowBound, GroupRef or Aggregate)."""

_ARROW_COMPARE = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_NUMPY_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def truth(expr: ex.Expr, lookup: Lookup, rows: int) -> Mask:
    """Rows for which the condition is TRUE (neither FALSE nor NULL)."""
    result = evaluate(expr, lookup, rows)
    passed = result.values.astype(bool)
    return passed if result.valid is None else passed & result.valid


def evaluate(expr: ex.Expr, lookup: Lookup, rows: int) -> ColumnData:
    match expr:
        case ex.ColumnRef() | ex.WindowBound() | ex.GroupRef() | ex.Aggregate():
            return lookup(expr)
        case ex.Literal(value, type):
            return _constant(value, type, rows)
        case ex.Compare(op, left, right):
            return _compare(op, evaluate(left, lookup, rows), evaluate(right, lookup, rows))
        case ex.Arithmetic(op, left, right, type):
            return _arithmetic(op, evaluate(left, lookup, rows), evaluate(right, lookup, rows), type)
        case ex.Negate(operand, type):
            inner = evaluate(operand, lookup, rows)
            with np.errstate(over="ignore"):
                return ColumnData(type, -inner.values.astype(NUMPY_TYPES[type]), inner.valid)
        case ex.And(operands):
            return _connect([evaluate(o, lookup, rows) for o in operands], decisive=False)
        case ex.Or(operands):
            return _connect([evaluate(o, lookup, rows) for o in operands], decisive=True)
        case ex.Not(operand):
            inner = evaluate(operand, lookup, rows)
            return _boolean(~inner.values.astype(bool), inner.valid)
        case ex.IsNull(operand):
            return _boolean(~evaluate(operand, lookup, rows).mask, None)
        case ex.InList(operand, values):
            return _in_list(compacted(evaluate(operand, lookup, rows)), values, rows)
        case ex.Like(operand, pattern, escape):
            return _like(compacted(evaluate(operand, lookup, rows)), pattern, escape)
        case ex.Cast(operand, type):
            return cast(evaluate(operand, lookup, rows), type)
        case ex.Case():
            return _case(expr, lookup, rows)
        case ex.Call("NULLIF", (left, right), type):
            first = evaluate(left, lookup, rows)
            equal = _compare("=", first, evaluate(right, lookup, rows))
            differs = ~(equal.values.astype(bool) & equal.mask)
            return ColumnData(type, first.values, first.mask & differs, first.dictionary)
        case ex.Call(function, arguments, type):
            constants = [a.value if isinstance(a, ex.Literal) else None for a in arguments]
            return call(function, [evaluate(a, lookup, rows) for a in arguments], constants, type)


def _case(expr: ex.Case, lookup: Lookup, rows: int) -> ColumnData:
    """Every result for every row, and then each row's: nothing fails, so what a row does not take does no harm."""
    which = np.full(rows, -1, np.int64)
    for number, (condition, _) in enumerate(expr.branches):
        which[(which < 0) & truth(condition, lookup, rows)] = number
    results = [evaluate(result, lookup, rows) for _, result in expr.branches]
    if expr.otherwise is not None:
        which[which < 0] = len(results)
        results.append(evaluate(expr.otherwise, lookup, rows))
    return chosen(results, which, expr.type)


def _boolean(values: Mask, valid: Mask | None) -> ColumnData:
    return ColumnData(ColumnType.BOOLEAN, values.astype(np.uint8), valid)


def _constant(value: ex.Value, type: ColumnType, rows: int) -> ColumnData:
    if value is None:
        return nulls(type, rows)
    if type is ColumnType.STRING:
        return ColumnData(type, np.zeros(rows, np.int32), None, pa.array([value], pa.string()))
    return ColumnData(type, np.full(rows, value, NUMPY_TYPES[type]))


def _both_valid(a: ColumnData, b: ColumnData) -> Mask | None:
    if a.valid is None:
        return b.valid
    return a.valid if b.valid is None else a.valid & b.valid


def _widened(column: ColumnData, other: ColumnType) -> npt.NDArray[Any]:
    shared = common_type(column.type, other)
    return column.values if shared is None else column.values.astype(NUMPY_TYPES[shared], copy=False)


def _compare(op: str, a: ColumnData, b: ColumnData) -> ColumnData:
    if a.type is ColumnType.STRING:
        result = from_arrow(_ARROW_COMPARE[op](decoded(a), decoded(b)), ColumnType.BOOLEAN)
        return _boolean(result.values.astype(bool), result.valid)
    return _boolean(_NUMPY_COMPARE[op](_widened(a, b.type), _widened(b, a.type)), _both_valid(a, b))


def _arithmetic(op: str, a: ColumnData, b: ColumnData, type: ColumnType) -> ColumnData:
    dtype = NUMPY_TYPES[type]
    x, y = a.values.astype(dtype, copy=False), b.values.astype(dtype, copy=False)
    valid = _both_valid(a, b)
    with np.errstate(all="ignore"):
        if op in ("+", "-", "*"):
            values = x + y if op == "+" else x - y if op == "-" else x * y
            return ColumnData(type, values, valid)
        if type is ColumnType.DOUBLE:
            return ColumnData(type, x / y if op == "/" else np.fmod(x, y), valid)
        zero = y == 0
        safe = np.where(zero, dtype(1), y)
        # numpy floors and we truncate; -1 is handled apart because MIN / -1 has no representation and wraps
        minus = safe == -1
        divisor = np.where(minus, dtype(1), safe)
        remainder = np.fmod(x, divisor)
        if op == "%":
            values = np.where(minus, dtype(0), remainder)
        else:
            values = np.where(minus, -x, (x - remainder) // divisor)
        defined = ~zero if valid is None else valid & ~zero
        return ColumnData(type, values.astype(dtype), None if defined.all() else defined)


def _connect(parts: list[ColumnData], decisive: bool) -> ColumnData:
    """AND (FALSE decides) or OR (TRUE decides): one decisive operand settles it, else NULL is contagious."""
    settled = np.zeros(len(parts[0]), bool)
    unknown = np.zeros(len(parts[0]), bool)
    for p in parts:
        settled |= p.mask & (p.values.astype(bool) == decisive)
        unknown |= ~p.mask
    unknown &= ~settled
    return _boolean(settled if decisive else ~settled, None if not unknown.any() else ~unknown)


def _in_list(operand: ColumnData, values: tuple[ex.Literal, ...], rows: int) -> ColumnData:
    """In one walk, however many values there are."""
    hit = np.zeros(rows, bool)
    for type in {v.type for v in values}:
        hit |= _among(operand, [v.value for v in values if v.type is type and v.value is not None], type)
    valid = operand.mask
    if any(v.value is None for v in values):
        valid = valid & hit
    return _boolean(hit & operand.mask, None if valid.all() else valid)


def _among(operand: ColumnData, values: list[Any], type: ColumnType) -> Mask:
    if operand.dictionary is None:
        constants = ColumnData(type, np.array(values, NUMPY_TYPES[type]))
        return np.isin(_widened(operand, type), _widened(constants, operand.type))
    found = np.asarray(pc.is_in(operand.dictionary, value_set=pa.array(values, pa.string())))
    hit: Mask = found[operand.values] if len(found) else np.zeros(len(operand), bool)
    return hit


_pattern = lru_cache(1024)(LikePattern)


def _like(operand: ColumnData, pattern: str, escape: str | None) -> ColumnData:
    matches = _pattern(pattern, escape).matches
    assert operand.dictionary is not None
    found = np.array([matches(text) for text in operand.dictionary.to_pylist()], bool)
    hit = found[operand.values] if len(found) else np.zeros(len(operand), bool)
    return _boolean(hit, operand.valid)
