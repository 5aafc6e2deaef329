"""Random aggregates, groups and HAVING as SQL text.

What an engine may compute in any order is compared with a tolerance that a sum of cancelling DOUBLEs would exceed, so
arguments whose results would tell more about rounding than about the engine are not drawn: no differences of DOUBLEs,
no variance of values that are large beside their distances. For the same reason HAVING compares what is exact, or a
mean with a number that no mean of these values is.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tests.lives.draw import chance, pick, weighted
from tests.lives.predicates import NUMBERS, selection
from tests.lives.streams import World

Columns = Mapping[str, str]
"""SQL text of a column (`a.k`) to its type."""

INTEGERS = ("BIGINT", "INT")
FRACTIONS = ("0.5", "0.25", "0.9", "0", "1", "0.1")
HUGE = 4611686018427387905
"""2**62 + 1: a few of them do not fit into a BIGINT."""


def groups(rng: Random, columns: Columns, times: frozenset[str]) -> list[str]:
    """None, one or two items of GROUP BY. `times`: event-time columns, by which hardly two tuples are equal."""
    usable = [c for c in columns if c not in times] or list(columns)
    wanted = weighted(rng, ((1, 5), (0, 3), (2, 3)))
    found: list[str] = []
    for _ in range(wanted):
        column = pick(rng, usable)
        item = column if not chance(rng, 0.3) else _grouping(rng, column, columns[column])
        if item not in found:
            found.append(item)
    return found


def _grouping(rng: Random, column: str, type_: str) -> str:
    options = [f"{column} IS NULL"]
    if type_ in INTEGERS:
        options += [f"{column} % 2", f"{column} / 2", f"{column} + 1", f"{column} > 1"]
    if type_ == "DOUBLE":
        options += [f"{column} * 2", f"{column} <= 1"]
    if type_ == "STRING":
        options += [f"{column} LIKE 'a%'", f"{column} IN ('a', 'b')"]
    if type_ == "TIMESTAMP":
        options += [f"{column} + 5"]
    return options[-1 - rng.randrange(len(options))]


def items(rng: Random, world: World, columns: Columns, times: frozenset[str], by: list[str], ordered: bool) -> str:
    """The SELECT list: groups, aggregates, what is computed from both, bounds. `ordered`: one stream only."""
    shown = [g for g in by if not chance(rng, 0.15)]
    chosen = [f"{g} AS g{i}" for i, g in enumerate(shown)]
    aggregates = [aggregate(rng, world, columns, times, ordered) for _ in range(rng.randint(0 if by else 1, 4))]
    chosen += [f"{text} AS x{i}" for i, text in enumerate(aggregates)]
    if chance(rng, 0.3):
        chosen.append(f"{_computed(rng, columns, by)} AS y")
    if chance(rng, 0.25):
        chosen.append(pick(rng, ("window_start", "window_end", "window_end AS until")))
    if not chosen or chosen[0].startswith("window_"):
        chosen.insert(0, "COUNT(*) AS n")
    if chance(rng, 0.2):
        rng.shuffle(chosen)
    return ", ".join(chosen)


def aggregate(rng: Random, world: World, columns: Columns, times: frozenset[str], ordered: bool) -> str:
    call = _call(rng, world, columns, times, ordered)
    if chance(rng, 0.15):
        return f"{call} FILTER (WHERE {selection(rng, world, columns, 1)})"
    return call


def _call(rng: Random, world: World, columns: Columns, times: frozenset[str], ordered: bool) -> str:
    kind = weighted(
        rng,
        (
            ("COUNT(*)", 3),
            ("any", 8),
            ("number", 8),
            ("spread", 3),
            ("pair", 3),
            ("order", 3 if ordered else 0),
            ("large", 0.7),
        ),
    )
    column = pick(rng, list(columns))
    numbers = [c for c, t in columns.items() if t in NUMBERS]
    small = [c for c in numbers if c not in times and (columns[c] == "INT" or max(map(abs, world.keys)) < 1 << 31)]
    integers = [c for c in numbers if columns[c] in INTEGERS]
    if kind == "any":
        names = ("COUNT({})", "MIN({})", "MAX({})", "COUNT(DISTINCT {})", "ANY_VALUE({})", "APPROX_COUNT_DISTINCT({})")
        return pick(rng, names).format(column)
    if kind == "order":
        return f"{pick(rng, ('FIRST', 'LAST'))}({column})"
    if kind == "pair":
        return f"{pick(rng, ('ARG_MIN', 'ARG_MAX'))}({column}, {pick(rng, list(columns))})"
    if kind == "number" and numbers:
        name = pick(rng, ("SUM({})", "AVG({})", "MEDIAN({})", "QUANTILE({}, {p})"))
        return name.format(_argument(rng, pick(rng, numbers), columns), p=pick(rng, FRACTIONS))
    if kind == "spread" and small:
        return f"{pick(rng, ('STDDEV', 'VARIANCE', 'STDDEV_POP', 'VARIANCE_POP'))}({pick(rng, small)})"
    if kind == "large" and integers:
        return f"{pick(rng, ('SUM', 'MIN', 'MAX'))}({pick(rng, integers)} * {HUGE})"
    return "COUNT(*)"


def _argument(rng: Random, column: str, columns: Columns) -> str:
    if not chance(rng, 0.25):
        return column
    if columns[column] == "DOUBLE":
        return pick(rng, (f"{column} * 2", f"-{column}", f"{column} + 0.5"))
    return pick(rng, (f"{column} * 2", f"-{column}", f"{column} + 1", f"{column} / 2"))


def _computed(rng: Random, columns: Columns, by: list[str]) -> str:
    numbers = [c for c, t in columns.items() if t in NUMBERS]
    options = ["COUNT(*) * 2", "COUNT(*) > 1", "window_end - window_start + COUNT(*)"]
    if numbers:
        column = pick(rng, numbers)
        options += [f"SUM({column}) * 1.0 / COUNT(*)", f"SUM({column}) + COUNT({column})", f"MAX({column}) IS NULL"]
        options += [f"MAX({column}) / COUNT(*)"] if columns[column] in INTEGERS else []
    plain = [g for g in by if columns.get(g) in INTEGERS]
    if plain:
        options.append(f"{pick(rng, plain)} + COUNT(*)")
    return options[-1 - rng.randrange(len(options))]


def having(rng: Random, world: World, columns: Columns, by: list[str]) -> str:
    integers = [c for c, t in columns.items() if t in INTEGERS]
    column, any_column = pick(rng, integers), pick(rng, list(columns))
    key = pick(rng, world.keys)
    options = [
        f"COUNT(*) > {rng.randint(0, 2)}",
        f"COUNT(*) % 2 = {rng.randint(0, 1)}",
        f"MAX({column}) >= {key}",
        f"MIN({column}) < {key} OR COUNT(*) > 1",
        f"COUNT(DISTINCT {any_column}) <= 2",
        f"SUM({column}) <> {key}",
        f"SUM({column}) IS NOT NULL",
    ]
    if max(map(abs, world.keys)) < 1 << 31:  # else the number is rounded to what a mean can be
        options.append(f"AVG({column}) > {key}.3137")
    if by:
        options += [f"{by[0]} IS NOT NULL", f"NOT ({by[0]} IS NULL AND COUNT(*) < 3)"]
    return pick(rng, options)
