"""The grammar of windows: the WINDOW clause, and table functions in FROM that say the same.

    WINDOW TUMBLING (SIZE n unit)
         | HOPPING (SIZE n unit, ADVANCE BY m unit)
         | BETWEEN t1 AND t2
         | SESSION ([GAP] n unit)            [STATE_TTL n unit]
         | COUNT (SIZE n [[,] ADVANCE BY m]) [STATE_TTL n unit]
         | PUNCTUATED BY (condition)
         | name (argument, ...)              of a plug-in; arguments: numbers, texts, words, n unit

    [TABLE(] function([TABLE] stream [PARTITION BY columns], column | DESCRIPTOR(column), INTERVAL ...) [)]

Only words and brackets are looked at here; what they mean, and which of them go together, is decided in windows.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from ajoin.sql.reasons import Reason
from ajoin.sql.scope import similar
from optimizer.model.vocabulary import BUILT_IN_WINDOWS, PLUGIN_HINT

if TYPE_CHECKING:
    from ajoin.sql.dialect import AJoinParser

WINDOW_HINT = (
    "write WINDOW TUMBLING (SIZE n unit) or WINDOW HOPPING (SIZE n unit, ADVANCE BY m unit) as the last clause"
)
KIND_HINT = (
    "the windows are TUMBLING (SIZE n unit), HOPPING (SIZE n unit, ADVANCE BY m unit), BETWEEN t1 AND t2, "
    "SESSION (n unit), COUNT (SIZE n ADVANCE BY m) and PUNCTUATED BY (condition)"
)
_WORD = re.compile(r"[A-Z][A-Z0-9_]*")
TABLE_FUNCTIONS = ("TUMBLE", "HOP", "SESSION")


class WindowClause(exp.Expression):
    """`kind` is the word after WINDOW. Lengths of time are exp.Interval, as in INTERVAL literals; lengths of count
    windows are exp.Literal; `low` and `high` are the bounds of BETWEEN; `text` is `condition` as it was written;
    `expressions` are the arguments of a plug-in's window."""

    arg_types = {  # noqa: RUF012 - sqlglot's convention
        "kind": True,
        "size": False,
        "advance": False,
        "low": False,
        "high": False,
        "condition": False,
        "text": False,
        "ttl": False,
        "expressions": False,
    }


class TableFunction(exp.Expression):
    """`kind`, such as TUMBLE; `expressions`: all arguments, of which the first may be a TableArgument."""

    arg_types = {"kind": True, "expressions": False}  # noqa: RUF012 - sqlglot's convention


class TableArgument(exp.Expression):
    """`[TABLE] this [PARTITION BY expressions]`"""

    arg_types = {"this": True, "expressions": False}  # noqa: RUF012 - sqlglot's convention


class Descriptor(exp.Expression):
    """`DESCRIPTOR(column)`"""

    arg_types = {"this": True}  # noqa: RUF012 - sqlglot's convention


def parse_window_clause(parser: AJoinParser) -> WindowClause:
    parser._match(TokenType.WINDOW)
    kind = parser._curr
    name = kind.text.upper() if kind else ""
    if name not in BUILT_IN_WINDOWS | parser.windows:
        hint = similar(name, sorted(BUILT_IN_WINDOWS | parser.windows)) or f"{KIND_HINT}; {PLUGIN_HINT}"
        _bad(parser, "WINDOW must be followed by the name of a kind of window", hint)
    parser._advance()
    clause = WindowClause(kind=name)
    match name:
        case "BETWEEN":
            _between(parser, clause)
        case "PUNCTUATED":
            _punctuated(parser, clause)
        case _ if name in parser.windows:
            _arguments(parser, clause)
        case _:
            _bracketed(parser, clause)
    if parser._match_text_seq("STATE_TTL"):
        clause.set("ttl", _length(parser))
    if parser._curr and parser._curr.text.upper() != "EMIT":
        parser.refuse(
            parser._curr,
            Reason.SQL_SYNTAX,
            f"unexpected {parser._curr.text!r} after the WINDOW clause",
            "WINDOW must be the last clause of the statement",
        )
    return parser.expression(clause, token=kind)  # type: ignore[no-any-return]


def _bracketed(parser: AJoinParser, clause: WindowClause) -> None:
    kind = clause.args["kind"]
    _token(parser, TokenType.L_PAREN, "(")
    if kind == "SESSION":
        parser._match_text_seq("GAP")
        clause.set("size", _length(parser))
    else:
        number = _whole if kind == "COUNT" else _length
        _word(parser, "SIZE")
        clause.set("size", number(parser))
        if kind == "HOPPING":
            _token(parser, TokenType.COMMA, ", ADVANCE BY m unit")
        comma = kind == "HOPPING" or (kind == "COUNT" and parser._match(TokenType.COMMA))
        if comma or (kind == "COUNT" and parser._curr and parser._curr.text.upper() == "ADVANCE"):
            _word(parser, "ADVANCE")
            _word(parser, "BY")
            clause.set("advance", number(parser))
    _token(parser, TokenType.R_PAREN, ")")


def _between(parser: AJoinParser, clause: WindowClause) -> None:
    clause.set("low", parser._parse_bitwise())
    _token(parser, TokenType.AND, "AND")
    clause.set("high", parser._parse_bitwise())
    if not (clause.args.get("low") and clause.args.get("high")):
        _bad(
            parser,
            "WINDOW BETWEEN needs two points in time",
            "write WINDOW BETWEEN TIMESTAMP '...' AND TIMESTAMP '...'",
        )


