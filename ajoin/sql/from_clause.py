"""FROM: the sources, the conditions written in ON and USING, and windows given as table functions.

`FROM a JOIN b ON ...`, `FROM a, b`, and any mixture are the same inner join, so all conditions end in one
list. RisingWave's `TUMBLE(stream, time, INTERVAL ...)` and `HOP(stream, time, INTERVAL hop, INTERVAL size)`
say the same as our WINDOW clause; they must then stand on every source and agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp

from ajoin.sql.dialect import WINDOW_HINT, WindowClause
from ajoin.sql.literals import interval_ms
from ajoin.sql.places import At, sql_error
from ajoin.sql.reasons import Reason
from ajoin.sql.scope import BoundSource, Scope, find_stream, match
from optimizer.model.types import StreamSchema
from optimizer.model.windows import PeriodicWindow, Window

MIN_SOURCES, MAX_SOURCES = 2, 8
_COUNT = f"a join query has {MIN_SOURCES} to {MAX_SOURCES} sources"
MAX_WINDOW_MS = 100 * 366 * 86_400_000  # a hundred years: event time plus a window length can then never overflow


@dataclass(slots=True)
class FromClause:
    """Collects while walking. `windows` has one entry per source: its table function's window or None."""

    sql: str
    schemas: Mapping[str, StreamSchema]
    sources: list[BoundSource] = field(default_factory=list)
    windows: list[Window | None] = field(default_factory=list)
    conditions: list[exp.Expr] = field(default_factory=list)
    merged: dict[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, sql: str, select: exp.Select, schemas: Mapping[str, StreamSchema]) -> FromClause:
        clause = cls(sql, schemas)
        start = select.args.get("from_")
        if start is None:
            clause._fail(select, Reason.SOURCE_COUNT, "the statement has no FROM clause", "join at least two streams")
        clause._add(start.this)
        for join in select.args.get("joins") or ():
            clause._join(join)
        if len(clause.sources) < MIN_SOURCES:
            clause._fail(clause.sources[0].at, Reason.SOURCE_COUNT, _COUNT, "join it with another stream")
        return clause

    def scope(self) -> Scope:
        return Scope(self.sql, tuple(self.sources), self.merged)

    def window(self, clause: WindowClause | None) -> Window:
        """The one window of the statement, however it was written."""
        given: list[tuple[Window, exp.Expr]] = []
        if clause is not None:
            given.append((clause_window(self.sql, clause), clause))
        given += [(w, s.at) for w, s in zip(self.windows, self.sources, strict=True) if w is not None]
        if not given:
            end = len(self.sql.rstrip("; \t\r\n"))
            self._fail(end, Reason.MISSING_WINDOW, "the statement has no WINDOW clause", WINDOW_HINT)
        window = given[0][0]
        for other, at in given[1:]:
            if other != window:
                self._fail(
                    at,
                    Reason.CONFLICTING_WINDOWS,
                    f"all sources need the same window; here are {window.sql} and {other.sql}",
                )
        if clause is None and None in self.windows:
            self._fail(
                self.sources[self.windows.index(None)].at,
                Reason.CONFLICTING_WINDOWS,
                "this source has no window but another one has",
                "give every source the same TUMBLE or HOP, or use one WINDOW clause",
            )
        return window

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
        window: Window | None = None
        if isinstance(name, exp.Identifier):
            schema = find_stream(self.sql, name, self.schemas)
        else:
            schema, name, window = self._table_function(name)
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

    def _table_function(self, call: exp.Expr) -> tuple[StreamSchema, exp.Identifier, Window]:
        kind = call.name.upper() if isinstance(call, exp.Anonymous) else ""
        lengths = {"TUMBLE": 1, "HOP": 2}.get(kind)
        if lengths is None:
            self._fail(
                call,
                Reason.UNSUPPORTED_FUNCTION,
                "FROM knows only the table functions TUMBLE and HOP",
                WINDOW_HINT,
            )
        usage = (
            "write TUMBLE(stream, time_column, INTERVAL '10 seconds')"
            if kind == "TUMBLE"
            else "write HOP(stream, time_column, INTERVAL 'hop', INTERVAL 'size')"
        )
        stream, time, *spans = [*call.expressions, None, None][: max(2, len(call.expressions))]
        if (
            not (isinstance(stream, exp.Column) and isinstance(time, exp.Column))
            or stream.args.get("table")
            or time.args.get("table")
            or len(spans) != lengths
            or not all(isinstance(span, exp.Interval) for span in spans)
        ):
            self._fail(call, Reason.INVALID_WINDOW, f"{kind} has the wrong arguments", usage)
        schema = find_stream(self.sql, stream.this, self.schemas)
        if [c.name for c in match(time.this, schema.columns, lambda c: c.name)] != [schema.time]:
            self._fail(
                time,
                Reason.INVALID_WINDOW,
                f"windows of stream {schema.name} are cut on its event-time column",
                f"use {schema.time}",
            )
        advance = _length(self.sql, spans[0])
        return schema, stream.this, PeriodicWindow(_length(self.sql, spans[-1]), advance)

    def _fail(self, at: At, reason: Reason, message: str, hint: str = "") -> NoReturn:
        raise sql_error(self.sql, at, reason, message, hint)


def clause_window(sql: str, clause: WindowClause) -> Window:
    size = _length(sql, clause.args["size"])
    advance = clause.args.get("advance")
    return PeriodicWindow(size, size if advance is None else _length(sql, advance))


def _length(sql: str, interval: exp.Interval) -> int:
    ms = interval_ms(sql, interval, Reason.INVALID_WINDOW)
    if not 0 < ms <= MAX_WINDOW_MS:
        raise sql_error(
            sql,
            interval,
            Reason.INVALID_WINDOW,
            "a window length must be positive and at most a hundred years",
        )
    return ms


def _given(node: exp.Expr) -> list[str]:
    return [key for key, value in node.args.items() if value]


def _column(source: BoundSource, column: exp.Identifier) -> exp.Column:
    return exp.Column(this=column.copy(), table=exp.Identifier(this=source.alias, quoted=True))
