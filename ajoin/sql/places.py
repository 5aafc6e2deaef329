"""Where in the user's text something is, so that every error can point at it.

All positions are offsets into the text exactly as it was sent, in characters, so Unicode counts as a reader
counts it; line and column are derived only when an error is built. sqlglot notes offsets on names and
literals but not on operators, so a node without its own offset is shown at its leftmost part.
"""

from __future__ import annotations

import re

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from ajoin.sql.reasons import Reason
from optimizer.errors import AJoinError, SqlError

At = exp.Expr | Token | int | None
MOST_TEXT = 400  # an error quotes the user's text, which may be one name of 60 kB
MOST_TOKEN = 80
WINDOW_IN_PAST = "WINDOW_IN_PAST"
_FIXED_WINDOW = re.compile(r"\bWINDOW\s+(BETWEEN)\b", re.IGNORECASE)


def sql_error(sql: str, at: At, reason: Reason, message: str, hint: str = "") -> SqlError:
    """A SqlError that points at a syntax node, a token, an offset, or nowhere (None)."""
    start, end = _span(at)
    message, hint = message[:MOST_TEXT], hint[:MOST_TEXT]
    if start < 0:
        return SqlError(message, reason=reason.value, hint=hint)
    return _placed(sql, start, end, reason.value, message, hint)


def _placed(sql: str, start: int, end: int, reason: str, message: str, hint: str) -> SqlError:
    before = sql[:start]
    return SqlError(
        message,
        reason=reason,
        hint=hint,
        line=before.count("\n") + 1,
        column=start - (before.rfind("\n") + 1) + 1,
        token=sql[start : min(end + 1, start + MOST_TOKEN)],
    )


def at_window(refused: AJoinError, sql: str) -> AJoinError:
    """A refusal that only the engine can give, because it depends on the tuples that came, with the place of the window
    it is about."""
    places = list(_FIXED_WINDOW.finditer(sql))
    if refused.reason != WINDOW_IN_PAST or isinstance(refused, SqlError) or not places:
        return refused
    start, end = places[-1].span(1)
    return _placed(sql, start, end - 1, refused.reason, refused.message, refused.hint)


def place_of(at: At) -> int:
    """The offset of its first character; -1 when unknown."""
    return _span(at)[0]


def too_complex(sql: str, at: At) -> SqlError:
    message = "the statement is nested too deeply or too large to bind"
    return sql_error(sql, at, Reason.SQL_TOO_COMPLEX, message, "split it or remove parentheses")


def _span(at: At) -> tuple[int, int]:
    """First and last offset; (-1, -1) when unknown."""
    if isinstance(at, int):
        return at, at
    if isinstance(at, Token):
        return at.start, at.end
    while at is not None:
        if "start" in at.meta:
            return _own(at)
        placed = [node for node in at.walk() if "start" in node.meta]
        if placed:
            leftmost = min(placed, key=_own)
            if not isinstance(leftmost.parent, exp.Column):
                return _own(leftmost)
            # Of a qualified column show all parts, not the alias alone.
            ends = [_own(node) for node in leftmost.parent.walk() if "start" in node.meta]
            return min(ends)[0], max(ends)[1]
        at = at.parent
    return -1, -1


def _own(node: exp.Expr) -> tuple[int, int]:
    return node.meta["start"], node.meta["end"]
