"""Random conditions as SQL text: every kind of selection over one source, and residuals across two.

Most conditions are lenient, because a query without rows tests little. Constants come from the same small
domain as the data, so that equalities hit.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tests.lives.draw import chance, pick, weighted
from tests.lives.streams import TEXTS, World

Columns = Mapping[str, str]
"""SQL text of a column (`a.k`) to its type."""

NUMBERS = ("BIGINT", "INT", "DOUBLE")


def selection(rng: Random, world: World, columns: Columns, depth: int = 0) -> str:
    """A boolean expression over one source's columns."""
    if depth < 2 and chance(rng, 0.25):
        kind = weighted(rng, (("OR", 4), ("AND", 2), ("NOT", 1)))
        left = selection(rng, world, columns, depth + 1)
        if kind == "NOT":
            return f"NOT ({left})"
        return f"({left} {kind} {selection(rng, world, columns, depth + 1)})"
    column = pick(rng, list(columns))
    type_ = columns[column]
    if chance(rng, 0.2):
        return _function(rng, world, column, type_)
    if chance(rng, 0.1):
        return f"{column} IS {pick(rng, ('NOT NULL', 'NULL'))}"
    match type_:
        case "STRING":
            return _text(rng, column)
        case "BOOLEAN":
            return pick(
                rng,
                (
                    column,
                    f"NOT {column}",
                    f"{column} = TRUE",
                    f"{column} <> FALSE",
                    f"{column} IS NOT TRUE",
                ),
            )
        case "TIMESTAMP":
            return _time(rng, world, column, columns)
    return _number(rng, world, column, type_, columns)


def residual(rng: Random, world: World, left: Columns, right: Columns) -> str | None:
    """A predicate that needs both sources and is not an equality of two columns; None if no columns fit."""
    pairs = [
        (a, b) for a, ta in left.items() for b, tb in right.items() if ta == tb or (ta in NUMBERS and tb in NUMBERS)
    ]
    if not pairs:
        return None
    a, b = pick(rng, pairs)
    if left[a] in NUMBERS and chance(rng, 0.4):
        return pick(
            rng,
            (
                f"{a} + {b} <> {_constant(rng, world, left[a])}",
                f"{a} - {b} <= {pick(rng, (0, 1, 2))}",
                f"{a} + 1 = {b}",
                f"{a} * {b} % 3 <> 1",
            ),
        )
    if left[a] == "TIMESTAMP" and chance(rng, 0.5):
        return f"{a} <= {b} + INTERVAL '{5 * world.tick}' MILLISECONDS"
    if chance(rng, 0.25):
        return f"({selection(rng, world, left, 2)} OR {selection(rng, world, right, 2)})"
    return f"{a} {pick(rng, ('<=', '<', '>=', '<>', '>'))} {b}"


def output(rng: Random, left: Columns, right: Columns) -> str:
    """An expression for SELECT. No division of DOUBLEs: JSON has no word for its infinities."""
    a, b = pick(rng, list(left)), pick(rng, list(right))
    options = ["1", "NULL", f"{a} IS NULL", "window_end - window_start"]
    if left[a] in NUMBERS and right[b] in NUMBERS:
        options += [f"{a} + {b}", f"{a} * 2 - {b}", f"-{a}", f"{a} > {b}"]
        if "DOUBLE" not in (left[a], right[b]):
            options += [f"{a} / {b}", f"{a} % {b}", f"{a} * 4611686018427387905"]
    if left[a] == "STRING":
        options += [f"{a} LIKE 'a%'", f"{a} IN ('a', NULL)", f"UPPER({a})", f"COALESCE({a}, '?') || '-'"]
        options += [f"SUBSTRING({a}, 2)", f"LENGTH(REPLACE({a}, 'a', 'xyz'))", f"CAST({a} AS INT)"]
        if right[b] == "STRING":
            options += [f"{a} || {b}", f"GREATEST({a}, {b})", f"CASE WHEN {a} < {b} THEN {a} ELSE LOWER({b}) END"]
    if left[a] in NUMBERS:
        options += [f"ABS({a})", f"ROUND({a}, -1)", f"CAST({a} AS STRING)", f"COALESCE({a}, 0)"]
        options += [f"CASE {a} WHEN 1 THEN 'one' WHEN 2 THEN NULL ELSE 'many' END"]
    if left[a] == "TIMESTAMP":
        options += [f"{a} + 5", f"{a} - window_start", f"DATE_TRUNC('second', {a})", f"EXTRACT(MILLISECOND FROM {a})"]
    return options[-1 - rng.randrange(len(options))]


