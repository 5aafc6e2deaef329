"""Random join queries: what the engine delivers for every closed window, and what DuckDB joins from its tuples.

DuckDB sees neither the WINDOW clause nor time: for each window it gets tables with exactly the tuples of that window.
Nothing is late here and all queries are there from the beginning; when tuples count is the oracle's subject, not SQL's.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import duckdb
import pytest

from ajoin.testing import LocalEngine
from optimizer.model.types import ColumnType as T
from tests.crosscheck.duck import connect, create_table
from tests.crosscheck.queries import STREAMS, TICK, make_query
from tests.crosscheck.texts import TEXTS

TUPLES, TICKS, QUERIES, EPOCHS = 26, 20, 7, 3
NEVER_LATE = 1 << 40
VALUES = {
    T.INT: range(-1, 3),
    T.BIGINT: range(-1, 3),
    T.DOUBLE: (0.0, -0.0, 1.0, 1.0, 2.0, 2.0, 1.5, float("nan"), float("inf")),
    T.STRING: TEXTS[:3],
    T.BOOLEAN: (True, False),
    T.TIMESTAMP: range(-2000, 2000, 500),
}


def random_tuples(rng, columns, values=VALUES):
    def value(name, type):
        if name == "ts":
            return TICK * rng.randint(-TICKS // 2, TICKS // 2) - rng.choice((0, 0, 1))
        return None if rng.random() < 0.08 else rng.choice(values[type])

    return [{c: value(c, t) for c, t in columns.items()} for _ in range(TUPLES)]


def delivered(tuples, queries):
    """Rows of every query as a bag, from the engine."""
    with LocalEngine() as engine:
        for name, columns in STREAMS.items():
            engine.create_stream(name, columns=columns, watermark_delay_ms=NEVER_LATE)
        for i, query in enumerate(queries):
            engine.create_query(query.ours, id=str(i))
        for epoch in range(EPOCHS):
            for name, rows in tuples.items():
                engine.push(name, *rows[epoch::EPOCHS])
            engine.run_epoch()
        engine.raise_watermark(None)
        engine.run_epoch()
        assert all(s.tuples == TUPLES for s in engine.engine.streams())
        return [Counter(map(frozen, engine.rows(str(i)))) for i in range(len(queries))]


def joined(duck, query, tuples):
    """Rows of the query as a bag, from DuckDB, window by window."""
    times = [t["ts"] for rows in tuples.values() for t in rows]
    found = Counter()
    first = (min(times) - query.size) // query.advance
    for k in range(first, max(times) // query.advance + 1):
        start, end = k * query.advance, k * query.advance + query.size
        for name in tuples:
            duck.execute(
                f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT * FROM all_{name} WHERE ts >= {start} AND ts < {end}"
            )
        text = query.theirs.replace("window_start", f"({start}::BIGINT)").replace("window_end", f"({end}::BIGINT)")
        for values in duck.execute(text).fetchall():
            row = {"window_start": start, "window_end": end} | dict(zip(query.outputs, values, strict=True))
            if query.counts:
                row["revision"] = 0
            if not query.counts or row["count"] > 0:
                found[frozen(row)] += 1
    return found


def frozen(row):
    return tuple(sorted((name, repr(value)) for name, value in row.items()))


@pytest.mark.parametrize("seeds", [range(a, a + 3) for a in range(0, 18, 3)], ids=str)
def test_closed_windows_hold_what_duckdb_joins(seeds):
    rows = overflows = 0
    for seed in seeds:
        rng = Random(seed)
        tuples = {name: random_tuples(rng, columns) for name, columns in STREAMS.items()}
        queries = [make_query(rng) for _ in range(QUERIES)]
        duck = connect()
        for name, columns in STREAMS.items():
            create_table(duck, f"all_{name}", columns, tuples[name])
        for query, ours in zip(queries, delivered(tuples, queries), strict=True):
            try:
                theirs = joined(duck, query, tuples)
            except duckdb.OutOfRangeException:
                overflows += 1
                continue
            rows += theirs.total()
            assert ours == theirs, (
                f"seed {seed}: {query.ours}\nDuckDB: {query.theirs}\n"
                f"only ours: {list((ours - theirs).items())[:3]}\nonly theirs: {list((theirs - ours).items())[:3]}"
            )
    assert rows > 50 and overflows <= 2, f"{rows} rows, {overflows} overflows: this shows nothing"
