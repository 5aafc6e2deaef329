"""What the SQL tests share: short statements, errors with a marked place, bound expressions as text."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ajoin.sql import parse_query
from optimizer.errors import SqlError
from optimizer.model.expressions import (
    Aggregate,
    And,
    Arithmetic,
    Call,
    Case,
    Cast,
    ColumnRef,
    Compare,
    Expr,
    GroupRef,
    InList,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
    WindowBound,
)
from optimizer.model.query import Query
from optimizer.model.types import StreamSchema
from tests.builders import PAPER

WINDOW = "WINDOW TUMBLING (SIZE 1 SECOND)"
JOINED = "SELECT * FROM V, W, C WHERE V.vID = W.vID AND W.usrID = C.usrID"
MARK = "^"


def parse(sql: str, schemas: Mapping[str, StreamSchema] = PAPER) -> Query:
    return parse_query(sql, schemas)


def where(condition: str, schemas: Mapping[str, StreamSchema] = PAPER) -> Query:
    """V joined with W and C, and one more condition."""
    return parse(f"{JOINED} AND ({condition}) {WINDOW}", schemas)


def select(items: str, schemas: Mapping[str, StreamSchema] = PAPER) -> Query:
    return parse(f"SELECT {items} FROM V AS a JOIN W AS b ON a.vID = b.vID {WINDOW}", schemas)


def fold(items: str, rest: str = "", window: str = WINDOW) -> Query:
    """An aggregation over V."""
    return parse(f"SELECT {items} FROM V {rest} {window}")


def refused(marked: str, reason: str, token: str, schemas: Mapping[str, StreamSchema] = PAPER) -> SqlError:
    """Parse the text without its MARK; the error must stand where it was. No mark: no known place."""
    offset = marked.find(MARK)
    sql = marked.replace(MARK, "", 1)
    with pytest.raises(SqlError) as caught:
        parse_query(sql, schemas)
    error = caught.value
    before = sql[: max(offset, 0)]
    place = (before.count("\n") + 1, len(before) - before.rfind("\n")) if offset >= 0 else (0, 0)
    assert (error.reason, error.line, error.column, error.token) == (reason, *place, token), str(error)
    return error


def show(expr: Expr) -> str:
    """The bound expression with every parenthesis and the type of every constant."""
    match expr:
        case ColumnRef(alias, column):
            return f"{alias}.{column}"
        case WindowBound(which):
            return which
        case GroupRef(index, kind):
            return f"group {index}:{kind}"
        case Aggregate(function, arguments, kind, parameters, condition):
            inside = ", ".join([*map(show, arguments), *map(str, parameters)]) or "*"
            return f"{function}({inside}){f' IF {show(condition)}' if condition else ''}:{kind}"
        case Literal(value, kind):
            return f"{value!r}:{kind}"
        case Compare(op, left, right):
            return f"({show(left)} {op} {show(right)})"
        case Arithmetic(op, left, right, kind):
            return f"({show(left)} {op} {show(right)}):{kind}"
        case Negate(operand, kind):
            return f"(-{show(operand)}):{kind}"
        case And(operands):
            return f"({' AND '.join(map(show, operands))})"
        case Or(operands):
            return f"({' OR '.join(map(show, operands))})"
        case Not(operand):
            return f"(NOT {show(operand)})"
        case IsNull(operand):
            return f"({show(operand)} IS NULL)"
        case InList(operand, values):
            return f"({show(operand)} IN {', '.join(map(show, values))})"
        case Like(operand, pattern, escape):
            return f"({show(operand)} LIKE {pattern!r}{f' ESCAPE {escape!r}' if escape else ''})"
        case Call(function, arguments, kind):
            return f"{function}({', '.join(map(show, arguments))}):{kind}"
        case Cast(operand, kind):
            return f"CAST({show(operand)} AS {kind})"
        case Case(branches, otherwise, kind):
            whens = "; ".join(f"{show(when)} -> {show(then)}" for when, then in branches)
            return f"CASE[{whens}{'' if otherwise is None else f'; else {show(otherwise)}'}]:{kind}"
