"""Random aggregation queries: the oracle's last word about every group and window, and what DuckDB makes of its tuples.

Tuples come in three epochs and in any order, and all of them are accepted, so most windows are delivered and revised
before they are complete. The last revision of a row must be what DuckDB computes from all tuples of the window. With
HAVING a row that no longer passes is not taken back, so then everything comes in one epoch. That the engine agrees with
the oracle about each revision is the subject of the random lives (tests/lives).
"""

from __future__ import annotations

from random import Random

import duckdb
import pytest

from optimizer.model.types import ColumnType as T
from tests.crosscheck.aggregations import NUMBER, make_aggregation
from tests.crosscheck.duck import connect, create_table
from tests.crosscheck.queries import STREAMS
from tests.crosscheck.test_windows import VALUES, random_tuples
from tests.oracle import freeze, run_oracle, thaw
from tests.oracle.compare import close
from tests.oracle.folds import REVISION

EPOCHS, QUERIES = 3, 8
EVERYTHING = 1 << 40
FINITE = {**VALUES, T.DOUBLE: (0.0, 1.0, 1.0, 2.0, 1.5, -2.5, 0.1)}


def scenario(tuples, query):
    """Everything is accepted; watermarks follow the tuples."""
    lines = [
        {
            "stream": name,
            "schema": {c: t.value for c, t in columns.items()},
            "time": "ts",
            "allowed_lateness_ms": EVERYTHING,
        }
        for name, columns in STREAMS.items()
    ]
    lines.append({"create": "q", "sql": query.ours})
    for name, rows, epoch in arrivals(tuples, 1 if query.having else EPOCHS):
        lines += [{"event": name, "row": row} for row in rows]
        lines += [{"epoch": True}] if epoch else []
    return lines


def arrivals(tuples, epochs):
    """(stream, its next tuples, does an epoch end with them?) in order of arrival."""
    for epoch in range(epochs):
        for name, rows in tuples.items():
            yield name, rows[epoch::epochs], name == list(tuples)[-1]


def last_words(query, tuples):
    """(window and groups) -> (revision, values), from the oracle; and how many revisions there were."""
    expected = run_oracle(scenario(tuples, query)).queries["q"]
    last = {}
    for row in expected.rows:
        values = thaw(row)
        key = freeze(row[0], row[1], {g: values[g] for g in query.groups})
        last[key] = max(
            last.get(key, (-1, ())), (values[REVISION], [values[v] for v in query.values]), key=lambda w: w[0]
        )
    return {key: values for key, (_, values) in last.items()}, expected.rows.total() - len(last)


def batch(duck, query, tuples):
    """(window and groups) -> values, from DuckDB, window by window."""
    times = [t["ts"] for rows in tuples.values() for t in rows]
    found = {}
    for k in range((min(times) - query.size) // query.advance, max(times) // query.advance + 1):
        start, end = k * query.advance, k * query.advance + query.size
        for name in tuples:
            inside = f"SELECT * FROM all_{name} WHERE ts >= {start} AND ts < {end}"
            duck.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {inside}")
        for row in duck.execute(query.theirs).fetchall():
            groups = dict(zip(query.groups, row, strict=False))
            found[freeze(start, end, groups)] = list(row[len(groups) :])
    return found


def alike(a, b):
    if isinstance(a, float) or isinstance(b, float):
        return a is not None and b is not None and close(float(a), float(b))
    return type(a) is type(b) and a == b


def numbered(rows, epochs):
    """The tuples with their place in the order of event time and arrival."""
    arriving = [r for epoch in range(epochs) for r in rows[epoch::epochs]]
    ordered = sorted(range(len(arriving)), key=lambda i: (arriving[i]["ts"], i))
    return [{**arriving[i], NUMBER: place} for place, i in enumerate(ordered)]


@pytest.mark.parametrize("seeds", [range(a, a + 8) for a in range(0, 40, 8)], ids=str)
def test_the_last_revision_is_what_duckdb_computes(seeds):
    rows = revisions = overflows = 0
    for seed in seeds:
        rng = Random(seed)
        tuples = {name: random_tuples(rng, columns, FINITE) for name, columns in STREAMS.items()}
        duck = connect()
        for _ in range(QUERIES):
            query = make_aggregation(rng)
            for name, columns in STREAMS.items():
                numbers = numbered(tuples[name], 1 if query.having else EPOCHS)
                create_table(duck, f"all_{name}", {**columns, NUMBER: T.BIGINT}, numbers)
            try:
                theirs = batch(duck, query, tuples)
            except duckdb.OutOfRangeException:
                overflows += 1
                continue
            ours, revised = last_words(query, tuples)
            rows, revisions = rows + len(theirs), revisions + revised
            told = f"seed {seed}: {query.ours}\nDuckDB: {query.theirs}"
            assert ours.keys() == theirs.keys(), f"{told}\n{list(ours.keys() ^ theirs.keys())[:3]}"
            wrong = [(k, ours[k], theirs[k]) for k in ours if not all(map(alike, ours[k], theirs[k]))]
            assert not wrong, f"{told}\n(window and groups, ours, theirs): {wrong[:3]}"
    assert rows > 200, "this shows nothing"
    assert revisions > 50
    assert overflows <= 4
