"""Random aggregates over sessions, count and punctuated windows: the oracle's last word, and DuckDB's window functions.

DuckDB finds the windows itself, from all tuples at once: sessions by the distance to the tuple before (`lag`),
positions by `row_number`, punctuated windows by the edges before and after a tuple. Where tuples come in one epoch,
both must have the same rows. Where they come in three, in any order, sessions that were absorbed and windows that were
split stay behind in what was delivered: then every row of DuckDB must be the last revision of one of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import duckdb
import pytest

from optimizer.model.types import ColumnType as T
from tests.crosscheck.aggregations import NUMBER, filtered_call, group_item, usable_columns
from tests.crosscheck.duck import connect, create_table
from tests.crosscheck.queries import STREAMS, TICK, Draw, around, joined
from tests.crosscheck.test_aggregations import FINITE, alike, numbered, scenario
from tests.crosscheck.test_windows import random_tuples
from tests.crosscheck.texts import Expressions
from tests.crosscheck.written import Text
from tests.oracle import freeze, run_oracle, thaw
from tests.oracle.folds import REVISION

QUERIES = 8


@dataclass(frozen=True, slots=True)
class ByData:
    ours: str
    theirs: str
    groups: tuple[str, ...]
    values: tuple[str, ...]
    having: bool


def make(rng: Random, epochs: int) -> ByData:
    draw = Draw(rng, ways=1)
    ((alias, stream),) = draw.sources.items()
    clauses = draw.clauses()
    columns = usable_columns(draw, clauses)
    groups = [group_item(rng, columns) for _ in range(rng.choice((0, 1, 1, 2)))]
    calls = [filtered_call(rng, columns, True) for _ in range(rng.randint(1, 4))]
    names = tuple(f"g{i}" for i in range(len(groups))), tuple(f"x{i}" for i in range(len(calls)))
    items = [around("", t, f" AS {n}") for t, n in zip([*groups, *calls], [*names[0], *names[1]], strict=True)]
    ours = f"SELECT {joined(', ', items).ours} FROM {clauses.ours}"
    if groups:
        ours += f" GROUP BY {', '.join(g.ours for g in groups)}"
    window, assigned = _window(rng, columns, alias, stream, names[0])
    passed = "".join(f", {g.theirs} AS {n}" for g, n in zip(groups, names[0], strict=True))
    by = ", ".join(("wstart", "wend", *names[0]))
    made = ", ".join(c.theirs for c in calls)
    theirs = (
        f"WITH passed AS (SELECT *{passed} FROM {clauses.theirs}), {assigned} "
        f"SELECT {by}, {made} FROM assigned AS {alias} GROUP BY {by}"
    )
    if window.startswith("COUNT"):
        theirs += f" HAVING COUNT(*) = {window.split()[2].rstrip(')')}"
    return ByData(f"{ours} WINDOW {window}", theirs, *names, having=epochs == 1)


def _window(rng: Random, columns: dict[str, T], alias: str, stream: str, groups: tuple[str, ...]) -> tuple[str, str]:
    """As we write it, and tables of DuckDB that lead from `passed` to `assigned`, with bounds."""
    each = f"OVER (PARTITION BY {', '.join(groups) or '1'} ORDER BY ts, {NUMBER})"
    match rng.choice(("session", "count", "punctuated")):
        case "session":
            gap = TICK * rng.randint(1, 8)
            return f"SESSION ({gap} MS)", (
                f"cut AS (SELECT *, coalesce(ts - lag(ts) {each} > {gap}, true) AS begins FROM passed), "
                f"numbered AS (SELECT *, sum(begins::INT) {each} AS n FROM cut), "
                f"assigned AS (SELECT *, min(ts) {_of(groups)} AS wstart, max(ts) {_of(groups)} + {gap} AS wend "
                "FROM numbered)"
            )
        case "count":
            size, advance = rng.randint(1, 5), rng.randint(1, 6)
            first = f"place * {advance}"
            return f"COUNT (SIZE {size} ADVANCE BY {advance})", (
                f"numbered AS (SELECT *, row_number() {each} - 1 AS n FROM passed), "
                f"assigned AS (SELECT numbered.*, {first} AS wstart, {first} + {size} AS wend "
                f"FROM numbered JOIN range(1000) AS r(place) ON n >= {first} AND n < {first} + {size})"
            )
        case _:
            condition: Text = Expressions(rng, columns).condition(1)
            return f"PUNCTUATED BY ({condition.ours})", (
                f"edges AS (SELECT ts AS e FROM {stream} AS {alias} WHERE {condition.theirs} "
                f"UNION SELECT min(ts) FROM {stream}), "
                "assigned AS (SELECT *, (SELECT max(e) FROM edges WHERE e <= ts) AS wstart, "
                "(SELECT min(e) FROM edges WHERE e > ts) AS wend FROM passed WHERE wend IS NOT NULL)"
            )


def _of(groups: tuple[str, ...]) -> str:
    return f"OVER (PARTITION BY {', '.join((*groups, 'n'))})"


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("seeds", [range(a, a + 10) for a in range(0, 40, 10)], ids=str)
def test_the_last_revision_is_what_duckdb_computes(seeds, epochs):
    rows = more = 0
    for seed in seeds:
        rng = Random(seed)
        tuples = {name: random_tuples(rng, columns, FINITE) for name, columns in STREAMS.items()}
        duck = connect()
        for name, columns in STREAMS.items():
            create_table(duck, name, {**columns, NUMBER: T.BIGINT}, numbered(tuples[name], epochs))
        for _ in range(QUERIES):
            query = make(rng, epochs)
            told = f"seed {seed}: {query.ours}\nDuckDB: {query.theirs}"
            try:
                found = duck.execute(query.theirs).fetchall()
            except duckdb.OutOfRangeException:
                continue
            theirs = {}
            for start, end, *values in found:
                groups = dict(zip(query.groups, values, strict=False))
                theirs[freeze(start, end, groups)] = values[len(groups) :]
            ours = last_words(query, tuples)
            assert theirs.keys() <= ours.keys(), f"{told}\n{list(theirs.keys() - ours.keys())[:3]}"
            assert epochs > 1 or ours.keys() == theirs.keys(), f"{told}\n{list(ours.keys() - theirs.keys())[:3]}"
            wrong = [(k, ours[k], theirs[k]) for k in theirs if not all(map(alike, ours[k], theirs[k]))]
            assert not wrong, f"{told}\n(window and groups, ours, theirs): {wrong[:3]}"
            rows, more = rows + len(theirs), more + len(ours.keys() - theirs.keys())
    assert rows > 200, "this shows nothing"
    assert (more > 0) == (epochs > 1)


def last_words(query, tuples):
    last = {}
    for row in run_oracle(scenario(tuples, query)).queries["q"].rows:
        values = thaw(row)
        key = freeze(row[0], row[1], {g: values[g] for g in query.groups})
        word = values[REVISION], [values[v] for v in query.values]
        last[key] = max(last.get(key, (-1, ())), word, key=lambda w: w[0])
    return {key: values for key, (_, values) in last.items()}
