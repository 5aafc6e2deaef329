"""The aggregation experiments: the platform's worker makes the rows that the implementation in NumPy expects, and so
does SQL in the words of Flink."""

from __future__ import annotations

import re

import pytest

from ajoin.sql import parse_query
from experiments.aggregations import workload
from experiments.aggregations.ajoin_worker import SCHEMA, run
from experiments.aggregations.data import expected, make, until_ms
from optimizer.model.types import Column, ColumnType, StreamSchema

DENSITY = 500
QUERIES = {
    "A1": workload.grouped(),
    "A2": workload.windows(20),
    "A3": workload.long_windows(),
    "A6": workload.sessions(),
    "A7": workload.conditions(15),
}


@pytest.mark.parametrize("name", QUERIES)
def test_rows_are_those_expected(name, tmp_path, monkeypatch):
    monkeypatch.setenv("AJOIN_BENCH_EXECUTOR", "local")
    data = make(tmp_path / "data", 1_000, 12, DENSITY)
    until = until_ms(data, DENSITY)
    queries = QUERIES[name]
    asked = {"data": str(data.folder), "queries": [q.to_json() for q in queries], "count": True, "until": until}
    found = run(asked)["rows"]
    right = expected(data, queries, until)
    assert found == right and all(rows for rows, _ in right.values())


@pytest.mark.parametrize("query", [q for queries in QUERIES.values() for q in queries[:3]], ids=str)
def test_both_texts_ask_for_the_same(query):
    """Flink's event time is a computed column; here it is the stream's own."""
    columns = tuple(Column("rt" if c.name == "ts" else c.name, c.type) for c in SCHEMA.columns)
    typed = tuple(Column(c.name, ColumnType.TIMESTAMP) if c.name == "rt" else c for c in columns)
    theirs = parse_query(re.sub(r"SECOND\(\d+\)", "SECOND", query.flink()), {"S": StreamSchema("S", typed, "rt")})
    ours = parse_query(query.ajoin(), {"S": SCHEMA})
    assert (theirs.window, theirs.groups, theirs.selections) == (ours.window, ours.groups, ours.selections)
    assert [o.name for o in theirs.outputs[2:]] == [o.name for o in ours.outputs[1:]]
