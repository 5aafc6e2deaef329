"""The grammar: sqlglot's parser plus WINDOW and EMIT clauses, minus everything a query over streams cannot mean.

    WINDOW ...  and windows as table functions: see window_syntax.py
    EMIT ROWS | FACTORIZED

sqlglot is made to read any SQL ever written and forgives a lot on the way (`FROM a,` or `BETWEEN 1 2`
parse). A platform must not guess: what is not in the language is refused here, at the token where it
stands, and the binder refuses every syntax node it does not know. So nothing a user wrote is ever silently
dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, NoReturn, TypeVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError
from sqlglot.parser import IsPredicatePrecedence, Parser
from sqlglot.tokenizer_core import Token, TokenType

from ajoin.sql import calls
from ajoin.sql.places import At, sql_error
from ajoin.sql.reasons import Reason
from ajoin.sql.window_syntax import parse_table_function, parse_window_clause

EMIT_HINT = "write EMIT ROWS or EMIT FACTORIZED at the end of the statement"

_LIMIT = (Reason.UNSUPPORTED_LIMIT, "a stream of rows has no first n rows")
_REFUSED_CLAUSES = {
    TokenType.ORDER_BY: (Reason.UNSUPPORTED_ORDER_BY, "rows are delivered as they are found, in no order"),
    TokenType.SORT_BY: (Reason.UNSUPPORTED_ORDER_BY, "rows are delivered as they are found, in no order"),
    TokenType.LIMIT: _LIMIT,
    TokenType.FETCH: _LIMIT,
    TokenType.OFFSET: _LIMIT,
}

_WORD = re.compile(r"[^\W\d][\w$]*")

T = TypeVar("T")


class EmitClause(exp.Expression):
    """`this` is ROWS or FACTORIZED."""

    arg_types = {"this": True}  # noqa: RUF012 - sqlglot's convention


class PlacedParseError(ParseError):
    """A ParseError that remembers its token as an object, not as a formatted line."""

    def __init__(self, message: str, token: Token) -> None:
        super().__init__(message, [{"description": message}])  # sqlglot adds to the first entry
        self.token = token


def _refuse(token_type: TokenType) -> Callable[[AJoinParser], NoReturn]:
    reason, message = _REFUSED_CLAUSES.get(
        token_type, (Reason.UNSUPPORTED_CLAUSE, "this clause is not part of a query over streams")
    )

    def refuse(parser: AJoinParser) -> NoReturn:
        parser.refuse(parser._curr, reason, f"{parser._curr.text.upper()} is not supported: {message}")

    return refuse


def _is_leaf(node: exp.Expr) -> bool:
    return not any(isinstance(value, (exp.Expr, list)) for value in node.args.values())


class AJoinParser(Parser):
    # `a = b IS TRUE` is `(a = b) IS TRUE`, as in PostgreSQL, Spark and Flink.
    IS_PREDICATE_PRECEDENCE = IsPredicatePrecedence.LOW

    # WINDOW always starts the clause; a column of that name is written a.window or "window".
    ID_VAR_TOKENS = Parser.ID_VAR_TOKENS - {TokenType.WINDOW}
    ALIAS_TOKENS = Parser.ALIAS_TOKENS - {TokenType.WINDOW}

    # A call is a name with arguments, whatever sqlglot knows about the name.
    FUNCTIONS = {}  # noqa: RUF012
    FUNCTION_PARSERS = calls.PARSERS

    QUERY_MODIFIER_PARSERS = {  # noqa: RUF012 - sqlglot's convention
        **{token_type: _refuse(token_type) for token_type in Parser.QUERY_MODIFIER_PARSERS},
        TokenType.WHERE: Parser.QUERY_MODIFIER_PARSERS[TokenType.WHERE],
        TokenType.GROUP_BY: lambda self: ("group", self._placed(self._parse_group)),
        TokenType.HAVING: lambda self: ("having", self._placed(self._parse_having)),
        TokenType.WINDOW: lambda self: ("windows", parse_window_clause(self)),
    }

    windows: frozenset[str] = frozenset()
    """Names of windows that plug-ins brought."""

    def refuse(self, at: At, reason: Reason, message: str, hint: str = "") -> NoReturn:
        raise sql_error(self.sql, at, reason, message, hint)

    def raise_error(self, message: str, token: Token | None = None) -> NoReturn:
        raise PlacedParseError(message, token or self._curr or self._prev)

    def expression(self, instance: Any, token: Token | None = None, comments: list[str] | None = None) -> Any:
        # Leaves such as NULL, TRUE, ?, CURRENT_DATE get no offset from sqlglot; they are the token just read.
        if token is None and self._prev and (isinstance(instance, exp.Interval) or _is_leaf(instance)):
            token = self._prev
        return super().expression(instance, token=token, comments=comments)

    def _placed(self, parse_clause: Callable[[], exp.Expr | None]) -> exp.Expr | None:
        """A clause that stands where its keyword stands."""
        keyword = self._curr
        clause = parse_clause()
        return clause.update_positions(keyword) if clause else None

    def _parse_table_part(self, schema: bool = False) -> exp.Expr | None:
        return parse_table_function(self) or super()._parse_table_part(schema)

    # -- the EMIT clause

    def _emits(self) -> bool:
        """Does the EMIT clause begin here, not an alias called so?"""
        return self._curr.text.upper() == "EMIT" and self._next.text.upper() in ("ROWS", "FACTORIZED")

    def _parse_emit_clause(self) -> EmitClause | None:
        """After everything else, because EMIT is an ordinary name wherever a name can stand."""
        emit = self._curr
        if not (emit and self._match_text_seq("EMIT")):
            return None
        mode = self._curr.text.upper() if self._curr else ""
        if mode not in ("ROWS", "FACTORIZED"):
            self.refuse(self._curr or emit, Reason.SQL_SYNTAX, "EMIT is followed by ROWS or FACTORIZED", EMIT_HINT)
        self._advance()
        if self._curr:
            self.refuse(
                self._curr, Reason.SQL_SYNTAX, f"unexpected {self._curr.text!r} after the EMIT clause", EMIT_HINT
            )
        return self.expression(EmitClause(this=mode), token=emit)  # type: ignore[no-any-return]

    # -- what sqlglot would accept and we must not

    def _parse_select(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        if self._index > 0 and self._curr and self._curr.token_type in (TokenType.SELECT, TokenType.WITH):
            self.refuse(
                self._curr,
                Reason.UNSUPPORTED_SUBQUERY,
                "subqueries are not supported",
                "join all streams in one FROM clause",
            )
        if self._curr.token_type == TokenType.SELECT and self._next.token_type == TokenType.DISTINCT:
            self.refuse(
                self._next,
                Reason.UNSUPPORTED_DISTINCT,
                "DISTINCT is not supported: rows keep their duplicates",
                "group by the columns: SELECT a, b ... GROUP BY a, b",
            )
        keyword = self._curr
        outermost = self._index == 0
        select = super()._parse_select(*args, **kwargs)
        if isinstance(select, exp.Select) and outermost:
            select.set("emit", self._parse_emit_clause())
        return select.update_positions(keyword) if isinstance(select, exp.Select) else select

    def _parse_set_operations(self, this: exp.Expr | None) -> exp.Expr | None:
        if self._curr and self._curr.token_type in self.SET_OPERATIONS:
            self.refuse(
                self._curr,
                Reason.UNSUPPORTED_SET_OPERATION,
                f"{self._curr.text.upper()} is not supported",
                "create one query per SELECT",
            )
        return super()._parse_set_operations(this)

    def _parse_join_parts(self) -> tuple[Token | None, Token | None, Token | None]:
        method, side, kind = super()._parse_join_parts()
        odd = method or side or (kind if kind and kind.token_type != TokenType.INNER else None)
        if odd and (self._curr.token_type == TokenType.JOIN or odd.token_type == TokenType.STRAIGHT_JOIN):
            self.refuse(
                odd,
                Reason.UNSUPPORTED_JOIN,
                f"{odd.text.upper()} joins are not supported",
                "use an inner join with at least one equality: JOIN s ON a.x = s.y",
            )
        return method, side, kind

    def _parse_join(self, *args: Any, **kwargs: Any) -> exp.Join | None:
        comma = self._curr if self._curr and self._curr.token_type == TokenType.COMMA else None
        join = super()._parse_join(*args, **kwargs)
        if comma and not join:
            self.raise_error("Expected a stream after ','")
        return join

    def _parse_table_alias(self, alias_tokens: Collection[TokenType] | None = None) -> exp.TableAlias | None:
        if self._emits():
            return None
        has_as = self._curr.token_type == TokenType.ALIAS
        alias = super()._parse_table_alias(alias_tokens)
        if has_as and not alias:
            self.raise_error("Expected a name after AS")
        return alias

    def _parse_table_parts(self, *args: Any, **kwargs: Any) -> exp.Table | exp.Dot | None:
        table = super()._parse_table_parts(*args, **kwargs)
        if table and self._curr.token_type == TokenType.STAR:
            self.raise_error("Invalid expression / Unexpected token")
        return table

    def _parse_id_var(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        name = super()._parse_id_var(*args, **kwargs)
        if isinstance(name, exp.Identifier) and not (name.args.get("quoted") or _WORD.fullmatch(name.name)):
            self.raise_error("Expected a name", self._prev)
        return name

    def _parse_lambda_arg(self) -> None:
        """There are no functions as arguments, so `((1) + 2)` is not the beginning of `(x) -> x + 2`."""

    def _parse_csv(self, parse_method: Callable[[], T | None], sep: TokenType = TokenType.COMMA) -> list[T]:
        def item() -> T | None:
            follows = self._prev.token_type == sep
            parsed = parse_method()
            if parsed is None and (follows or self._curr.token_type == sep):
                self.raise_error("Expected an item on both sides of ','")
            return parsed

        return super()._parse_csv(item, sep)

    def _parse_interval(self, require_interval: bool = True, parse_function_unit: bool = True) -> exp.Interval | None:
        """One length and its unit. sqlglot would take `INTERVAL '1 minute' + 5` for one INTERVAL of two parts."""
        start = self._index
        if require_interval and not self._match(TokenType.INTERVAL):
            return None
        text = self._match_set((TokenType.STRING, TokenType.NUMBER), advance=False)
        length = self._parse_primary() if text else self._parse_term()
        if length is None or (isinstance(length, exp.Column) and not length.table):
            self._retreat(start)
            return None
        return self._parse_interval_span(length, parse_function_unit=parse_function_unit)

    def _parse_between(self, this: exp.Expr | None) -> exp.Between:
        low = self._parse_bitwise()
        if not self._match(TokenType.AND):
            self.raise_error("Expected BETWEEN low AND high")
        high = self._parse_bitwise()
        return self.expression(exp.Between(this=this, low=low, high=high))  # type: ignore[no-any-return]


class AJoin(Dialect):
    """Plain SQL tokens: 'text', "name", -- and /* */ comments; names keep their case."""

    Parser = AJoinParser
