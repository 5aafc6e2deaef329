"""Text to syntax tree, and every way that can go wrong as a SqlError.

`parse_select` lets nothing but SqlError out, and its work is bounded: the caller bounds the length of the
text, MAX_NESTING the brackets before the parser runs, and any other deep recursion ends as SQL_TOO_COMPLEX.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from ajoin.sql.dialect import AJoin, AJoinParser, PlacedParseError
from ajoin.sql.places import sql_error, too_complex
from ajoin.sql.reasons import Reason
from optimizer.errors import SqlError

MAX_NESTING = 32
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}


def parse_select(sql: str, windows: Collection[str] = ()) -> exp.Select:
    """The syntax tree of the one SELECT in `sql`; SqlError for anything else. `windows`: names of windows that
    plug-ins brought."""
    dialect = AJoin()
    parser = AJoinParser(dialect=dialect)
    parser.windows = frozenset(windows)
    try:
        tokens = dialect.tokenize(sql)
        _check_shape(sql, tokens)
        statements = parser.parse([t for t in tokens if t.token_type != TokenType.SEMICOLON], sql)
    except TokenError as error:
        raise _token_error(sql, error) from None
    except ParseError as error:
        # sqlglot reads type names with a second parser, whose errors carry no token of this text.
        token = error.token if isinstance(error, PlacedParseError) else parser._curr or parser._prev
        raise _syntax_error(sql, token, str(error)) from None
    except RecursionError:
        raise too_complex(sql, None) from None
    select = statements[0]
    if not isinstance(select, exp.Select):
        raise sql_error(sql, tokens[0], Reason.NOT_A_SELECT, "a query must be one SELECT statement")
    return select


def _check_shape(sql: str, tokens: list[Token]) -> None:
    """What can be said before parsing: one statement, a SELECT, not nested too deeply."""
    content = [t for t in tokens if t.token_type != TokenType.SEMICOLON]
    if not content:
        raise sql_error(sql, None, Reason.SQL_EMPTY, "the statement is empty", "send one SELECT statement")
    first = content[0]
    if first.token_type in (TokenType.WITH, TokenType.L_PAREN):
        raise sql_error(
            sql,
            first,
            Reason.UNSUPPORTED_SUBQUERY,
            "common table expressions and parenthesised statements are not supported",
            "start the statement with SELECT",
        )
    if first.token_type != TokenType.SELECT:
        raise sql_error(sql, first, Reason.NOT_A_SELECT, "a query must be a SELECT statement", "start it with SELECT")
    ended = False
    depth = 0
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            ended = token.start > first.start
        elif ended:
            raise sql_error(
                sql, token, Reason.MULTIPLE_STATEMENTS, "only one statement is allowed", "send one at a time"
            )
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth > MAX_NESTING:
            raise too_complex(sql, token)


def _token_error(sql: str, error: TokenError) -> SqlError:
    """An unclosed quote or comment; the cause of the error says so, with the offset where it opened."""
    match = re.fullmatch(r"Missing (.+) from \d+:(\d+)", str(error.__cause__))
    if not match and "/*" in sql:
        return sql_error(sql, sql.rindex("/*"), Reason.SQL_SYNTAX, "this comment is never closed", "add */")
    if not match:
        return sql_error(sql, error.start, Reason.SQL_SYNTAX, "this text cannot be split into words")
    offset = min(int(match[2]), len(sql) - 1)
    return sql_error(
        sql,
        offset,
        Reason.SQL_SYNTAX,
        f"what opens here is never closed: {match[1]} is missing",
        f"add {match[1]}",
    )


def _syntax_error(sql: str, token: Token, text: str) -> SqlError:
    missing = re.match(r"Required keyword: '\w+' missing for <class '(?:\w+\.)*(\w+)'>", text)
    if missing:
        message = f"syntax error: this {missing[1].upper()} is incomplete"
    elif text.startswith(("Invalid expression", "Expected table name", "Failed to parse")):
        message = f"syntax error: unexpected {sql[token.start : token.end + 1]!r}"
    else:
        message = f"syntax error: {text[:1].lower()}{text[1:]}"
    return sql_error(sql, token, Reason.SQL_SYNTAX, message)
