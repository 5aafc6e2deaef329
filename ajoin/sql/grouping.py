"""GROUP BY, and what SELECT and HAVING may say in a query that folds.

Every row of such a query stands for a group and a window. So an expression is first bound as if it were about tuples,
and then every part of it that equals a GROUP BY expression becomes a reference to the group's value. What is left may
read no column outside an aggregate: of the many tuples of a group, whose would it be?

GROUP BY items are expressions, numbers of SELECT items, or names given there with AS; a name that is also a column of a
source means the column, as in PostgreSQL. An item that reads no column is the same for all tuples of a window, such as
window_start, and divides nothing; it is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from sqlglot import exp

from ajoin.sql.aggregates import Aggregates
from ajoin.sql.binder import Binder
from ajoin.sql.places import At, sql_error
from ajoin.sql.reasons import Reason
from ajoin.sql.scope import Scope, listing, match, reads_bounds
from optimizer.errors import SqlError
from optimizer.model.expressions import (
    Aggregate,
    ColumnRef,
    Expr,
    GroupRef,
    Literal,
    WindowBound,
    aliases_of,
)
from optimizer.model.types import ColumnType


def unaliased(item: exp.Expr) -> exp.Expr:
    return item.this if isinstance(item, exp.Alias) else item


class _NotGrouped(Exception):
    def __init__(self, column: ColumnRef) -> None:
        self.column = column


@dataclass(slots=True)
class Grouping:
    """`folds`: the statement has an aggregate, GROUP BY or HAVING. `names` are those that SELECT gives with AS.
    `numbers` are the GROUP BY expressions with their positions."""

    scope: Scope
    binder: Binder
    aggregates: Aggregates
    folds: bool
    items: Sequence[exp.Expr]
    names: Mapping[str, list[exp.Expr]]
    numbers: dict[Expr, int] = field(default_factory=dict)

    @property
    def groups(self) -> tuple[Expr, ...]:
        return tuple(self.numbers)

    @classmethod
    def read(cls, binder: Binder, aggregates: Aggregates, select: exp.Select) -> Grouping:
        group, having = select.args.get("group"), select.args.get("having")
        found = aggregates.first_in(*select.expressions, having)
        names: dict[str, list[exp.Expr]] = {}
        for item in select.expressions:
            if isinstance(item, exp.Alias):
                names.setdefault(item.args["alias"].name, []).append(item.this)
        folds = bool(group or having or found)
        grouping = cls(binder.scope, binder, aggregates, folds, select.expressions, names)
        if group is not None:
            grouping._read_groups(group)
        if folds and not grouping.numbers and not found:
            at = having or group
            message = "there is nothing to fold: no aggregate, and no column to group by"
            hint = "use WHERE for conditions on tuples" if having else "select COUNT(*) or another aggregate"
            raise grouping._error(at, Reason.INVALID_GROUPING, message, hint)
        return grouping

    # -- GROUP BY

    def _read_groups(self, group: exp.Expr) -> None:
        odd = next((k for k, v in group.args.items() if k != "expressions" and v is not None and v != []), None)
        if odd or not group.expressions:
            message = f"GROUP BY takes a list of columns and expressions{', not ' + odd.upper() if odd else ''}"
            raise self._error(group, Reason.UNSUPPORTED_AGGREGATION if odd else Reason.SQL_SYNTAX, message)
        with self.aggregates.refused_in("GROUP BY"):
            for item in group.expressions:
                bound = self._group(item)
                if aliases_of(bound):
                    if reads_bounds(bound):
                        message = "window_start and window_end are GROUP BY items of their own, or not there at all"
                        raise self._error(item, Reason.INVALID_GROUPING, message)
                    self.numbers.setdefault(bound, len(self.numbers))

    def _group(self, item: exp.Expr) -> Expr:
        if isinstance(item, exp.Cube | exp.Rollup | exp.GroupingSets | exp.Tuple):
            message = "GROUP BY takes columns and expressions; ROLLUP, CUBE, GROUPING SETS and lists are not supported"
            raise self._error(item, Reason.UNSUPPORTED_AGGREGATION, message, "create one query per grouping")
        if isinstance(item, exp.Literal | exp.Null | exp.Boolean):
            return self._numbered(item)
        named = self._named(item)
        if named is not None and self.aggregates.first_in(named):
            message = f"{item.sql()} is an aggregate, which has a value only after grouping"
            raise self._error(item, Reason.MISPLACED_AGGREGATE, message)
        return self.binder.bind(item if named is None else named, ColumnType.STRING)

    def _numbered(self, item: exp.Expr) -> Expr:
        whole = isinstance(item, exp.Literal) and not item.is_string and item.name.isascii() and item.name.isdigit()
        number = int(item.name) if whole and len(item.name) < 9 else 0
        if not 1 <= number <= len(self.items):
            message = f"a number in GROUP BY is that of a SELECT item, from 1 to {len(self.items)}"
            raise self._error(item, Reason.INVALID_GROUPING, message, "a constant groups nothing")
        chosen = unaliased(self.items[number - 1])
        if isinstance(chosen, exp.Star) or (isinstance(chosen, exp.Column) and isinstance(chosen.this, exp.Star)):
            raise self._error(item, Reason.INVALID_GROUPING, f"SELECT item {number} is *, which is no single column")
        if self.aggregates.first_in(chosen):
            message = f"SELECT item {number} is an aggregate, which has a value only after grouping"
            raise self._error(item, Reason.MISPLACED_AGGREGATE, message)
        return self.binder.bind(chosen, ColumnType.STRING)

    def _named(self, node: exp.Expr) -> exp.Expr | None:
        """What SELECT calls so, unless a column of a source does, too."""
        if not isinstance(node, exp.Column) or node.args.get("table") or not isinstance(node.this, exp.Identifier):
            return None
        names = match(node.this, self.names, str)
        if not names:
            return None
        columns = [c for s in self.scope.sources for c in s.schema.columns]
        fitting = match(node.this, columns, lambda c: c.name)
        if len(fitting) == 1 or (fitting and fitting[0].name in self.scope.merged):
            return None
        meant = [expr for name in names for expr in self.names[name]]
        if len(meant) > 1:
            message = f"{node.name!r} could be several items of SELECT"
            raise self._error(node, Reason.AMBIGUOUS_NAME, message, "give each its own name with AS")
        return meant[0]

    # -- SELECT and HAVING

    def over_group(self, expr: Expr, at: exp.Expr) -> Expr:
        """The expression in terms of the group's values, aggregates and window bounds."""
        try:
            return _folded(expr, self.numbers)
        except _NotGrouped as found:
            column = f"{found.column.alias}.{found.column.column}"
            hint = f"add {column} to GROUP BY, or select an aggregate of it, such as ANY_VALUE({column})"
            by = f"; the groups are by {listing(map(_text, self.numbers))}" if self.numbers else ""
            message = f"{column} is neither a GROUP BY item nor inside an aggregate{by}"
            raise self._error(self._place(at, found.column), Reason.NOT_GROUPED, message, hint) from None

    def having(self, clause: exp.Expr | None) -> Expr | None:
        if clause is None:
            return None
        before = self.binder.special
        self.binder.special = self._or_named
        try:
            condition = self.binder.condition(clause.this)
        finally:
            self.binder.special = before
        return self.over_group(condition, clause.this)

    def _or_named(self, binder: Binder, node: exp.Expr) -> Expr | None:
        """In HAVING a name of SELECT may stand for what it names. What that says knows no such names."""
        named = self._named(node)
        if named is None:
            return self.aggregates(binder, node)
        before, binder.special = binder.special, self.aggregates
        try:
            return binder.bind(named, ColumnType.STRING)
        finally:
            binder.special = before

    def _place(self, at: exp.Expr, column: ColumnRef) -> exp.Expr:
        """Where in the item the column stands, outside of aggregates."""
        aggregated = {id(node) for call in self.aggregates.all_in(at) for node in call.find_all(exp.Column)}
        for node in at.find_all(exp.Column):
            if id(node) not in aggregated and isinstance(node.this, exp.Identifier) and node.name == column.column:
                return node
        return at

    def _error(self, at: At, reason: Reason, message: str, hint: str = "") -> SqlError:
        return sql_error(self.scope.sql, at, reason, message, hint)


def _folded(expr: Expr, groups: Mapping[Expr, int]) -> Expr:
    if expr in groups:
        return GroupRef(groups[expr], expr.type)
    if isinstance(expr, ColumnRef):
        raise _NotGrouped(expr)
    if isinstance(expr, Aggregate | WindowBound | Literal):
        return expr
    return replace(expr, **{f.name: _folded_part(getattr(expr, f.name), groups) for f in fields(expr)})


def _folded_part(part: Any, groups: Mapping[Expr, int]) -> Any:
    """A field of an expression: an operand, a tuple that may hold some, or something else."""
    if isinstance(part, tuple):
        return tuple(_folded_part(p, groups) for p in part)
    return _folded(part, groups) if isinstance(part, Expr) else part


def _text(expr: Expr) -> str:
    return f"{expr.alias}.{expr.column}" if isinstance(expr, ColumnRef) else "an expression"
