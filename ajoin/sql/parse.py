"""From SQL text to a Query.

    text -> syntax -> from_clause (sources) -> binder (types) -> grouping, select_list, windows
                                                              -> this file (who decides which condition)

All conditions of ON and WHERE form one conjunction, which for an inner join is the same. Each conjunct goes
where it is cheapest to decide: one source -> that source's selection; column = column of two sources -> a
join key; anything else that spans sources -> a residual over joined rows. The sources must be connected by
join keys, or the query would be a cross product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import networkx as nx
from sqlglot import exp

from ajoin.sql.aggregates import Aggregates
from ajoin.sql.binder import Binder
from ajoin.sql.dialect import EmitClause
from ajoin.sql.from_clause import FromClause
from ajoin.sql.grouping import Grouping
from ajoin.sql.places import place_of, sql_error, too_complex
from ajoin.sql.reasons import Reason
from ajoin.sql.scope import WINDOW_BOUNDS, Scope, reads_bounds
from ajoin.sql.select_list import read_outputs
from ajoin.sql.syntax import parse_select
from ajoin.sql.windows import WindowReader, bound_type
from optimizer.model.expressions import (
    And,
    ColumnRef,
    Compare,
    Expr,
    WindowBound,
    aliases_of,
    conjuncts,
)
from optimizer.model.graphs import join_graph
from optimizer.model.query import FACTORIZED, ROWS, EquiPredicate, Output, Query, Source
from optimizer.model.types import StreamSchema, common_type
from optimizer.model.vocabulary import PLAIN, Vocabulary

MAX_SQL_LENGTH = 64 * 1024
_CLAUSES = {"expressions", "from_", "joins", "where", "group", "having", "windows", "emit"}


def parse_query(
    sql: str,
    schemas: Mapping[str, StreamSchema],
    *,
    max_length: int = MAX_SQL_LENGTH,
    vocabulary: Vocabulary = PLAIN,
) -> Query:
    """The query `sql` asks for, bound against the streams in `schemas` (by name); SqlError if there is none.

    `max_length` bounds the text in UTF-8 bytes. `vocabulary`: the aggregates and windows there are.
    """
    size = len(sql.encode("utf-8", "surrogatepass"))
    if size > max_length:
        message = f"the statement has {size} bytes, at most {max_length} are allowed"
        hint = "split it into several queries; an operator can raise the setting max_sql_bytes"
        raise sql_error(sql, None, Reason.SQL_TOO_LONG, message, hint)
    try:
        return _bind_query(sql, parse_select(sql, vocabulary.windows), schemas, vocabulary)
    except RecursionError:
        raise too_complex(sql, None) from None


def _bind_query(
    sql: str,
    select: exp.Select,
    schemas: Mapping[str, StreamSchema],
    vocabulary: Vocabulary,
) -> Query:
    _check_clauses(sql, select)
    clause = FromClause.read(sql, select, schemas)
    window_clause = select.args.get("windows")
    scope = clause.scope(bound_type(window_clause))
    aggregates = Aggregates(sql, vocabulary.functions, joined=len(scope.sources) > 1)
    binder = Binder(scope, aggregates)
    parts = _Conditions(scope)
    where = select.args.get("where")
    for place, node in [*(("ON", c) for c in clause.conditions), *([("WHERE", where.this)] if where else [])]:
        with aggregates.refused_in(place):
            parts.add(binder.condition(node), node)
    grouping = Grouping.read(binder, aggregates, select)
    outputs = read_outputs(scope, binder, grouping, select)
    having = grouping.having(select.args.get("having"))
    with aggregates.refused_in("WINDOW PUNCTUATED BY"):
        reader = WindowReader(
            scope, binder, vocabulary.windows, window_clause, clause.windows, grouping.folds, grouping.groups
        )
        window, ttl = reader.read()
    emit = _emit(scope, select.args.get("emit"), outputs, grouping.folds)
    parts.check_connected()
    return Query(
        sql=sql.strip(),
        sources=tuple(Source(s.alias, s.schema.name) for s in scope.sources),
        window=window,
        selections=tuple(
            (alias, conditions[0] if len(conditions) == 1 else And(tuple(conditions)))
            for alias, conditions in parts.selections.items()
            if conditions
        ),
        equi=tuple(parts.equi.values()),
        residual=tuple(parts.residual),
        outputs=outputs,
        emit=emit,
        groups=grouping.groups,
        having=having,
        state_ttl_ms=ttl,
    )


def _check_clauses(sql: str, select: exp.Select) -> None:
    """Every clause is known, and those that sqlglot takes in any order stand in the order of SQL."""
    for key, value in select.args.items():
        if value and key not in _CLAUSES:
            at = value[0] if isinstance(value, list) else value if isinstance(value, exp.Expr) else select
            name = key.strip("_").upper()
            raise sql_error(sql, at, Reason.UNSUPPORTED_CLAUSE, f"{name} is not part of a query over streams")
    given = [select.args[key] for key in ("where", "group", "having") if select.args.get(key)]
    for earlier, later in pairwise(given):
        if place_of(earlier) > place_of(later):
            message = "the order of clauses is WHERE, GROUP BY, HAVING, WINDOW"
            raise sql_error(sql, earlier, Reason.SQL_SYNTAX, message)


def _emit(scope: Scope, clause: EmitClause | None, outputs: tuple[Output, ...], folds: bool) -> str:
    """ROWS unless asked otherwise. A factorized row has one column per source, so those names must be free."""
    if clause is None or clause.this == ROWS:
        return ROWS
    if folds or len(scope.sources) == 1:
        what = "an aggregation gives one row per group and window" if folds else "one stream has no lists to multiply"
        message = f"{what}; there is nothing to factorize"
        raise sql_error(scope.sql, clause, Reason.UNSUPPORTED_CLAUSE, message, "leave out EMIT FACTORIZED")
    taken = {o.name for o in outputs if len(aliases_of(o.expr)) != 1} | set(WINDOW_BOUNDS)
    for source in scope.sources:
        if source.alias in taken:
            raise sql_error(
                scope.sql,
                source.at,
                Reason.RESERVED_OUTPUT,
                f"a factorized row has a list called {source.alias!r} and another column of that name",
                "rename the source or the output column",
            )
    return FACTORIZED


@dataclass(slots=True)
class _Conditions:
    """Sorts conjuncts. `equi` is keyed by the unordered pair: an equality written twice counts once."""

    scope: Scope
    selections: dict[str, list[Expr]] = field(default_factory=dict)
    equi: dict[frozenset[ColumnRef], EquiPredicate] = field(default_factory=dict)
    residual: list[Expr] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.selections = {s.alias: [] for s in self.scope.sources}

    def add(self, condition: Expr, at: exp.Expr) -> None:
        for part in conjuncts(condition):
            self._add_one(part, at)

    def _add_one(self, part: Expr, at: exp.Expr) -> None:
        if isinstance(part, Compare) and part.op == "=":
            left, right = part.left, part.right
            if isinstance(left, WindowBound) and left == right and len(self.scope.sources) > 1:
                return  # a.window_start = b.window_start: joined tuples share their window by definition
            if isinstance(left, ColumnRef) and isinstance(right, ColumnRef) and left.alias != right.alias:
                self._add_equi(left, right)
                return
        if reads_bounds(part):
            raise sql_error(
                self.scope.sql,
                _place_of_bound(at),
                Reason.WINDOW_BOUND_IN_CONDITION,
                "window_start and window_end can be selected but not used in conditions",
                "qualify the name if a stream has such a column",
            )
        aliases = aliases_of(part)
        if len(aliases) > 1:
            self.residual.append(part)
        else:
            self.selections[next(iter(aliases), self.scope.sources[0].alias)].append(part)

    def _add_equi(self, left: ColumnRef, right: ColumnRef) -> None:
        """Sides in FROM order, so that `a.x = b.y` and `b.y = a.x` give equal queries."""
        order = [s.alias for s in self.scope.sources]
        if order.index(left.alias) > order.index(right.alias):
            left, right = right, left
        shared = common_type(left.type, right.type)
        assert shared is not None, "the binder compares only comparable types"
        self.equi.setdefault(frozenset((left, right)), EquiPredicate(left, right, shared))

    def check_connected(self) -> None:
        graph = join_graph((s.alias for s in self.scope.sources), self.equi.values())
        groups = list(nx.connected_components(graph))  # in FROM order
        if len(groups) == 1:
            return
        named = [[s for s in self.scope.sources if s.alias in members] for members in groups]
        text = " | ".join(", ".join(s.alias for s in members) for members in named)
        a, b = named[0][0].alias, named[1][0].alias
        raise sql_error(
            self.scope.sql,
            named[1][0].at,
            Reason.CROSS_PRODUCT,
            f"no equality connects these groups of sources: {text}",
            f"add a condition such as {a}.x = {b}.y",
        )


def _place_of_bound(at: exp.Expr) -> exp.Expr:
    names = at.find_all(exp.Identifier)
    return next((n for n in names if n.name.lower() in ("window_start", "window_end")), at)
