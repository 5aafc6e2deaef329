"""The SELECT list: which columns a row of the result has, and how they are called.

`*` and `a.*` name their columns `alias.column`; any other item is called by its AS, else by its column. All
names of a row differ, and every row also carries window_start and window_end, so nothing else may take
these two names.

The one aggregate is COUNT(*): the number of joined rows of each window. Beside it only the window's bounds
can stand, since there is nothing to group by; its rows also carry `revision`.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from ajoin.sql.binder import Binder
from ajoin.sql.places import sql_error
from ajoin.sql.reasons import Reason
from ajoin.sql.scope import WINDOW_BOUNDS, BoundSource, Scope
from optimizer.model.expressions import ColumnRef, CountAll, WindowBound
from optimizer.model.query import Output
from optimizer.model.types import ColumnType

COUNT_NAME = "count"
REVISION = "revision"
_ONLY_COUNT = "the only aggregate is COUNT(*) of a join, alone or with window_start and window_end"


def check_aggregates(sql: str, select: exp.Select) -> None:
    """Refuse every aggregate but COUNT(*) as an item of its own over a join."""
    allowed = [node for item in select.expressions if _is_count(node := _unaliased(item))]
    joined = bool(select.args.get("joins"))
    for node in select.find_all(exp.AggFunc, exp.Window):
        if not joined or len(allowed) != 1 or node is not allowed[0]:
            raise sql_error(sql, node, Reason.UNSUPPORTED_AGGREGATION, _ONLY_COUNT)


def _unaliased(item: exp.Expr) -> exp.Expr:
    return item.this if isinstance(item, exp.Alias) else item


def _is_count(node: exp.Expr) -> bool:
    star = node.this if isinstance(node, exp.Count) else None
    return isinstance(star, exp.Star) and not any(star.args.values()) and not node.expressions


def read_outputs(scope: Scope, binder: Binder, select: exp.Select) -> tuple[Output, ...]:
    if not select.expressions:
        raise sql_error(scope.sql, select, Reason.SQL_SYNTAX, "SELECT has no items", "write SELECT * for all columns")
    seen: dict[str, Output] = {}
    counts = any(_is_count(_unaliased(item)) for item in select.expressions)
    for item in select.expressions:
        at = item.args["alias"] if isinstance(item, exp.Alias) else item
        for output in _item(scope, binder, item):
            if output.name in WINDOW_BOUNDS and output.expr != WindowBound(output.name):
                raise sql_error(
                    scope.sql,
                    at,
                    Reason.RESERVED_OUTPUT,
                    f"{output.name!r} is the name of the window's own column, which every row carries",
                    "choose another name with AS",
                )
            if counts and not isinstance(output.expr, CountAll | WindowBound):
                message = f"{_ONLY_COUNT}; there is no GROUP BY"
                raise sql_error(scope.sql, item, Reason.UNSUPPORTED_AGGREGATION, message)
            if counts and output.name == REVISION:
                raise sql_error(
                    scope.sql,
                    at,
                    Reason.RESERVED_OUTPUT,
                    "'revision' is a column that every row of a COUNT(*) query carries",
                    "choose another name with AS",
                )
            if output.name in seen:
                raise sql_error(
                    scope.sql,
                    at,
                    Reason.DUPLICATE_OUTPUT,
                    f"two output columns are called {output.name!r}",
                    "name one of them with AS",
                )
            seen[output.name] = output
    return tuple(seen.values())


def _item(scope: Scope, binder: Binder, item: exp.Expr) -> Iterator[Output]:
    star = item.this if isinstance(item, exp.Column) else item
    if isinstance(star, exp.Star):
        if any(star.args.values()):
            raise sql_error(scope.sql, star, Reason.UNSUPPORTED_EXPRESSION, "* EXCEPT / REPLACE is not supported")
        table = item.args.get("table")
        for source in [scope.source(table)] if table else scope.sources:
            yield from _all_columns(source)
        return
    name = item.args["alias"].name if isinstance(item, exp.Alias) else ""
    if _is_count(_unaliased(item)):
        yield Output(name or COUNT_NAME, CountAll())
        return
    expr = binder.bind(_unaliased(item), ColumnType.STRING)
    if not name and isinstance(expr, ColumnRef):
        name = expr.column
    if not name and isinstance(expr, WindowBound):
        name = expr.which
    if not name:
        raise sql_error(
            scope.sql, item, Reason.MISSING_OUTPUT_NAME, "this expression needs a name", "add AS and a name"
        )
    yield Output(name, expr)


def _all_columns(source: BoundSource) -> Iterator[Output]:
    for column in source.schema.columns:
        yield Output(f"{source.alias}.{column.name}", ColumnRef(source.alias, column.name, column.type))
