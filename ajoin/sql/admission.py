"""What a query may cost at most before it is let in.

A bound query is a value and may be anything; whoever lets strangers write queries (the platform, replay) admits only
those within its limits. Each limit stands for work that the text of a statement decides alone, whatever the data:

    windows            rows and counts made per match; slices per key
    expression nodes   passes over the tuples
    IN values          constants of one list, all looked up in one pass
    LIKE characters    comparisons per character of a text

What depends on data is bounded where it is done, in pieces: see the table in docs/operations.md. Queries that run are
never looked at again, so a limit may be lowered at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ajoin.sql.parse import MAX_SQL_LENGTH, parse_query
from ajoin.sql.reasons import Reason
from optimizer.errors import SqlError
from optimizer.model.expressions import Expr, InList, Like, children
from optimizer.model.query import JoinQuery
from optimizer.model.types import StreamSchema


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Of one statement; the setting of each is called max_ and its name."""

    sql_bytes: int = MAX_SQL_LENGTH
    windows: int = 10_000
    expression_nodes: int = 2_000
    in_values: int = 10_000
    like_characters: int = 1_000


def admit(sql: str, schemas: Mapping[str, StreamSchema], limits: QueryLimits) -> JoinQuery:
    """The query, if it is within the limits; else SqlError."""
    query = parse_query(sql, schemas, max_length=limits.sql_bytes)
    _check_window(query, limits)
    nodes = 0
    for expr in _expressions(query):
        for node in _walk(expr):
            nodes += 1
            if isinstance(node, InList):
                _check(len(node.values), limits.in_values, Reason.LIST_TOO_LONG, "values in one IN list", "in_values")
            elif isinstance(node, Like):
                length, most = len(node.pattern), limits.like_characters
                _check(length, most, Reason.PATTERN_TOO_LONG, "characters in one LIKE pattern", "like_characters")
    what = "operators, columns and constants (an IN list is one)"
    _check(nodes, limits.expression_nodes, Reason.SQL_TOO_COMPLEX, what, "expression_nodes")
    return query


def _check_window(query: JoinQuery, limits: QueryLimits) -> None:
    windows, most = query.window.most_per_tuple, limits.windows
    if windows > most:
        raise SqlError(
            f"WINDOW {query.window.sql} puts every tuple into {windows:,} windows; at most {most:,} are allowed",
            reason=Reason.WINDOW_TOO_FINE.value,
            hint="make ADVANCE BY larger or SIZE smaller; an operator can raise the setting max_windows",
        )


def _check(found: int, most: int, reason: Reason, what: str, setting: str) -> None:
    if found > most:
        raise SqlError(
            f"the statement has {found:,} {what}; at most {most:,} are allowed",
            reason=reason.value,
            hint=f"split it into several queries; an operator can raise the setting max_{setting}",
        )


def _expressions(query: JoinQuery) -> Iterator[Expr]:
    yield from (condition for _, condition in query.selections)
    yield from query.residual
    yield from (output.expr for output in query.outputs)
    for equality in query.equi:
        yield from (equality.left, equality.right)


def _walk(expr: Expr) -> Iterator[Expr]:
    yield expr
    for child in children(expr):
        yield from _walk(child)
