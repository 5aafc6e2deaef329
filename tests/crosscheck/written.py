"""One expression written twice: as the platform reads it and as DuckDB does."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.model.types import ColumnType as T

OR, AND, NOT, IS, COMPARE, TEST, SUM, PRODUCT, SIGN, ATOM = range(10)
"""How strongly an expression's outermost operator binds; `TEST` is BETWEEN, IN and LIKE."""

NUMBERS = (T.INT, T.BIGINT, T.DOUBLE)


@dataclass(frozen=True, slots=True)
class Text:
    """`ours` for the platform, `theirs` for DuckDB. The type of NULL is whatever stands beside it."""

    ours: str
    theirs: str
    type: T
    level: int = ATOM

    def within(self, level: int) -> Text:
        """As an operand that must bind at least as strongly as `level`."""
        return self if self.level >= level else self.bracketed()

    def bracketed(self) -> Text:
        return Text(f"({self.ours})", f"({self.theirs})", self.type)


def same(text: str, type: T, level: int = ATOM) -> Text:
    return Text(text, text, type, level)


NULL = "NULL"