def _function(rng: Random, world: World, column: str, type_: str) -> str:
    """A condition on what a function makes of the column."""
    value = _constant(rng, world, type_)
    match type_:
        case "STRING":
            options = [
                f"LENGTH({column}) {pick(rng, ('<>', '<=', '>='))} {pick(rng, (0, 1, 2))}",
                f"UPPER({column}) >= 'A'",
                f"CONCAT({column}, 'b') LIKE '%b'",
                f"COALESCE({column}, 'a') = TRIM({column})",
                f"REGEXP_LIKE({column}, '{pick(rng, ('a', '^[a-z]+$', '.'))}')",
                f"STARTS_WITH({column}, {quoted(pick(rng, TEXTS))})",
                f"REPLACE({column}, 'a', 'bb') <> SUBSTRING({column}, 1, 2)",
                f"CASE {column} WHEN 'a' THEN FALSE ELSE TRUE END",
            ]
        case "BOOLEAN":
            options = [f"COALESCE({column}, TRUE)", f"CAST({column} AS INT) <> 1", f"NULLIF({column}, FALSE) IS NULL"]
        case "TIMESTAMP":
            options = [
                f"EXTRACT(MILLISECOND FROM {column}) % 3 <> 1",
                f"DATE_TRUNC('{pick(rng, ('second', 'minute', 'day'))}', {column}) <= {column}",
                f"CAST({column} AS BIGINT) % 2 = 0",
            ]
        case _:
            options = [
                f"ABS({column}) {pick(rng, ('<>', '<=', '>='))} {value}",
                f"ROUND({column}, -1) <> {value}",
                f"COALESCE({column}, 1) >= {value}",
                f"GREATEST({column}, {value}) = {column}",
                f"MOD(CAST({column} AS INT), 3) <> 1",
                f"CASE WHEN {column} > {value} THEN {column} ELSE 0 END >= 0",
                f"(SQRT({column}) < 3 OR LN({column}) < 0)",
                f"LENGTH(CAST({column} AS STRING)) < 3",
            ]
    return pick(rng, options)


def _time(rng: Random, world: World, column: str, columns: Columns) -> str:
    """TIMESTAMPs among themselves, moved by milliseconds, and beside a constant."""
    other = pick(rng, [c for c, t in columns.items() if t == "TIMESTAMP"])
    constant = world.base + rng.randrange(world.span) * world.tick
    return pick(
        rng,
        (
            f"{column} >= {constant}",
            f"{column} {pick(rng, ('<=', '<>', '>='))} {other}",
            f"{column} + {3 * world.tick} > {other}",
            f"{column} - {other} <= {10 * world.tick}",
            f"{column} <> TIMESTAMP '1970-01-01 00:00:00.010'",
        ),
    )


def _number(rng: Random, world: World, column: str, type_: str, columns: Columns) -> str:
    value = _constant(rng, world, type_)
    match rng.randrange(10):
        case 0 | 1 | 2:
            return f"{column} {pick(rng, ('>=', '<>', '<=', '<', '>', '='))} {value}"
        case 3:
            low, high = min(world.keys), max(world.keys)
            middle = pick(rng, world.keys)
            negation = "NOT " if chance(rng, 0.2) else ""
            empty = f"{high} AND {low}"
            bounds = weighted(rng, ((f"{low} AND {middle}", 4), (f"{middle} AND {high}", 4), (empty, 1)))
            return f"{column} {negation}BETWEEN {bounds}"
        case 4 | 5:
            values = [_constant(rng, world, type_) for _ in range(rng.randint(1, 4))]
            if chance(rng, 0.15):
                values.append("NULL")
            return f"{column} {'NOT ' if chance(rng, 0.3) else ''}IN ({', '.join(values)})"
        case 6:
            other = pick(rng, [c for c, t in columns.items() if t in NUMBERS])
            sign = pick(rng, ("+", "-", "*"))
            return f"{column} {sign} {other} {pick(rng, ('>=', '<=', '<>'))} {value}"
        case 7:
            return f"{column} % {pick(rng, (2, 3, -2, 0))} {pick(rng, ('<>', '='))} {pick(rng, (1, 0, -1))}"
        case 8:
            other = pick(rng, [c for c, t in columns.items() if t in NUMBERS])
            return pick(rng, (f"{column} / 2 <= {value}", f"({value} / {other}) IS NOT NULL", f"-{column} <= {value}"))
        case _:
            # Integer arithmetic wraps; DOUBLE does not.
            return pick(
                rng,
                (
                    f"{column} + 9223372036854775807 <= {value}",
                    f"{column} * 2147483647 * 3 >= {value}",
                    f"{value} <= {column}",
                ),
            )


def _constant(rng: Random, world: World, type_: str) -> str:
    value = pick(rng, world.keys)
    if type_ == "DOUBLE" and chance(rng, 0.4):
        return f"{value}.5"
    return str(value)


def _text(rng: Random, column: str) -> str:
    text = quoted(pick(rng, TEXTS))
    match rng.randrange(4):
        case 0:
            return f"{column} {pick(rng, ('<>', '=', '>=', '<'))} {text}"
        case 1:
            negation = "NOT " if chance(rng, 0.3) else ""
            return f"{column} {negation}LIKE {pick(rng, PATTERNS)}"
        case 2:
            return f"{column} {'NOT ' if chance(rng, 0.3) else ''}IN ({text}, {quoted(pick(rng, TEXTS))})"
        case _:
            return f"{column} BETWEEN '' AND {text}"


PATTERNS = ("'%'", "'a%'", "'%b'", "'_'", "'%a_'", "''", "'a!%' ESCAPE '!'", "'%!_' ESCAPE '!'", "'é%'")


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
