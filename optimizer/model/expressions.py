"""Bound scalar expressions: what a WHERE clause or a SELECT item says, as frozen hashable values.

Every node knows its type, every column its alias, so an evaluator never has to look anything up. SQL's three-valued
logic applies: a comparison with NULL is NULL, a row passes only when its condition is TRUE.

Two corners SQL leaves open are closed like this: integer division and remainder truncate towards zero, and dividing an
integer by zero gives NULL (a shared pipeline must not stop for one query's division); integer arithmetic wraps.
BETWEEN arrives here as two comparisons, `a NOT IN (...)` as Not(InList). DOUBLE follows IEEE 754; NaN equals nothing.

Functions follow the same two rules: they never fail. What has no value is NULL (a text that is no number, cast to one),
what does not fit wraps (ABS of the smallest integer). optimizer.model.functions lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from optimizer.model.types import ColumnType

Value = int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column of one of the query's sources, named by the source's alias."""

    alias: str
    column: str
    type: ColumnType


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. A NULL literal has value None and the type of what it is compared with."""

    value: Value
    type: ColumnType


@dataclass(frozen=True, slots=True)
class WindowBound:
    """`window_start` or `window_end` of the row's window; only in SELECT."""

    which: str
    type: ColumnType = ColumnType.TIMESTAMP


@dataclass(frozen=True, slots=True)
class GroupRef:
    """The value of the query's GROUP BY item with this number; only in SELECT and HAVING of a query that folds."""

    index: int
    type: ColumnType


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`function(arguments) FILTER (WHERE where)` over the tuples of a group and window; only in SELECT and HAVING.

    `function` is a name of optimizer.model.aggregates. COUNT without an argument is COUNT(*). `parameters` are
    constants that are no values of tuples: the p of QUANTILE(x, p).
    """

    function: str
    arguments: tuple[Expr, ...]
    type: ColumnType
    parameters: tuple[Value, ...] = ()
    where: Expr | None = None


@dataclass(frozen=True, slots=True)
class Compare:
    """op is one of = <> < <= > >=. Both sides are compared in `common_type` of their types."""

    op: str
    left: Expr
    right: Expr
    type: ColumnType = ColumnType.BOOLEAN


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """op is one of + - * / %; `type` is the type of the result."""

    op: str
    left: Expr
    right: Expr
    type: ColumnType


@dataclass(frozen=True, slots=True)
class Negate:
    operand: Expr
    type: ColumnType


@dataclass(frozen=True, slots=True)
class And:
    operands: tuple[Expr, ...]
    type: ColumnType = ColumnType.BOOLEAN


@dataclass(frozen=True, slots=True)
class Or:
    operands: tuple[Expr, ...]
    type: ColumnType = ColumnType.BOOLEAN


@dataclass(frozen=True, slots=True)
class Not:
    operand: Expr
    type: ColumnType = ColumnType.BOOLEAN


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Expr
    type: ColumnType = ColumnType.BOOLEAN


@dataclass(frozen=True, slots=True)
class InList:
    """`operand IN (values)`; a NULL among the values makes a miss NULL instead of FALSE, as SQL says."""

    operand: Expr
    values: tuple[Literal, ...]
    type: ColumnType = ColumnType.BOOLEAN


@dataclass(frozen=True, slots=True)
class Like:
    """`operand LIKE pattern [ESCAPE c]`: % any run, _ any one character, case sensitive."""

    operand: Expr
    pattern: str
    escape: str | None = None
    type: ColumnType = ColumnType.BOOLEAN


@dataclass(frozen=True, slots=True)
class Call:
    """`function(arguments)`, a name of optimizer.model.functions. A unit (EXTRACT, DATE_TRUNC) is a first argument."""

    function: str
    arguments: tuple[Expr, ...]
    type: ColumnType


@dataclass(frozen=True, slots=True)
class Case:
    """The result of the first branch (condition, result) whose condition is TRUE, else `otherwise`, else NULL.

    Results may have narrower number types than `type` and are widened to it.
    """

    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr | None
    type: ColumnType


@dataclass(frozen=True, slots=True)
class Cast:
    """The operand as a value of `type`; NULL where it has none."""

    operand: Expr
    type: ColumnType


Expr = (
    ColumnRef
    | Literal
    | WindowBound
    | GroupRef
    | Aggregate
    | Compare
    | Arithmetic
    | Negate
    | And
    | Or
    | Not
    | IsNull
    | InList
    | Like
    | Call
    | Case
    | Cast
)


def children(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Compare(_, left, right) | Arithmetic(_, left, right):
            return (left, right)
        case And(operands) | Or(operands):
            return operands
        case Negate(operand) | Not(operand) | IsNull(operand) | InList(operand) | Like(operand) | Cast(operand):
            return (operand,)
        case Call(_, arguments):
            return arguments
        case Case(branches, otherwise):
            parts = tuple(part for branch in branches for part in branch)
            return parts if otherwise is None else (*parts, otherwise)
        case Aggregate(_, arguments, _, _, where):
            return arguments if where is None else (*arguments, where)
        case _:
            return ()


def columns_of(expr: Expr) -> Iterator[ColumnRef]:
    """Every column the expression reads, in order of appearance, with repetitions."""
    if isinstance(expr, ColumnRef):
        yield expr
    for child in children(expr):
        yield from columns_of(child)


def aliases_of(expr: Expr) -> frozenset[str]:
    return frozenset(c.alias for c in columns_of(expr))


def aggregates_of(expr: Expr) -> Iterator[Aggregate]:
    """Every aggregate in the expression, in order of appearance, with repetitions. None is inside another one."""
    if isinstance(expr, Aggregate):
        yield expr
        return
    for child in children(expr):
        yield from aggregates_of(child)


def rewritten(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """The expression with other parts where `change` gives some; what it replaces is not looked into."""
    new = change(expr)
    if new is not None:
        return new
    parts = {f.name: _rewritten(getattr(expr, f.name), change) for f in fields(expr)}
    return type(expr)(**parts)


def _rewritten(value: Any, change: Callable[[Expr], Expr | None]) -> Any:
    if isinstance(value, tuple):
        return tuple(_rewritten(v, change) for v in value)
    return rewritten(value, change) if is_dataclass(value) else value  # type: ignore[arg-type]


def conjuncts(expr: Expr) -> tuple[Expr, ...]:
    """The expression as a flat list of conditions that must all hold."""
    if isinstance(expr, And):
        return tuple(c for operand in expr.operands for c in conjuncts(operand))
    return (expr,)
