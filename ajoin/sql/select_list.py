"""The SELECT list: which columns a row of the result has, and how they are called.

`*` and `a.*` name their columns `alias.column`; any other item is called by its AS, else by its column, or by its
aggregate function in lower case. All names of a row differ, and every row also carries window_start and window_end, and
`revision` if the query folds, so nothing else may take these names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from ajoin.sql.aggregates import called
from ajoin.sql.binder import Binder
from ajoin.sql.grouping import Grouping, unaliased
from ajoin.sql.places import sql_error
from ajoin.sql.reasons import Reason
from ajoin.sql.scope import WINDOW_BOUNDS, BoundSource, Scope
from optimizer.model.expressions import Aggregate, ColumnRef, WindowBound
from optimizer.model.query import Output
from optimizer.model.types import ColumnType

REVISION = "revision"


def read_outputs(scope: Scope, binder: Binder, grouping: Grouping, select: exp.Select) -> tuple[Output, ...]:
    if not select.expressions:
        raise sql_error(scope.sql, select, Reason.SQL_SYNTAX, "SELECT has no items", "write SELECT * for all columns")
    seen: dict[str, Output] = {}
    for item in select.expressions:
        at = item.args["alias"] if isinstance(item, exp.Alias) else item
        for output in _item(scope, binder, item):
            bound = isinstance(output.expr, WindowBound) and output.expr.which == output.name
            if output.name in WINDOW_BOUNDS and not bound:
                raise sql_error(
                    scope.sql,
                    at,
                    Reason.RESERVED_OUTPUT,
                    f"{output.name!r} is the name of the window's own column, which every row carries",
                    "choose another name with AS",
                )
            if grouping.folds and output.name == REVISION:
                raise sql_error(
                    scope.sql,
                    at,
                    Reason.RESERVED_OUTPUT,
                    "'revision' is a column that every row of an aggregation carries",
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
            expr = grouping.over_group(output.expr, item) if grouping.folds else output.expr
            seen[output.name] = replace(output, expr=expr)
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
    expr = binder.bind(unaliased(item), ColumnType.STRING)
    if not name and isinstance(expr, ColumnRef):
        name = expr.column
    if not name and isinstance(expr, WindowBound):
        name = expr.which
    if not name and isinstance(expr, Aggregate):
        name = called(item).lower()
    if not name:
        raise sql_error(
            scope.sql, item, Reason.MISSING_OUTPUT_NAME, "this expression needs a name", "add AS and a name"
        )
    yield Output(name, expr)


def _all_columns(source: BoundSource) -> Iterator[Output]:
    for column in source.schema.columns:
        yield Output(f"{source.alias}.{column.name}", ColumnRef(source.alias, column.name, column.type))
