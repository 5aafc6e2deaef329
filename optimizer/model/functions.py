"""The scalar functions by name: what they take and what they give.

A function is NULL when an argument is NULL, unless its line says otherwise, and never fails: a shared pipeline must not
stop for one query's value. What each of them computes is the runtime's business (runtime.columns.functions) and is told
to users in docs/sql.md; this table is what SQL, admission and explain need to know.

CAST and CASE are nodes of their own (optimizer.model.expressions), and MOD(a, b) is `a % b`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.model.types import INTEGERS, NUMBERS, ColumnType

_T = ColumnType
ANY = frozenset(ColumnType)
TEXT = frozenset({_T.STRING})
TIME = frozenset({_T.TIMESTAMP})


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """`arguments`: for each argument the types it may have; the last `optional` of them may be left out, and with
    `variadic` the last one may be repeated. `gives`: the type of the result; None: that of the first argument.
    `constant`: the positions that must be constants. `alike`: all arguments are brought to one type, which is also the
    result's if `gives` is None. `null_safe`: NULL among the arguments does not make the result NULL."""

    name: str
    arguments: tuple[frozenset[ColumnType], ...]
    gives: ColumnType | None
    optional: int = 0
    variadic: bool = False
    constant: frozenset[int] = frozenset()
    alike: bool = False
    null_safe: bool = False

    def fewest(self) -> int:
        return len(self.arguments) - self.optional

    def most(self) -> int | None:
        return None if self.variadic else len(self.arguments)

    def takes(self, position: int) -> frozenset[ColumnType]:
        return self.arguments[min(position, len(self.arguments) - 1)]


_SECOND = frozenset({1})

FUNCTIONS: Mapping[str, ScalarFunction] = {
    f.name: f
    for f in (
        ScalarFunction("COALESCE", (ANY,), None, variadic=True, alike=True, null_safe=True),
        ScalarFunction("NULLIF", (ANY, ANY), None, alike=True, null_safe=True),
        ScalarFunction("GREATEST", (ANY,), None, variadic=True, alike=True),
        ScalarFunction("LEAST", (ANY,), None, variadic=True, alike=True),
        ScalarFunction("ABS", (NUMBERS,), None),
        ScalarFunction("ROUND", (NUMBERS, INTEGERS), None, optional=1, constant=_SECOND),
        ScalarFunction("FLOOR", (NUMBERS,), None),
        ScalarFunction("CEIL", (NUMBERS,), None),
        ScalarFunction("POWER", (NUMBERS, NUMBERS), _T.DOUBLE),
        ScalarFunction("SQRT", (NUMBERS,), _T.DOUBLE),
        ScalarFunction("LN", (NUMBERS,), _T.DOUBLE),
        ScalarFunction("UPPER", (TEXT,), _T.STRING),
        ScalarFunction("LOWER", (TEXT,), _T.STRING),
        ScalarFunction("LENGTH", (TEXT,), _T.INT),
        ScalarFunction("SUBSTRING", (TEXT, INTEGERS, INTEGERS), _T.STRING, optional=1),
        ScalarFunction("TRIM", (TEXT, TEXT), _T.STRING, optional=1),
        ScalarFunction("LTRIM", (TEXT, TEXT), _T.STRING, optional=1),
        ScalarFunction("RTRIM", (TEXT, TEXT), _T.STRING, optional=1),
        ScalarFunction("CONCAT", (TEXT,), _T.STRING, variadic=True),
        ScalarFunction("REPLACE", (TEXT, TEXT, TEXT), _T.STRING, constant=frozenset({1, 2})),
        ScalarFunction("STARTS_WITH", (TEXT, TEXT), _T.BOOLEAN),
        ScalarFunction("REGEXP_LIKE", (TEXT, TEXT), _T.BOOLEAN, constant=_SECOND),
        ScalarFunction("EXTRACT", (TEXT, TIME), _T.BIGINT, constant=frozenset({0})),
        ScalarFunction("DATE_TRUNC", (TEXT, TIME), _T.TIMESTAMP, constant=frozenset({0})),
    )
}
"""NULLIF gives the type of its first argument, whatever the other one is compared as."""

OTHER_NAMES: Mapping[str, str] = {
    "BTRIM": "TRIM",
    "CEILING": "CEIL",
    "CHAR_LENGTH": "LENGTH",
    "CHARACTER_LENGTH": "LENGTH",
    "IFNULL": "COALESCE",
    "POW": "POWER",
    "STARTSWITH": "STARTS_WITH",
    "SUBSTR": "SUBSTRING",
}

TRUNCATIONS = ("MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
FIELDS = (*TRUNCATIONS, "DOW", "ISODOW", "DOY", "ISOYEAR", "EPOCH")
UNITS: Mapping[str, tuple[str, ...]] = {"EXTRACT": FIELDS, "DATE_TRUNC": TRUNCATIONS}
"""What may be a function's first argument."""


def castable(given: ColumnType, to: ColumnType) -> bool:
    """Numbers, BOOLEAN and STRING among each other; TIMESTAMP with STRING and, as milliseconds, with BIGINT."""
    if _T.TIMESTAMP in (given, to):
        return {given, to} <= {_T.TIMESTAMP, _T.STRING, _T.BIGINT}
    return True
