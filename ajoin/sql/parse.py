"""From SQL text to a JoinQuery.

    text -> syntax -> from_clause (sources, window) -> binder (types) -> this file (who decides what)

All conditions of ON and WHERE form one conjunction, which for an inner join is the same. Each conjunct goes
where it is cheapest to decide: one source -> that source's selection; column = column of two sources -> a
join key; anything else that spans sources -> a residual over joined rows. The sources must be connected by
join keys, or the query would be a cross product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import networkx as nx
from sqlglot import exp

from ajoin.sql.binder import Binder
from ajoin.sql.dialect import EmitClause
from ajoin.sql.from_clause import FromClause
from ajoin.sql.places import sql_error, too_complex
from ajoin.sql.reasons import Reason
from ajoin.sql.scope import WINDOW_BOUNDS, Scope
from ajoin.sql.select_list import check_aggregates, read_outputs
from ajoin.sql.syntax import parse_select
from optimizer.model.expressions import (
    And,
    ColumnRef,
    Compare,
    CountAll,
    Expr,
    WindowBound,
    aliases_of,
    children,
    conjuncts,
)
from optimizer.model.graphs import join_graph
from optimizer.model.query import FACTORIZED, ROWS, EquiPredicate, JoinQuery, Output, Source
from optimizer.model.types import StreamSchema, common_type

MAX_SQL_LENGTH = 64 * 1024
_CLAUSES = {"expressions", "from_", "joins", "where", "windows", "emit"}


def parse_query(sql: str, schemas: Mapping[str, StreamSchema], *, max_length: int = MAX_SQL_LENGTH) -> JoinQuery:
    """The query `sql` asks for, bound against the streams in `schemas` (by name); SqlError if there is none.

    `max_length` bounds the text in UTF-8 bytes.
    """
    size = len(sql.encode("utf-8", "surrogatepass"))
    if size > max_length:
        message = f"the statement has {size} bytes, at most {max_length} are allowed"
        hint = "split it into several queries; an operator can raise the setting max_sql_bytes"
        raise sql_error(sql, None, Reason.SQL_TOO_LONG, message, hint)
    try:
        return _bind_query(sql, parse_select(sql), schemas)
    except RecursionError:
        raise too_complex(sql, None) from None


def _bind_query(sql: str, select: exp.Select, schemas: Mapping[str, StreamSchema]) -> JoinQuery:
    for key, value in select.args.items():
        if value and key not in _CLAUSES:
            at = value[0] if isinstance(value, list) else value if isinstance(value, exp.Expr) else select
            name = key.strip("_").upper()
            raise sql_error(sql, at, Reason.UNSUPPORTED_CLAUSE, f"{name} is not part of a join query")
    check_aggregates(sql, select)
    clause = FromClause.read(sql, select, schemas)
    scope = clause.scope()
    binder = Binder(scope)
    parts = _Conditions(scope)
    where = select.args.get("where")
    for node in [*clause.conditions, *([where.this] if where else [])]:
        parts.add(binder.condition(node), node)
    outputs = read_outputs(scope, binder, select)
    window = clause.window(select.args.get("windows"))
    emit = _emit(scope, select.args.get("emit"), outputs)
    parts.check_connected()
    return JoinQuery(
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
    )


def _emit(scope: Scope, clause: EmitClause | None, outputs: tuple[Output, ...]) -> str:
    """ROWS unless asked otherwise. A factorized row has one column per source, so those names must be free."""
    if clause is None or clause.this == ROWS:
        return ROWS
    if any(isinstance(o.expr, CountAll) for o in outputs):
        message = "COUNT(*) gives one number per window; there is nothing to factorize"
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
            if isinstance(left, WindowBound) and left == right:
                return  # a.window_start = b.window_start: joined tuples share their window by definition
            if isinstance(left, ColumnRef) and isinstance(right, ColumnRef) and left.alias != right.alias:
                self._add_equi(left, right)
                return
        if _has_window_bound(part):
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


def _has_window_bound(expr: Expr) -> bool:
    return isinstance(expr, WindowBound) or any(_has_window_bound(child) for child in children(expr))


def _place_of_bound(at: exp.Expr) -> exp.Expr:
    names = at.find_all(exp.Identifier)
    return next((n for n in names if n.name.lower() in ("window_start", "window_end")), at)
