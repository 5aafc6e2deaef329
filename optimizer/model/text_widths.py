"""How many bytes of text an expression may make of one row, given the longest texts of the columns it reads.

Most functions give a text no longer than the one they are given. CONCAT adds lengths, which the length of a statement
bounds; REPLACE multiplies, and REPLACE inside REPLACE inside REPLACE would fill any memory with one row of a few bytes.
So the widths are computed before a query is let in (ajoin.sql.admission) and again, with the true lengths, where rows
are made (runtime.operators.row_widths): an upper bound, every replacement counted as if its text were all of it.
"""

from __future__ import annotations

from collections.abc import Callable

from optimizer.model.expressions import Call, Case, Cast, ColumnRef, Expr, Literal, children
from optimizer.model.types import ColumnType

Longest = Callable[[ColumnRef], int]

OF_A_VALUE = 32
"""Characters of the longest number, truth value or time."""


def text_width(expr: Expr, longest: Longest) -> int:
    """Bytes of the text that `expr` is; 0 if it is none."""
    if expr.type is not ColumnType.STRING:
        return 0
    match expr:
        case ColumnRef():
            return longest(expr)
        case Literal(value):
            return _bytes(value)
        case Cast(operand):
            return text_width(operand, longest) if operand.type is ColumnType.STRING else OF_A_VALUE
        case Case(branches, otherwise):
            results = [result for _, result in branches] + ([] if otherwise is None else [otherwise])
            return max(text_width(r, longest) for r in results)
        case Call("CONCAT", arguments):
            return sum(text_width(a, longest) for a in arguments)
        case Call("REPLACE", (text, Literal(old), Literal(new))):
            # a replacement is as much longer than what it stands for at most
            return text_width(text, longest) * max(1, -(-_bytes(new) // max(1, _bytes(old))))
        case Call("UPPER" | "LOWER", (text,)):
            return 3 * text_width(text, longest)  # of all characters the one that grows most: ΐ
        case Call("COALESCE" | "GREATEST" | "LEAST", arguments):
            return max(text_width(a, longest) for a in arguments)
        case Call(_, arguments):
            return text_width(arguments[0], longest)
        case _:
            return 0


def made_texts(expr: Expr, longest: Longest) -> int:
    """Bytes of all texts that are made on the way to the value of `expr`."""
    own = text_width(expr, longest) if isinstance(expr, Call | Case | Cast) else 0
    return own + sum(made_texts(child, longest) for child in children(expr))


def _bytes(value: object) -> int:
    return len(value.encode("utf-8", "surrogatepass")) if isinstance(value, str) else 0
