"""Random calls of all scalar functions, over the columns and values of tests/runtime/expressions.py and some more."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from optimizer.model import expressions as ex
from optimizer.model.functions import FUNCTIONS, UNITS, castable
from optimizer.model.types import ColumnType as T
from optimizer.model.types import common_type
from tests.runtime.expressions import COLUMNS, NUMBERS, VALUES, columns, conditions, constants

DIGITS = [0, 1, 2, 3, -1, -2, -9, -10, -18, -19, -20, 15, 22, 23, 400, -400, 10**9, -(10**9), None]
MORE: dict[T, list[Any]] = {
    T.BIGINT: [5, 15, -25, 10**18, 5 * 10**18, -5 * 10**18, (1 << 31) - 1, 1 << 31, -(1 << 31) - 1],
    T.INT: [5, 15, -25, 1_500_000_000, -1_999_999_999],
    T.DOUBLE: [
        *(1.005, 2.5, -2.5, 0.5, -0.5, 0.05, 1e-5, 1e-300, 5e-324, 1e7, 9999999.0, 0.001, 123456.789, 1e16 + 2, 1e22),
        *(2.0**31, -(2.0**31) - 0.5, 2.0**63, -(2.0**63), math.pi, 1.7976931348623157e308, 4503599627370495.5),
    ],
    T.STRING: [
        *("1", " 42 ", "-7.9", "+.5", "1e3", "1.", ".", "nan", "-Infinity", "9" * 20, "2147483648", "t", "No"),
        *("0" * 40 + "5", "1_0", "\u0663", "2024-02-29 12:34:56.789", "2023-02-29", "1969-12-31T23:59:59.9999Z"),
        *("0001-01-01", "2024-01-01 24:00", "2024-12-30 05:06", "  padded  ", "xxaxx", "Stra\u00dfe", "\u0391\u03a3"),
        *("\u0149", "e\u0301", "aaa", "a.b", "\u0130i"),
    ],
    T.BOOLEAN: [True, False],
    T.TIMESTAMP: [
        *(951_782_400_000, 1_704_067_199_999, -2_208_988_800_000, 253_402_300_800_000, -62_135_596_800_001),
        *((1 << 63) - 1, -(1 << 63), 1_735_516_800_000, -1_000, 86_399_999),
    ],
}
REGEXES = ["a", "^a.*b$", "[0-9]+", "^$", "a|b", "(aa)+", "\\.", "x{2}", "^[^a]*$", "é", None]
POSITIONS = [0, 1, 2, 3, -1, -2, -100, 100, (1 << 31) - 1, -(1 << 31), None]


def rows(max_size: int = 12) -> st.SearchStrategy[list[dict[str, Any]]]:
    fields = {c: st.sampled_from([None, *VALUES[t], *MORE[t]]) for c, t in COLUMNS.items()}
    return st.lists(st.fixed_dictionaries(fields), max_size=max_size)


def literals(type: T) -> st.SearchStrategy[ex.Expr]:
    plain = [v for v in MORE[type] if v == v]
    return st.one_of(constants(type), st.sampled_from(plain).map(lambda v: ex.Literal(v, type)))


def of(type: T, depth: int) -> st.SearchStrategy[ex.Expr]:
    """An expression of exactly this type."""
    simple = st.one_of(columns(type), columns(type), literals(type))
    if depth == 0:
        return simple
    return st.one_of(simple, calls(type, depth), casts(type, depth), cases(type, depth))


@st.composite
def casts(draw: st.DrawFn, to: T, depth: int) -> ex.Expr:
    given = draw(st.sampled_from([t for t in T if castable(t, to)]))
    return ex.Cast(draw(of(given, depth - 1)), to)


@st.composite
def cases(draw: st.DrawFn, type: T, depth: int) -> ex.Expr:
    results = st.sampled_from(narrower(type)).flatmap(lambda t: of(t, depth - 1))
    branches = draw(st.lists(st.tuples(conditions(2), results), min_size=1, max_size=3))
    otherwise = draw(st.one_of(st.none(), results))
    return ex.Case(tuple(branches), otherwise, type)


@st.composite
def calls(draw: st.DrawFn, type: T, depth: int, name: str = "") -> ex.Expr:
    """A call that gives this type; of any function, or of this one."""
    fitting = [f for f in FUNCTIONS.values() if f.gives is type or (f.gives is None and type in f.arguments[0])]
    function = FUNCTIONS[name] if name else draw(st.sampled_from(fitting))
    inner = depth - 1
    if function.name in UNITS:
        unit = ex.Literal(draw(st.sampled_from(UNITS[function.name])), T.STRING)
        return ex.Call(function.name, (unit, draw(of(T.TIMESTAMP, inner))), type)
    if function.alike:
        kinds = st.sampled_from(narrower(type)).flatmap(lambda t: of(t, inner))
        count = 1 if function.name == "NULLIF" else draw(st.integers(0, 3))
        rest = [draw(kinds) for _ in range(count)]
        return ex.Call(function.name, (draw(of(type, inner)), *rest), type)
    first = type if function.gives is None else draw(st.sampled_from(sorted(function.arguments[0])))
    arguments = [draw(of(first, inner))]
    for position in range(1, len(function.arguments) - draw(st.integers(0, function.optional))):
        arguments.append(draw(_argument(function.name, position, inner)))
    if function.variadic:
        arguments += [draw(of(T.STRING, inner)) for _ in range(draw(st.integers(0, 2)))]
    return ex.Call(function.name, tuple(arguments), type)


def _argument(function: str, position: int, depth: int) -> st.SearchStrategy[ex.Expr]:
    match function:
        case "ROUND":
            return st.sampled_from(DIGITS).map(lambda v: ex.Literal(v, T.INT))
        case "REGEXP_LIKE":
            return st.sampled_from(REGEXES).map(lambda v: ex.Literal(v, T.STRING))
        case "REPLACE":
            return st.sampled_from(["a", "", "aa", "é", "xyz", " ", None]).map(lambda v: ex.Literal(v, T.STRING))
        case "SUBSTRING":
            positions = st.sampled_from(POSITIONS).map(lambda v: ex.Literal(v, T.INT))
            return st.one_of(positions, columns(T.INT), columns(T.BIGINT))
        case "POWER":
            return st.sampled_from(NUMBERS).flatmap(lambda t: of(t, depth))
    return of(T.STRING, depth)


def narrower(type: T) -> list[T]:
    """The types that widen to this one."""
    return [t for t in T if common_type(t, type) is type]


def any_call(depth: int = 2) -> st.SearchStrategy[ex.Expr]:
    return st.sampled_from(list(T)).flatmap(lambda t: st.one_of(calls(t, depth), casts(t, depth), cases(t, depth)))
