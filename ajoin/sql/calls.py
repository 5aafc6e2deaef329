"""How a function call is read: its name as written and its arguments, nothing else.

sqlglot turns calls into nodes of its own and forgives on the way: LOG10(x) becomes LOG(10, x), a third argument of MOD
is dropped, IFNULL is renamed. Here every call but an aggregate stays a name with arguments, at the place of the name,
so that the binder can count them and say what was written. The three functions that SQL spells with words between
their arguments become such calls too:

    EXTRACT(YEAR FROM t)              EXTRACT('YEAR', t)
    SUBSTRING(s FROM 2 FOR 3)         SUBSTRING(s, 2, 3)
    TRIM(LEADING 'x' FROM s)          LTRIM(s, 'x')
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

_SIDES = {"LEADING": "LTRIM", "TRAILING": "RTRIM", "BOTH": "TRIM"}

AGGREGATES: dict[str, Callable[..., exp.Expr]] = {
    name: build
    for name, build in Parser.FUNCTIONS.items()
    if (known := exp.FUNCTION_BY_NAME.get(name)) is not None and issubclass(known, exp.AggFunc)
}


def _call(parser: Any, name: str, arguments: list[exp.Expr | None]) -> exp.Expr:
    given = [a for a in arguments if a is not None]
    call = exp.Anonymous(this=name, expressions=given)
    return call.update_positions(_name_token(parser))


def _name_token(parser: Any) -> Token:
    """The word before the bracket that is still open."""
    depth, at = 1, parser._index - 1
    while depth:
        kind = parser._tokens[at].token_type
        depth += (kind == TokenType.R_PAREN) - (kind == TokenType.L_PAREN)
        at -= 1
    token: Token = parser._tokens[at]
    return token


def _close(parser: Any) -> None:
    if not parser._match(TokenType.R_PAREN, advance=False):
        parser.raise_error("Expected ',' or ')'", parser._curr or parser._prev)


def _extract(parser: Any) -> exp.Expr:
    unit = parser._curr
    if unit.token_type == TokenType.R_PAREN or not parser._next or parser._next.token_type != TokenType.FROM:
        parser.raise_error("Expected EXTRACT(unit FROM time)", unit)
    parser._advance(2)
    field = parser.expression(exp.Literal.string(unit.text.upper()), token=unit)
    return _finished(parser, "EXTRACT", [field, parser._parse_bitwise()])


def _substring(parser: Any) -> exp.Expr:
    arguments = parser._parse_csv(parser._parse_bitwise)
    if len(arguments) == 1 and parser._match(TokenType.FROM):
        arguments.append(parser._parse_bitwise())
    elif len(arguments) == 1 and parser._match(TokenType.FOR, advance=False):
        arguments.append(exp.Literal.number(1))
    if len(arguments) == 2 and parser._match(TokenType.FOR):
        arguments.append(parser._parse_bitwise())
    return _finished(parser, "SUBSTRING", arguments)


def _trim(parser: Any) -> exp.Expr:
    name = "TRIM"
    first = parser._curr.text.upper()
    if first in _SIDES and parser._next and parser._next.token_type not in (TokenType.R_PAREN, TokenType.COMMA):
        name = _SIDES[first]
        parser._advance()
    if parser._match(TokenType.FROM):
        return _finished(parser, name, [parser._parse_bitwise()])
    arguments = parser._parse_csv(parser._parse_bitwise)
    if len(arguments) == 1 and parser._match(TokenType.FROM):
        arguments.insert(0, parser._parse_bitwise())
    return _finished(parser, name, arguments)


def _finished(parser: Any, name: str, arguments: list[exp.Expr | None]) -> exp.Expr:
    _close(parser)
    return _call(parser, name, arguments)


SPELLED: dict[str, Callable[[Any], exp.Expr]] = {"EXTRACT": _extract, "SUBSTRING": _substring, "TRIM": _trim}

PARSERS: dict[str, Callable[[Any], exp.Expr | None]] = {
    **{name: Parser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST")},
    **SPELLED,
}
"""What is read in a way of its own; CAST(x AS type) as sqlglot does."""
