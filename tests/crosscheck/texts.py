"""Random SQL expressions as text, twice: as the platform reads them and as DuckDB does.

Both texts are the same but for the differences listed in `duck.py`. Operands get parentheses only where the table of
operators in docs/sql.md asks for them (and sometimes where it does not), so two parsers that disagree about that
table, or about the order of `a - b - c`, read two different expressions.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from optimizer.model.types import ColumnType as T
from tests.crosscheck import functions
from tests.crosscheck.written import (
    AND,
    COMPARE,
    IS,
    NOT,
    NULL,
    NUMBERS,
    OR,
    PRODUCT,
    SIGN,
    SUM,
    TEST,
    Text,
    same,
)

COMPARISONS = {"=": "eq", "<>": "ne", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
TEXTS = ("", "a", "ab", "b", "B", "a%", "a_b", "it's", "é", "\U0001f600", "ä\n")
PATTERNS = ("%", "a%", "%b", "_", "__", "%é%", "", "a_b", "%_%", "it''s", "A%")
ESCAPED = ("a!%", "!%%", "a!_b", "%!!%")
TIMES = ("1970-01-01", "1970-01-01 00:00:00.010", "1969-12-31 23:59:59", "1970-01-01 00:01", "2024-01-31 23:59:59.999")
INTERVALS = ("'10' SECOND", "'1 minute'", "'5' MILLISECONDS", "'3 seconds'", "'2' HOURS")


class Expressions:
    """Draws expressions over `columns` (text of a column to its type). Columns in `edges` hold the largest and
    smallest values; they are compared and tested, but not computed with, because DuckDB refuses to overflow."""

    def __init__(self, rng: Random, columns: Mapping[str, T], edges: frozenset[str] = frozenset()) -> None:
        self.rng, self.columns, self.edges = rng, columns, edges

    # -- any type ------------------------------------------------------------------------------------------

    def any(self, depth: int) -> Text:
        type = self.rng.choice(list(T))
        if type is T.BOOLEAN:
            return self.condition(depth)
        return self.number(depth) if type in NUMBERS else self.value(type, depth)

    def value(self, type: T, depth: int) -> Text:
        """Of exactly this type; NULL now and then."""
        if self.rng.random() < 0.04:
            return same(NULL, type)
        if type is T.BOOLEAN:
            return self.condition(depth)
        if type is T.TIMESTAMP:
            return self.moment(depth)
        if type is T.STRING and depth > 0 and self.rng.random() < 0.5:
            return functions.text(self, depth)
        if type is T.STRING:
            return self._column(type) if self.rng.random() < 0.6 else self.constant(type)
        return self.simple(type) if depth == 0 else self.number(depth, type)

    def _column(self, type: T, edges: bool = False) -> Text:
        names = [c for c, t in self.columns.items() if t is type and (edges or c not in self.edges)]
        return same(self.rng.choice(names), type) if names else self.constant(type)

    def constant(self, type: T) -> Text:
        rng = self.rng
        match type:
            case T.INT:
                return same(str(rng.randint(0, 5)), type)
            case T.BIGINT:
                return same(str((1 << 32) + rng.randint(0, 2)), type)
            case T.DOUBLE:
                text = rng.choice(("0.0", "0.5", "1.5", "2.0", "3.25"))
                return Text(text, f"{text}e0", type) if rng.random() < 0.8 else same("2e0", type)
            case T.STRING:
                return same(quoted(rng.choice(TEXTS)), type)
            case T.BOOLEAN:
                return same(rng.choice(("TRUE", "FALSE")), type)
            case T.TIMESTAMP:
                text = f"TIMESTAMP '{rng.choice(TIMES)}'"
                return Text(text, f"epoch_ms({text})", type)

    # -- numbers and times ----------------------------------------------------------------------------------

    def number(self, depth: int, type: T | None = None) -> Text:
        """An arithmetic expression; of exactly this type, or of any number type."""
        rng = self.rng
        if depth == 0 or rng.random() < 0.25:
            return self.simple(type or rng.choice(NUMBERS))
        if rng.random() < 0.3:
            return functions.number(self, type or rng.choice(NUMBERS), depth)
        if rng.random() < 0.15:
            inner = self.number(depth - 1, type).within(SIGN)
            return Text(f"- {inner.ours}", f"- {inner.theirs}", inner.type, SIGN)
        if type in (None, T.BIGINT) and rng.random() < 0.1:
            return self._between_times(depth)
        left = self.number(depth - 1, type)
        right = self.number(depth - 1, rng.choice([t for t in NUMBERS if type is None or _wider(t, type) is type]))
        if rng.random() < 0.5:
            left, right = right, left
        if rng.random() < 0.04:
            right = same(NULL, left.type)
        return self._arithmetic(rng.choice("+-*/%"), left, right)

    def simple(self, type: T) -> Text:
        return self._column(type) if self.rng.random() < 0.65 else self.constant(type)

    def _between_times(self, depth: int) -> Text:
        a, b = self.moment(depth - 1), self.moment(depth - 1)
        return _binary("-", "-", a.within(SUM), b.within(PRODUCT), T.BIGINT, SUM)

    def moment(self, depth: int) -> Text:
        """A TIMESTAMP, perhaps moved by milliseconds."""
        rng = self.rng
        if depth == 0 or rng.random() < 0.5:
            return self._column(T.TIMESTAMP) if rng.random() < 0.7 else self.constant(T.TIMESTAMP)
        if rng.random() < 0.3:
            return functions.moment(self, depth)
        at = self.moment(depth - 1)
        by = same(str(rng.randint(0, 20_000)), T.BIGINT)
        if rng.random() < 0.5:
            interval = f"INTERVAL {rng.choice(INTERVALS)}"
            by = Text(interval, f"in_ms({interval})", T.BIGINT)
        sign = rng.choice("+-")
        if sign == "+" and rng.random() < 0.3:
            return _binary("+", "+", by, at.within(PRODUCT), T.TIMESTAMP, SUM)
        return _binary(sign, sign, at.within(SUM), by, T.TIMESTAMP, SUM)

    def _arithmetic(self, op: str, left: Text, right: Text) -> Text:
        type = _wider(left.type, right.type)
        level = SUM if op in "+-" else PRODUCT
        theirs = "//" if op == "/" and type is not T.DOUBLE else op
        return _binary(op, theirs, self._perhaps(left.within(level)), right.within(level + 1), type, level)

    # -- conditions -------------------------------------------------------------------------------------------

    def condition(self, depth: int) -> Text:
        rng = self.rng
        if depth > 0 and rng.random() < 0.5:
            kind = rng.randrange(8)
            if kind < 3:
                return self._chain("OR", OR, depth)
            if kind < 6:
                return self._chain("AND", AND, depth)
            if kind == 6:
                inner = self.condition(depth - 1).within(NOT)
                return Text(f"NOT {inner.ours}", f"NOT {inner.theirs}", T.BOOLEAN, NOT)
            inner = self.condition(depth - 1).within(IS)
            test = f"IS {rng.choice(('', 'NOT '))}{rng.choice(('TRUE', 'FALSE', 'NULL'))}"
            return Text(f"{inner.ours} {test}", f"{inner.theirs} {test}", T.BOOLEAN, IS)
        if depth > 0 and rng.random() < 0.15:
            return functions.condition(self, depth)
        kind = rng.randrange(12)
        if kind < 5:
            return self._comparison(depth)
        if kind == 5:
            operand = self.any(min(depth, 1)).within(IS)
            test = f"IS {rng.choice(('', 'NOT '))}NULL"
            return Text(f"{operand.ours} {test}", f"{operand.theirs} {test}", T.BOOLEAN, IS)
        if kind in (6, 7):
            return self._between(depth)
        if kind in (8, 9):
            return self._in_list(depth)
        return self._like() if kind == 10 else self._column(T.BOOLEAN)

    def _chain(self, word: str, level: int, depth: int) -> Text:
        parts = [self._perhaps(self.condition(depth - 1).within(level + 1)) for _ in range(self.rng.choice((2, 2, 3)))]
        ours, theirs = (f" {word} ".join(texts) for texts in zip(*((p.ours, p.theirs) for p in parts), strict=True))
        return Text(ours, theirs, T.BOOLEAN, level)

    def _pair(self, depth: int, level: int) -> tuple[Text, Text]:
        """Two operands that may be compared: equal types, or two numbers."""
        rng = self.rng
        type = rng.choice(list(T))
        if type in NUMBERS:
            if self.edges and rng.random() < 0.3:
                return self._column(rng.choice(NUMBERS), edges=True), self._column(rng.choice(NUMBERS), edges=True)
            return self.number(min(depth, 2)).within(level), self.number(min(depth, 2)).within(level)
        left, right = self.value(type, min(depth, 1)), self.value(type, min(depth, 1))
        if type is T.TIMESTAMP and rng.random() < 0.3:
            right = same(str(rng.randint(0, 20_000)), type)
        return left.within(level), right.within(level)

    def _comparison(self, depth: int) -> Text:
        left, right = self._pair(depth, TEST)
        op = self.rng.choice(list(COMPARISONS))
        ours = f"{left.ours} {op} {right.ours}"
        if T.DOUBLE in (left.type, right.type):
            return Text(ours, f"{COMPARISONS[op]}({left.theirs}, {right.theirs})", T.BOOLEAN, COMPARE)
        return Text(ours, f"{left.theirs} {op} {right.theirs}", T.BOOLEAN, COMPARE)

    def _between(self, depth: int) -> Text:
        operand, low = self._pair(depth, SUM)
        high = low
        for _ in range(20):
            other, high = self._pair(depth, SUM)
            if other.type is operand.type or (other.type in NUMBERS and operand.type in NUMBERS):
                break
        else:
            high = low
        no = self.rng.choice(("", "", "NOT "))
        ours = f"{operand.ours} {no}BETWEEN {low.ours} AND {high.ours}"
        if T.DOUBLE in (operand.type, low.type, high.type):
            x = operand.theirs
            return Text(ours, f"{no}(ge({x}, {low.theirs}) AND le({x}, {high.theirs}))", T.BOOLEAN, NOT if no else TEST)
        return Text(ours, f"{operand.theirs} {no}BETWEEN {low.theirs} AND {high.theirs}", T.BOOLEAN, TEST)

    def _in_list(self, depth: int) -> Text:
        rng = self.rng
        type = rng.choice((T.INT, T.BIGINT, T.DOUBLE, T.STRING, T.TIMESTAMP))
        if type in NUMBERS:
            operand = self._column(type, edges=True) if rng.random() < 0.5 else self.number(min(depth, 1), type)
            kinds: tuple[T, ...] = NUMBERS
        else:
            operand, kinds = self.value(type, min(depth, 1)), (type,)
        values = [self.constant(rng.choice(kinds)) for _ in range(rng.randint(1, 4))]
        if rng.random() < 0.2:
            values[rng.randrange(len(values))] = same(NULL, type)
        operand = operand.within(SUM)
        test = f"{rng.choice(('', '', 'NOT '))}IN"
        return Text(
            f"{operand.ours} {test} ({', '.join(v.ours for v in values)})",
            f"{operand.theirs} {test} ({', '.join(v.theirs for v in values)})",
            T.BOOLEAN,
            TEST,
        )

    def _like(self) -> Text:
        rng = self.rng
        operand = self.value(T.STRING, 0)
        test = f"{rng.choice(('', '', 'NOT '))}LIKE"
        if rng.random() < 0.3:
            pattern = f"'{rng.choice(ESCAPED)}' ESCAPE '!'"
        else:
            pattern = f"'{rng.choice(PATTERNS)}'"
        return same(f"{operand.ours} {test} {pattern}", T.BOOLEAN, TEST)

    def _perhaps(self, text: Text) -> Text:
        """Parentheses that change nothing."""
        return text.bracketed() if self.rng.random() < 0.1 else text


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _binary(op: str, their_op: str, left: Text, right: Text, type: T, level: int) -> Text:
    return Text(f"{left.ours} {op} {right.ours}", f"{left.theirs} {their_op} {right.theirs}", type, level)


def _wider(a: T, b: T) -> T:
    return max(a, b, key=NUMBERS.index)
