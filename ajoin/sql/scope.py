"""Names: which stream, which source, which column a word in the statement means.

A name is first looked up exactly as written. Only if nothing has that name, and it was not written in
double quotes, a unique match that differs in case only is taken. Whatever stays open is an error that says
what there is.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from sqlglot import exp

from ajoin.sql.places import At, sql_error
from ajoin.sql.reasons import Reason
from optimizer.model.expressions import ColumnRef, Expr, WindowBound, children
from optimizer.model.types import ColumnType, StreamSchema

WINDOW_BOUNDS = ("window_start", "window_end")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BoundSource:
    """One entry of FROM: `at` is where it stands."""

    alias: str
    schema: StreamSchema
    at: exp.Expr


@dataclass(frozen=True, slots=True)
class Scope:
    """The sources of one statement. `merged` maps a column named in USING to the aliases that share it. `bounds` is the
    type of window_start and window_end: positions of tuples if windows count tuples."""

    sql: str
    sources: tuple[BoundSource, ...]
    merged: Mapping[str, frozenset[str]] = field(default_factory=dict)
    bounds: ColumnType = ColumnType.TIMESTAMP

    def source(self, name: exp.Identifier) -> BoundSource:
        matches = match(name, self.sources, lambda s: s.alias)
        if len(matches) == 1:
            return matches[0]
        aliases = [s.alias for s in self.sources]
        if matches:
            raise self._ambiguous(name, name.name, [s.alias for s in matches])
        hint = similar(name.name, aliases)
        if any(s.schema.name == name.name for s in self.sources):
            hint = "the stream has an alias here, use that"
        raise sql_error(
            self.sql,
            name,
            Reason.UNKNOWN_SOURCE,
            f"there is no source {name.name!r} in FROM; there are {', '.join(aliases)}",
            hint,
        )

    def column(self, node: exp.Column) -> ColumnRef | WindowBound:
        """The column or window bound a (possibly qualified) name means.

        `window_start` is always the window's; `a.window_start` is a's column if a has one, else the window's,
        as users of TUMBLE(...) a expect.
        """
        name, table = node.this, node.args.get("table")
        if not isinstance(name, exp.Identifier) or node.args.get("db"):
            raise sql_error(
                self.sql, node, Reason.UNSUPPORTED_EXPRESSION, "a column is written column or source.column"
            )
        bound = window_bound(name, self.bounds)
        if table is None:
            return bound or self._unqualified(name)
        source = self.source(table)
        matches = match(name, source.schema.columns, lambda c: c.name)
        if len(matches) == 1:
            return ColumnRef(source.alias, matches[0].name, matches[0].type)
        if matches:
            raise self._ambiguous(name, f"{source.alias}.{name.name}", [c.name for c in matches])
        if bound:
            return bound
        columns = [c.name for c in source.schema.columns]
        raise sql_error(
            self.sql,
            name,
            Reason.UNKNOWN_COLUMN,
            f"{source.alias} (stream {source.schema.name}) has no column {name.name!r}",
            similar(name.name, columns) or f"there are {listing(columns)}",
        )

    def _unqualified(self, name: exp.Identifier) -> ColumnRef:
        everywhere = [ColumnRef(s.alias, c.name, c.type) for s in self.sources for c in s.schema.columns]
        matches = match(name, everywhere, lambda c: c.column)
        if len(matches) > 1 and {c.alias for c in matches} <= self.merged.get(matches[0].column, frozenset()):
            return matches[0]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise self._ambiguous(name, name.name, [f"{c.alias}.{c.column}" for c in matches])
        columns = [c.column for c in everywhere]
        raise sql_error(
            self.sql,
            name,
            Reason.UNKNOWN_COLUMN,
            f"no stream in FROM has a column {name.name!r}",
            similar(name.name, columns) or f"there are {listing(columns)}",
        )

    def _ambiguous(self, at: At, name: str, candidates: list[str]) -> Exception:
        return sql_error(
            self.sql,
            at,
            Reason.AMBIGUOUS_NAME,
            f"{name!r} could be {', '.join(candidates)}",
            "write one of them",
        )


def find_stream(sql: str, name: exp.Identifier, schemas: Mapping[str, StreamSchema]) -> StreamSchema:
    matches = match(name, schemas.values(), lambda s: s.name)
    if len(matches) == 1:
        return matches[0]
    known = sorted(schemas)
    if matches:
        raise sql_error(
            sql,
            name,
            Reason.AMBIGUOUS_NAME,
            f"stream {name.name!r} could be {', '.join(sorted(s.name for s in matches))}",
            "write it exactly",
        )
    there = f"there are {listing(known)}" if known else "there is none yet"
    raise sql_error(
        sql,
        name,
        Reason.UNKNOWN_STREAM,
        f"there is no stream {name.name!r}; {there}",
        similar(name.name, known) or "create the stream first",
    )


def window_bound(name: exp.Identifier, type_: ColumnType) -> WindowBound | None:
    text = name.name if name.args.get("quoted") else name.name.lower()
    return WindowBound(text, type_) if text in WINDOW_BOUNDS else None


def reads_bounds(expr: Expr) -> bool:
    return isinstance(expr, WindowBound) or any(reads_bounds(child) for child in children(expr))


def match(name: exp.Identifier, among: Iterable[T], name_of: Callable[[T], str]) -> list[T]:
    """Exact matches, or else, for an unquoted name, those that differ in case only."""
    things = list(among)
    exact = [thing for thing in things if name_of(thing) == name.name]
    if exact or name.args.get("quoted"):
        return exact
    folded = name.name.casefold()
    return [thing for thing in things if name_of(thing).casefold() == folded]


def similar(name: str, known: Iterable[str]) -> str:
    """'did you mean ...', or nothing."""
    by_folded = {n.casefold(): n for n in reversed(list(known))}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=3)
    return f"did you mean {' or '.join(by_folded[c] for c in close)}?" if close else ""


def listing(names: Iterable[str], most: int = 20) -> str:
    distinct = list(dict.fromkeys(names))
    return ", ".join(distinct[:most]) + (", ..." if len(distinct) > most else "")
