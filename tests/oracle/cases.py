"""A small language for hand-worked cases: two streams A and B, keys, times, and the rows they must give.

The queries are built without SQL, so a mistake in the SQL front end cannot hide one in the oracle.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from optimizer.model.query import Query
from optimizer.model.types import Column, ColumnType, StreamSchema
from tests.builders import join_query
from tests.folds import Folding
from tests.oracle import Expected, ExpectedQuery, run_oracle, thaw

Line = dict[str, Any]
COLUMNS = {"ts": "TIMESTAMP", "k": "BIGINT", "i": "INT", "d": "DOUBLE", "s": "STRING"}
SCHEMAS = {
    name: StreamSchema(name, tuple(Column(c, ColumnType(t)) for c, t in COLUMNS.items()), "ts") for name in ("A", "B")
}
ONE = Folding("A", schemas=SCHEMAS)
"""Queries over A alone."""
TWO = Folding("A", "B", schemas=SCHEMAS)
EPOCH: Line = {"epoch": True}
CREATE: Line = {"create": "q", "sql": "q"}
DELETE: Line = {"delete": "q"}


def a(ts: Any, k: Any = 1, **row: Any) -> Line:
    return {"event": "A", "row": {"ts": ts, "k": k, **row}}


def b(ts: Any, k: Any = 1, **row: Any) -> Line:
    return {"event": "B", "row": {"ts": ts, "k": k, **row}}


def watermark(stream: str, ts: int) -> Line:
    return {"watermark": stream, "ts": ts}


def query(window: tuple[int, int] | int, *sources: str, **kwargs: Any) -> Query:
    """By default A joined with B on k; the outputs are the event times."""
    sources = sources or ("A", "B")
    kwargs.setdefault("on", ["A.k = B.k"])
    kwargs.setdefault("select", [f"{s.split()[-1]}.ts" for s in sources])
    return join_query(*sources, window=window, schemas=SCHEMAS, sql="q", **kwargs)


def run(asked: Query, *lines: Line, delay: int = 0, lateness: int = 0, flush: bool = True) -> Expected:
    """The lines come after both streams; the query is created first unless a line creates it."""
    declared = [
        {
            "stream": name,
            "schema": COLUMNS,
            "time": "ts",
            "watermark_delay_ms": delay,
            "allowed_lateness_ms": lateness,
        }
        for name in ("A", "B")
    ]
    created = [] if CREATE in lines else [CREATE]
    return run_oracle([*declared, *created, *lines], parse=lambda sql, schemas: asked, flush=flush)


def asked(expected: Expected) -> ExpectedQuery:
    return expected.queries["q"]


def told(rows: Counter[Any]) -> list[tuple[Any, ...]]:
    """Rows as (window_start, window_end, value, ...) in order, each as often as it must appear."""
    flat = [(row[0], row[1], *thaw(row).values()) for row in rows.elements()]
    return sorted(flat, key=repr if any(None in f for f in flat) else None)


def rows(asked_query: Query, *lines: Line, **kwargs: Any) -> list[tuple[Any, ...]]:
    return told(asked(run(asked_query, *lines, **kwargs)).rows)


def deliveries(asked_query: Query, *lines: Line, **kwargs: Any) -> list[tuple[Any, ...]]:
    """Of a query that folds: (window_start, window_end, revision, value, ...) in order, values as selected."""
    expected = asked(run(asked_query, *lines, **kwargs))
    assert expected.folds
    assert not expected.optional
    rows = [(row[0], row[1], thaw(row)) for row in expected.rows.elements()]
    flat = [(s, e, row["revision"], *(row[o.name] for o in asked_query.outputs)) for s, e, row in rows]
    return sorted(flat, key=lambda row: (row[:2], repr(row[3:4]), row[2]))
