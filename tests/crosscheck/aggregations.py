"""Random aggregation queries as text, twice: for the platform, and for DuckDB over the tuples of one window.

Every group item is selected, so a row tells which group it is of. The functions of DuckDB differ in this:

- FIRST and LAST go by event time and arrival: `arg_min(x, nr)` over a column that numbers the tuples so. (Like ours, it
  leaves NULLs out.)
- ARG_MIN and ARG_MAX take the smallest x of several, and a NULL only if there is nothing else: the first of a list.
- ANY_VALUE is the smallest, and an estimate of how many values are distinct is exact in the oracle.
- QUANTILE is `quantile_cont`, and VARIANCE_POP `var_pop`.
- An aggregate without GROUP BY has a row for a window without tuples; here it has none.

NaN, infinities and -0.0 are left out: the order of NaN and the sign of 0 are not what is tested.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from optimizer.model.types import ColumnType as T
from tests.crosscheck.queries import TICK, Draw, around, joined
from tests.crosscheck.texts import NUMBERS, Expressions, Text, same

NUMBER = "nr"
"""DuckDB's column with the place of a tuple in the order of event time and arrival."""

_SAME = ("COUNT", "MIN", "MAX")
_OF_NUMBERS = ("SUM", "AVG", "STDDEV", "STDDEV_POP", "VARIANCE", "MEDIAN")


@dataclass(frozen=True, slots=True)
class Aggregation:
    """`groups` and `values` name the columns of a row; `having`: may rows be missing because of what is in them?"""

    ours: str
    theirs: str
    groups: tuple[str, ...]
    values: tuple[str, ...]
    size: int
    advance: int
    having: bool


def make_aggregation(rng: Random) -> Aggregation:
    draw = Draw(rng, ways=rng.choice((1, 1, 1, 2, 2, 3)))
    clauses = draw.clauses()
    columns = usable_columns(draw, clauses)
    groups = [group_item(rng, columns) for _ in range(rng.choice((0, 1, 1, 2)))]
    calls = [filtered_call(rng, columns, len(draw.sources) == 1) for _ in range(rng.randint(1, 4))]
    names = [f"g{i}" for i in range(len(groups))], [f"x{i}" for i in range(len(calls))]
    items = [around("", t, f" AS {n}") for t, n in zip([*groups, *calls], [*names[0], *names[1]], strict=True)]
    having = _having(rng, columns) if rng.random() < 0.25 else None
    text = joined(" FROM ", [joined(", ", items), clauses])
    if groups:
        text = joined(" GROUP BY ", [text, joined(", ", groups)])
    ours = text.ours if having is None else f"{text.ours} HAVING {having.ours}"
    theirs = f"{text.theirs} HAVING COUNT(*) > 0" + ("" if having is None else f" AND ({having.theirs})")
    size = TICK * rng.randint(2, 15)
    advance = rng.choice((size, size, TICK * rng.randint(2, 18)))
    window = f"TUMBLING (SIZE {size} MS)" if size == advance else f"HOPPING (SIZE {size} MS, ADVANCE BY {advance} MS)"
    return Aggregation(
        f"SELECT {ours} WINDOW {window}",
        f"SELECT {theirs}",
        tuple(names[0]),
        tuple(names[1]),
        size,
        advance,
        having is not None,
    )


def usable_columns(draw: Draw, clauses: Text) -> dict[str, T]:
    """Those that mean the same everywhere: a column of USING has no alias of its own in GROUP BY."""
    shared = " USING " in clauses.ours
    return {c: t for c, t in draw.every().items() if not (shared and c.lower().endswith("k"))}


def group_item(rng: Random, columns: dict[str, T]) -> Text:
    column = rng.choice(list(columns))
    if rng.random() < 0.6:
        return same(column, columns[column])
    if columns[column] in (T.INT, T.BIGINT):
        op, their_op = rng.choice((("%", "%"), ("/", "//"), ("+", "+")))
        return Text(f"{column} {op} 2", f"{column} {their_op} 2", columns[column])
    return same(f"({column} IS {rng.choice(('', 'NOT '))}NULL)", T.BOOLEAN)


def filtered_call(rng: Random, columns: dict[str, T], one_stream: bool) -> Text:
    conditions = [] if rng.random() < 0.75 else [Expressions(rng, columns).condition(1)]
    ours, theirs = (_filter([getattr(c, side) for c in conditions]) for side in ("ours", "theirs"))
    call, nulls = _call(rng, columns, one_stream)
    if nulls:
        theirs = _filter([nulls, *(f"({c.theirs})" for c in conditions)])
    return Text(f"{call.ours}{ours}", call.theirs.format(filter=theirs), call.type)


def _filter(conditions: list[str]) -> str:
    return f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""


def _call(rng: Random, columns: dict[str, T], one_stream: bool) -> tuple[Text, str]:
    """The call, with the place of DuckDB's filter, and what DuckDB must filter in addition."""
    column = rng.choice(list(columns))
    numbers = [c for c, t in columns.items() if t in NUMBERS]
    kinds: list[Callable[[], tuple[str, str, str]]] = [
        lambda: ("COUNT(*)", "COUNT(*){filter}", ""),
        lambda: _plain(rng.choice(_SAME), column),
        lambda: _plain(rng.choice(_SAME), column),
        lambda: (f"COUNT(DISTINCT {column})", f"COUNT(DISTINCT {column}){{filter}}", ""),
        lambda: (f"APPROX_COUNT_DISTINCT({column})", f"COUNT(DISTINCT {column}){{filter}}", ""),
        lambda: (f"ANY_VALUE({column})", f"MIN({column}){{filter}}", ""),
        lambda: _best(rng, column, rng.choice(list(columns))),
    ]
    if numbers:
        number = rng.choice(numbers)
        argument = number if rng.random() < 0.7 else f"{number} * 2 + 1"
        p = rng.choice(("0.5", "0.25", "0.9", "0", "1", "0.1"))
        kinds += [lambda: _plain(rng.choice(_OF_NUMBERS), argument)] * 5
        kinds.append(lambda: (f"VARIANCE_POP({argument})", f"var_pop({argument}){{filter}}", ""))
        kinds.append(lambda: (f"QUANTILE({argument}, {p})", f"quantile_cont({argument}, {p}){{filter}}", ""))
    if one_stream:
        kinds.append(lambda: (f"FIRST({column})", f"arg_min({column}, {NUMBER}){{filter}}", ""))
        kinds.append(lambda: (f"LAST({column})", f"arg_max({column}, {NUMBER}){{filter}}", ""))
    ours, theirs, nulls = rng.choice(kinds)()
    return Text(ours, theirs, T.BOOLEAN), nulls


def _plain(function: str, argument: str) -> tuple[str, str, str]:
    return f"{function}({argument})", f"{function}({argument}){{filter}}", ""


def _best(rng: Random, x: str, y: str) -> tuple[str, str, str]:
    function, order = rng.choice((("ARG_MIN", ""), ("ARG_MAX", " DESC")))
    return f"{function}({x}, {y})", f"(list({x} ORDER BY {y}{order}, {x} NULLS LAST){{filter}})[1]", f"{y} IS NOT NULL"


def _having(rng: Random, columns: dict[str, T]) -> Text:
    column = rng.choice(list(columns))
    return same(
        rng.choice((f"COUNT(*) > {rng.randint(0, 2)}", f"COUNT({column}) % 2 = 0", f"MIN({column}) IS NULL")), T.BOOLEAN
    )
