"""Random calls of scalar functions, written for both (see duck.py for the differences)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.model.functions import FIELDS, TRUNCATIONS
from optimizer.model.types import ColumnType as T
from tests.crosscheck.written import Text, same

if TYPE_CHECKING:
    from tests.crosscheck.texts import Expressions

DUCK_TYPES = {T.INT: "INTEGER", T.BIGINT: "BIGINT", T.DOUBLE: "DOUBLE", T.STRING: "VARCHAR", T.BOOLEAN: "BOOLEAN"}
REGEXES = ("a", "^a", "b$", "[a-c]+", "^.$", "é|B", "a.b", "^$", "(?i)A", "[^a]")
CHARACTERS = ("'a'", "'ab'", "' '", "'é'", "''")
WIDER = {T.INT: (T.INT,), T.BIGINT: (T.INT, T.BIGINT), T.DOUBLE: (T.INT, T.BIGINT, T.DOUBLE)}


def call(name: str, *arguments: Text, type: T, theirs: str = "") -> Text:
    """`theirs`: their text with {0}, {1}, ... for the arguments; else the same call."""
    ours = ", ".join(a.ours for a in arguments)
    given = [f"({a.theirs})" for a in arguments]
    return Text(f"{name}({ours})", theirs.format(*given) if theirs else f"{name}({', '.join(given)})", type)


def _typed(text: str, type: T) -> str:
    return f"CAST({text} AS {DUCK_TYPES[type]})"


def _choosing(draw: Expressions, type: T, depth: int) -> Text:
    """CASE, COALESCE, NULLIF, GREATEST, LEAST; of any type."""
    rng = draw.rng
    kinds = WIDER.get(type, (type,))
    first = _value(draw, type, depth)
    other = _value(draw, rng.choice(kinds), depth)
    wide = DUCK_TYPES.get(type, "BIGINT")
    match rng.randrange(5):
        case 0:
            when = draw.condition(depth - 1)
            end = rng.choice(("", "ELSE"))
            return Text(
                f"CASE WHEN {when.ours} THEN {first.ours} {end} {other.ours if end else ''} END",
                f"CASE WHEN {when.theirs} THEN {first.theirs} {end} {other.theirs if end else ''} END",
                type,
            )
        case 1:
            subject, a = draw.value(T.STRING, 0), draw.value(T.STRING, 0)
            return Text(
                f"CASE {subject.ours} WHEN {a.ours} THEN {first.ours} WHEN 'b' THEN {other.ours} END",
                f"CASE {subject.theirs} WHEN {a.theirs} THEN {first.theirs} WHEN 'b' THEN {other.theirs} END",
                type,
            )
        case 2:
            return call("COALESCE", first, other, type=type)
        case 3:
            same_value = "eq({0}, {1})" if type is T.DOUBLE else "{0} = {1}"
            cast = f"CAST({{0}} AS {wide})"
            return call("NULLIF", first, other, type=type, theirs=f"CASE WHEN {same_value} THEN NULL ELSE {cast} END")
        case _:
            name = rng.choice(("GREATEST", "LEAST"))
            null = "CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL ELSE"
            return call(name, first, other, type=type, theirs=f"{null} {name}({{0}}, {{1}}) END")


def _value(draw: Expressions, type: T, depth: int) -> Text:
    value = draw.value(type, depth - 1)
    return draw.constant(type) if value.ours == "NULL" else value


def number(draw: Expressions, type: T, depth: int) -> Text:
    rng = draw.rng
    kind = rng.randrange(8)
    if kind < 2:
        return _choosing(draw, type, depth)
    if kind == 2:
        name = rng.choice(("ABS", "FLOOR", "CEIL"))
        return call(name, _value(draw, type, depth), type=type, theirs=_typed(f"{name}({{0}})", type))
    if kind == 3:
        digits = same(str(rng.choice((0, 1, 2, -1))), T.INT)
        return call("ROUND", draw.simple(type), digits, type=type, theirs=_typed("round({0}, {1})", type))
    if kind == 4:
        inner = draw.value(rng.choice([t for t in (*WIDER, T.BOOLEAN) if t is not type]), depth - 1)
        cut = f"TRY_CAST({inner.theirs} AS {DUCK_TYPES[type]})"
        if inner.type is T.DOUBLE:
            cut = f"TRY_CAST(trunc({inner.theirs}) AS {DUCK_TYPES[type]})"
        return Text(f"CAST({inner.ours} AS {type})", cut, type)
    if kind == 5 and type is not T.DOUBLE:
        inner = draw.simple(type)
        theirs = f"TRY_CAST(CAST({inner.theirs} AS VARCHAR) AS {DUCK_TYPES[type]})"
        return Text(f"CAST(CAST({inner.ours} AS STRING) AS {type})", theirs, type)
    match type:
        case T.DOUBLE:
            base = draw.number(depth - 1)
            name = rng.choice(("SQRT", "LN", "POWER"))
            if name == "POWER":
                theirs = "pow(CAST({0} AS DOUBLE), CAST({1} AS DOUBLE))"
                return call("POWER", draw.simple(T.DOUBLE), draw.simple(T.INT), type=type, theirs=theirs)
            return call(name, base, type=type, theirs=f"our_{name.lower()}({{0}})")
        case T.BIGINT:
            unit, at = rng.choice(FIELDS), draw.moment(depth - 1)
            return Text(f"EXTRACT({unit} FROM {at.ours})", f"CAST(our_extract('{unit}', {at.theirs}) AS BIGINT)", type)
        case _:
            return call("LENGTH", draw.value(T.STRING, depth - 1), type=type, theirs="CAST(length({0}) AS INTEGER)")


def moment(draw: Expressions, depth: int) -> Text:
    rng = draw.rng
    if rng.random() < 0.4:
        return _choosing(draw, T.TIMESTAMP, depth)
    at = draw.moment(depth - 1)
    if rng.random() < 0.2:
        theirs = f"epoch_ms(CAST(strftime(epoch_ms({at.theirs}), '%Y-%m-%d %H:%M:%S.%g') AS TIMESTAMP))"
        return Text(f"CAST(CAST({at.ours} AS STRING) AS TIMESTAMP)", theirs, T.TIMESTAMP)
    unit = rng.choice(TRUNCATIONS)
    theirs = f"epoch_ms(CAST(date_trunc('{unit}', epoch_ms({at.theirs})) AS TIMESTAMP))"
    return Text(f"DATE_TRUNC('{unit}', {at.ours})", theirs, T.TIMESTAMP)


def text(draw: Expressions, depth: int) -> Text:
    rng = draw.rng
    inner = draw.value(T.STRING, depth - 1)
    match rng.randrange(8):
        case 0:
            return _choosing(draw, T.STRING, depth)
        case 1:
            return call(rng.choice(("UPPER", "LOWER")), inner, type=T.STRING)
        case 2:
            start = same(str(rng.choice((1, 1, 2, 3, 9))), T.INT)
            length = [same(str(rng.randrange(4)), T.INT)] if rng.random() < 0.6 else []
            if rng.random() < 0.3:
                start = same("CASE WHEN i > 0 THEN i ELSE 1 END" if "i" in draw.columns else "2", T.INT)
            return call("SUBSTRING", inner, start, *length, type=T.STRING)
        case 3:
            name = rng.choice(("TRIM", "LTRIM", "RTRIM"))
            characters = [same(rng.choice(CHARACTERS), T.STRING)] if rng.random() < 0.7 else []
            return call(name, inner, *characters, type=T.STRING)
        case 4:
            others = [draw.value(T.STRING, depth - 1) for _ in range(rng.randint(1, 2))]
            joined = " || ".join(f"({{{i}}})" for i in range(1 + len(others)))
            return call("CONCAT", inner, *others, type=T.STRING, theirs=f"({joined})")
        case 5:
            old, new = same(rng.choice(("'a'", "'ab'", "'é'", "''")), T.STRING), same(rng.choice(CHARACTERS), T.STRING)
            return call("REPLACE", inner, old, new, type=T.STRING)
        case 6:
            given = draw.value(rng.choice((T.INT, T.BIGINT, T.BOOLEAN)), depth - 1)
            theirs = f"upper(CAST({given.theirs} AS VARCHAR))"
            return Text(f"CAST({given.ours} AS STRING)", theirs, T.STRING)
        case _:
            at = draw.moment(depth - 1)
            theirs = f"strftime(epoch_ms({at.theirs}), '%Y-%m-%d %H:%M:%S.%g')"
            return Text(f"CAST({at.ours} AS STRING)", theirs, T.STRING)


def condition(draw: Expressions, depth: int) -> Text:
    rng = draw.rng
    inner = draw.value(T.STRING, depth - 1)
    match rng.randrange(4):
        case 0:
            return _choosing(draw, T.BOOLEAN, depth)
        case 1:
            return call("STARTS_WITH", inner, draw.value(T.STRING, depth - 1), type=T.BOOLEAN)
        case 2:
            given = draw.value(rng.choice((T.INT, T.BIGINT, T.DOUBLE)), depth - 1)
            return Text(f"CAST({given.ours} AS BOOLEAN)", f"CAST({given.theirs} AS BOOLEAN)", T.BOOLEAN)
        case _:
            pattern = same(f"'{rng.choice(REGEXES)}'", T.STRING)
            return call("REGEXP_LIKE", inner, pattern, type=T.BOOLEAN, theirs="regexp_matches({0}, {1})")
