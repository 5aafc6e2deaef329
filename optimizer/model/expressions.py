"""Bound scalar expressions: what a WHERE clause or a SELECT item says, as frozen hashable values.

Every node knows its type, every column its alias, so an evaluator never has to look anything up. SQL's three-valued
logic applies: a comparison with NULL is NULL, a row passes only when its condition is TRUE.

Two corners SQL leaves open are closed like this: integer division and remainder truncate towards zero, and dividing an
integer by zero gives NULL (a shared pipeline must not stop for one query's division); integer arithmetic wraps.
BETWEEN arrives here as two comparisons, `a NOT IN (...)` as Not(InList). DOUBLE follows IEEE 754; NaN equals nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
class CountAll:
    """`COUNT(*)`: the number of joined rows of a window; only as a whole item of SELECT."""

    type: ColumnType = ColumnType.BIGINT


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


Expr = (
    ColumnRef
    | Literal
    | WindowBound
    | CountAll
    | Compare
    | Arithmetic
    | Negate
    | And
    | Or
    | Not
    | IsNull
    | InList
    | Like
)


def children(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Compare(_, left, right) | Arithmetic(_, left, right):
            return (left, right)
        case And(operands) | Or(operands):
            return operands
        case Negate(operand) | Not(operand) | IsNull(operand) | InList(operand) | Like(operand):
            return (operand,)
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


def conjuncts(expr: Expr) -> tuple[Expr, ...]:
    """The expression as a flat list of conditions that must all hold."""
    if isinstance(expr, And):
        return tuple(c for operand in expr.operands for c in conjuncts(operand))
    return (expr,)
