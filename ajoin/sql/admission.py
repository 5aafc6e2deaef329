"""What a query may cost at most before it is let in.

A bound query is a value and may be anything; whoever lets strangers write queries (the platform, replay) admits only
those within its limits. Each limit stands for work that the text of a statement decides alone, whatever the data:

    windows            rows and counts made per match; slices per key
    expression nodes   passes over the tuples
    IN values          constants of one list, all looked up in one pass
    aggregates         numbers kept and combined per group and slice
    groups             values that name one group
    tuples             of one count window, which are kept until it is full
    LIKE characters    comparisons per character of a text; of a regular expression, states
    text bytes         the longest text that functions make of columns with texts of ASSUMED bytes: what REPLACE in
                       REPLACE would multiply without end

What depends on data is bounded where it is done, in pieces: see the table in docs/operations.md. Queries that run are
never looked at again, so a limit may be lowered at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ajoin.sql.parse import MAX_SQL_LENGTH, parse_query
from ajoin.sql.reasons import Reason
from optimizer.errors import SqlError
from optimizer.model.expressions import Call, Case, Cast, Expr, InList, Like, Literal, children
from optimizer.model.query import Query
from optimizer.model.text_widths import text_width
from optimizer.model.types import StreamSchema
from optimizer.model.vocabulary import PLAIN, Vocabulary
from optimizer.model.windows import CountWindow, PunctuatedWindow

ASSUMED = 1_000


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Of one statement; the setting of each is called max_ and its name."""

    sql_bytes: int = MAX_SQL_LENGTH
    windows: int = 10_000
    expression_nodes: int = 2_000
    in_values: int = 10_000
    like_characters: int = 1_000
    aggregates: int = 64
    groups: int = 32
    count_window: int = 1_000_000
    text_bytes: int = 1 << 20


def admit(
    sql: str,
    schemas: Mapping[str, StreamSchema],
    limits: QueryLimits,
    vocabulary: Vocabulary = PLAIN,
) -> Query:
    """The query, if it is within the limits; else SqlError."""
    query = parse_query(sql, schemas, max_length=limits.sql_bytes, vocabulary=vocabulary)
    _check_window(query, limits)
    _check(len(query.aggregates), limits.aggregates, Reason.SQL_TOO_COMPLEX, "different aggregates", "aggregates")
    _check(len(query.groups), limits.groups, Reason.SQL_TOO_COMPLEX, "GROUP BY items", "groups")
    nodes = 0
    for expr in _expressions(query):
        for node in _walk(expr):
            nodes += 1
            _check_node(node, limits)
    what = "operators, columns and constants (an IN list is one)"
    _check(nodes, limits.expression_nodes, Reason.SQL_TOO_COMPLEX, what, "expression_nodes")
    return query


def _check_node(node: Expr, limits: QueryLimits) -> None:
    match node:
        case InList(_, values):
            _check(len(values), limits.in_values, Reason.LIST_TOO_LONG, "values in one IN list", "in_values")
        case Like(_, pattern) | Call("REGEXP_LIKE", (_, Literal(str(pattern)))):
            what = "characters in one pattern"
            _check(len(pattern), limits.like_characters, Reason.PATTERN_TOO_LONG, what, "like_characters")
        case Call() | Case() | Cast():
            what = f"bytes in a text that it could make of texts of {ASSUMED:,} bytes"
            _check(text_width(node, lambda _: ASSUMED), limits.text_bytes, Reason.TEXT_TOO_LONG, what, "text_bytes")


def _check_window(query: Query, limits: QueryLimits) -> None:
    windows, most = query.window.most_per_tuple, limits.windows
    if windows > most:
        raise SqlError(
            f"WINDOW {query.window.sql} puts every tuple into {windows:,} windows; at most {most:,} are allowed",
            reason=Reason.WINDOW_TOO_FINE.value,
            hint="make ADVANCE BY larger or SIZE smaller; an operator can raise the setting max_windows",
        )
    if isinstance(query.window, CountWindow) and query.window.size > limits.count_window:
        raise SqlError(
            f"WINDOW {query.window.sql} keeps {query.window.size:,} tuples for each group; "
            f"at most {limits.count_window:,} are allowed",
            reason=Reason.WINDOW_TOO_LARGE.value,
            hint="make SIZE smaller; an operator can raise the setting max_count_window",
        )


def _check(found: int, most: int, reason: Reason, what: str, setting: str) -> None:
    if found > most:
        raise SqlError(
            f"the statement has {found:,} {what}; at most {most:,} are allowed",
            reason=reason.value,
            hint=f"make it smaller or split it into several queries; an operator can raise the setting max_{setting}",
        )


def _expressions(query: Query) -> Iterator[Expr]:
    yield from (condition for _, condition in query.selections)
    yield from query.residual
    yield from (output.expr for output in query.outputs)
    for equality in query.equi:
        yield from (equality.left, equality.right)
    yield from query.groups
    if query.having is not None:
        yield query.having
    if isinstance(query.window, PunctuatedWindow):
        yield query.window.condition


def _walk(expr: Expr) -> Iterator[Expr]:
    yield expr
    for child in children(expr):
        yield from _walk(child)