def _punctuated(parser: AJoinParser, clause: WindowClause) -> None:
    _word(parser, "BY")
    opening = parser._curr
    _token(parser, TokenType.L_PAREN, "(")
    condition = parser._parse_disjunction()
    if condition is None:
        _bad(parser, "PUNCTUATED BY needs a condition", "write WINDOW PUNCTUATED BY (column = 'value')")
    clause.set("condition", condition)
    closing = parser._curr
    _token(parser, TokenType.R_PAREN, ")")
    clause.set("text", parser.sql[opening.end + 1 : closing.start].strip())


def _arguments(parser: AJoinParser, clause: WindowClause) -> None:
    _token(parser, TokenType.L_PAREN, "(")
    given: list[exp.Expr] = []
    while parser._curr and parser._curr.token_type != TokenType.R_PAREN:
        if given:
            _token(parser, TokenType.COMMA, ",")
        given.append(_constant(parser))
    clause.set("expressions", given)
    _token(parser, TokenType.R_PAREN, ")")


def _constant(parser: AJoinParser) -> exp.Expr:
    """A word stands for the text in capital letters: MONTH is 'MONTH'."""
    word, following = parser._curr, parser._next
    if word.token_type == TokenType.NUMBER and following and following.text.isalpha():
        return _length(parser)
    alone = not following or following.token_type in (TokenType.COMMA, TokenType.R_PAREN)
    if alone and word.token_type not in (TokenType.STRING, TokenType.NUMBER) and _WORD.fullmatch(word.text.upper()):
        parser._advance()
        return parser.expression(exp.Literal.string(word.text.upper()), token=word)  # type: ignore[no-any-return]
    return _needed(parser, parser._parse_unary(), "a constant")


def _length(parser: AJoinParser) -> exp.Interval:
    number, unit = parser._curr, parser._next
    if not number or number.token_type != TokenType.NUMBER or not unit or not unit.text.isalpha():
        _bad(parser, "a window length is a whole number and a unit, such as 10 SECONDS")
    parser._advance(2)
    length = exp.Interval(this=exp.Literal.number(number.text), unit=exp.Var(this=unit.text.upper()))
    return parser.expression(length, token=number)  # type: ignore[no-any-return]


def _whole(parser: AJoinParser) -> exp.Literal:
    number = parser._curr
    if not number or number.token_type != TokenType.NUMBER:
        _bad(parser, "the size of a count window is a whole number of tuples", "write WINDOW COUNT (SIZE 100)")
    parser._advance()
    return parser.expression(exp.Literal.number(number.text), token=number)  # type: ignore[no-any-return]


def _token(parser: AJoinParser, token_type: TokenType, text: str) -> None:
    if not parser._match(token_type):
        _bad(parser, f"expected {text!r} in the WINDOW clause")


def _word(parser: AJoinParser, word: str) -> None:
    if not parser._match_text_seq(word):
        _bad(parser, f"expected {word} in the WINDOW clause")


def _bad(parser: AJoinParser, message: str, hint: str = KIND_HINT) -> NoReturn:
    parser.refuse(parser._curr or parser._prev, Reason.INVALID_WINDOW, message, hint)


def parse_table_function(parser: AJoinParser) -> TableFunction | None:
    """The table function that begins here, if one does. Flink wraps it into TABLE(...), RisingWave does not."""
    start = parser._index
    wrapped = parser._curr.token_type == TokenType.TABLE and parser._match_pair(TokenType.TABLE, TokenType.L_PAREN)
    name = parser._curr
    if name.text.upper() not in TABLE_FUNCTIONS or parser._next.token_type != TokenType.L_PAREN:
        parser._retreat(start)
        return None
    parser._advance(2)
    arguments = parser._parse_csv(lambda: _argument(parser))
    parser._match_r_paren()
    if wrapped:
        parser._match_r_paren()
    call = TableFunction(kind=name.text.upper(), expressions=arguments)
    return parser.expression(call, token=name)  # type: ignore[no-any-return]


def _argument(parser: AJoinParser) -> exp.Expr | None:
    """One argument; Flink allows to write all of them as `NAME => value`."""
    name = parser._curr
    if name and parser._next.token_type == TokenType.FARROW:
        parser._advance(2)
        value = _needed(parser, _value(parser), "a value")
        return parser.expression(exp.Kwarg(this=exp.Var(this=name.text.upper()), expression=value), token=name)  # type: ignore[no-any-return]
    return _value(parser)


def _value(parser: AJoinParser) -> exp.Expr | None:
    if parser._match(TokenType.TABLE):
        stream = _needed(parser, parser._parse_id_var(any_token=False), "a stream")
        table = parser.expression(TableArgument(this=stream))
        if parser._match(TokenType.PARTITION_BY):
            bracket = parser._match(TokenType.L_PAREN)
            columns = [_needed(parser, parser._parse_column(), "a column")]
            # Without brackets a comma ends the list: what follows is the next argument.
            while bracket and parser._match(TokenType.COMMA):
                columns.append(_needed(parser, parser._parse_column(), "a column"))
            table.set("expressions", columns)
            if bracket:
                parser._match_r_paren()
        return table  # type: ignore[no-any-return]
    if parser._curr and parser._curr.text.upper() == "DESCRIPTOR" and parser._next.token_type == TokenType.L_PAREN:
        parser._advance(2)
        column = _needed(parser, parser._parse_column(), "a column")
        parser._match_r_paren()
        return parser.expression(Descriptor(this=column))  # type: ignore[no-any-return]
    return parser._parse_disjunction()


def _needed(parser: AJoinParser, node: exp.Expr | None, what: str) -> exp.Expr:
    if node is None:
        parser.raise_error(f"Expected {what}")
    return node
