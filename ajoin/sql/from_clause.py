"""FROM: the sources, and the conditions written in ON and USING.

`FROM a JOIN b ON ...`, `FROM a, b`, and any mixture are the same inner join, so all conditions end in one
list. A source may stand inside a table function such as `TUMBLE(stream, time, INTERVAL ...)`, which says the same as a
WINDOW clause; what it says is noted for windows.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp

from ajoin.sql.places import At, sql_error
from ajoin.sql.reasons import Reason
from ajoin.sql.scope import BoundSource, Scope, find_stream, match
from ajoin.sql.table_functions import SourceWindow, table_window
from ajoin.sql.window_syntax import TableFunction
from optimizer.model.types import ColumnType, StreamSchema

MAX_SOURCES = 8
_COUNT = f"a query has 1 to {MAX_SOURCES} sources"


@dataclass(slots=True)
class FromClause:
    """Collects while walking. `windows` has one entry per source: its table function's window or None."""

    sql: str
    schemas: Mapping[str, StreamSchema]
    sources: list[BoundSource] = field(default_factory=list)
    windows: list[SourceWindow | None] = field(default_factory=list)
    conditions: list[exp.Expr] = field(default_factory=list)
    merged: dict[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, sql: str, select: exp.Select, schemas: Mapping[str, StreamSchema]) -> FromClause:
        clause = cls(sql, schemas)
        start = select.args.get("from_")
        if start is None:
            clause._fail(select, Reason.SOURCE_COUNT, "the statement has no FROM clause", "select from a stream")
        clause._add(start.this)
        for join in select.args.get("joins") or ():
            clause._join(join)
        return clause

    def scope(self, bounds: ColumnType) -> Scope:
        """`bounds`: the type of window_start and window_end."""
        return Scope(self.sql, tuple(self.sources), self.merged, bounds)

    def _join(self, join: exp.Expr) -> None:
        if set(_given(join)) - {"this", "on", "using", "kind"}:
            self._fail(join, Reason.UNSUPPORTED_JOIN, "only inner joins are supported")
        self._add(join.this)
        if join.args.get("on"):
            self.conditions.append(join.args["on"])
        for column in join.args.get("using") or ():
            self._using(column)

    def _add(self, table: exp.Expr) -> None:
        if not isinstance(table, exp.Table):
            self._fail(
                table,
                Reason.UNSUPPORTED_SUBQUERY,
                "FROM takes streams only",
                "write FROM s1 a JOIN s2 b ON a.x = b.y without parentheses",
            )
        if set(_given(table)) - {"this", "alias", "joins"}:
            self._fail(
                table,
                Reason.UNSUPPORTED_CLAUSE,
                "a source is a stream name and an alias, nothing else",
                'a name that contains a point needs double quotes: "a.b"',
            )
        name = table.this
        window: SourceWindow | None = None
        if isinstance(name, exp.Identifier):
            schema = find_stream(self.sql, name, self.schemas)
        elif isinstance(name, TableFunction):
            schema, name, window = table_window(self.sql, name, self.schemas)
        else:
            message = "FROM knows only the table functions TUMBLE, HOP and SESSION"
            self._fail(name, Reason.UNSUPPORTED_FUNCTION, message, "or write a WINDOW clause")
        named = table.args.get("alias")
        if named is not None and (named.args.get("columns") or not named.name):
            self._fail(named, Reason.UNSUPPORTED_CLAUSE, "an alias is one name", "rename columns with AS in SELECT")
        label = named.this if named is not None else name
        if any(s.alias == label.name for s in self.sources):
            self._fail(
                label,
                Reason.DUPLICATE_ALIAS,
                f"two sources are called {label.name!r}",
                f"give each its own alias: {schema.name} AS {label.name}2",
            )
        if len(self.sources) == MAX_SOURCES:
            self._fail(label, Reason.SOURCE_COUNT, _COUNT, "this is one too many")
        self.sources.append(BoundSource(label.name, schema, label))
        self.windows.append(window)
        for join in table.args.get("joins") or ():
            self._join(join)

    def _using(self, column: exp.Expr) -> None:
        """`a JOIN b USING (x)` is `a.x = b.x`; a merged column stands for all sources that share it."""
        *earlier, last = self.sources
        if not isinstance(column, exp.Identifier):
            self._fail(column, Reason.SQL_SYNTAX, "USING takes column names")
        right = self._named(last, column)
        owners = [s for s in earlier if match(column, s.schema.columns, lambda c: c.name)]
        if not owners:
            self._named(earlier[0], column)
        shared = self.merged.get(right, frozenset())
        if len(owners) > 1 and not {s.alias for s in owners} <= shared:
            self._fail(
                column,
                Reason.AMBIGUOUS_NAME,
                f"{column.name!r} could be {', '.join(f'{s.alias}.{right}' for s in owners)}",
                "write the equality in ON",
            )
        self.merged[right] = shared | {owners[0].alias, last.alias}
        self.conditions.append(exp.EQ(this=_column(owners[0], column), expression=_column(last, column)))

    def _named(self, source: BoundSource, column: exp.Identifier) -> str:
        one = Scope(self.sql, (source,)).column(_column(source, column))
        return getattr(one, "column", column.name)

    def _fail(self, at: At, reason: Reason, message: str, hint: str = "") -> NoReturn:
        raise sql_error(self.sql, at, reason, message, hint)


def _given(node: exp.Expr) -> list[str]:
    return [key for key, value in node.args.items() if value]


def _column(source: BoundSource, column: exp.Identifier) -> exp.Column:
    return exp.Column(this=column.copy(), table=exp.Identifier(this=source.alias, quoted=True))
