"""Random expressions, read and computed by us and by DuckDB from the same text (see duck.py for the differences)."""

from __future__ import annotations

import math
import re
from random import Random

import duckdb
import pyarrow as pa
import pytest

from ajoin.sql import parse_query
from optimizer.model.functions import FUNCTIONS
from optimizer.model.types import Column, ColumnType, StreamSchema
from optimizer.model.types import ColumnType as T
from runtime.columns.column import ColumnData, from_arrow
from runtime.columns.evaluate import evaluate
from runtime.connectors.base import ARROW_TYPES
from tests.crosscheck.duck import connect, create_table
from tests.crosscheck.texts import TEXTS, Expressions
from tests.runtime.expressions import as_values

COLUMNS = {
    **dict.fromkeys(("i", "j", "int_edge"), T.INT),
    **dict.fromkeys(("k", "big_edge"), T.BIGINT),
    **dict.fromkeys(("d", "e", "double_edge"), T.DOUBLE),
    **dict.fromkeys(("s", "t"), T.STRING),
    **dict.fromkeys(("b", "c"), T.BOOLEAN),
    **dict.fromkeys(("u", "w"), T.TIMESTAMP),
}
VALUES = {
    T.INT: range(-6, 7),
    T.BIGINT: (*range(-6, 7), 1 << 32, -(1 << 32)),
    T.DOUBLE: (0.0, -0.0, 0.5, 1.5, -2.0, 3.25, 5.0, 1e300, math.inf, -math.inf, math.nan),
    T.STRING: TEXTS,
    T.BOOLEAN: (True, False),
    T.TIMESTAMP: (0, 10, -1000, 60_000, 1_706_745_599_999, 7),
}
AT_THE_EDGE = {
    "int_edge": (0, -(1 << 31), (1 << 31) - 1, 3),
    "big_edge": (0, -(1 << 63), (1 << 63) - 1, 1 << 53, (1 << 53) + 1, (1 << 31) - 1, 3),
    "double_edge": (0.0, float(1 << 53), float(1 << 63), -float(1 << 31), math.nan, math.inf, 3.0),
}
SCHEMAS = {
    "A": StreamSchema("A", (*(Column(c, t) for c, t in COLUMNS.items()), Column("ts", ColumnType.TIMESTAMP)), "ts"),
    "B": StreamSchema("B", (Column("other", ColumnType.INT), Column("ts", ColumnType.TIMESTAMP)), "ts"),
}
ROWS = 48
EXPRESSIONS = 260


def random_rows(rng):
    def value(column, type):
        return None if rng.random() < 0.12 else rng.choice(AT_THE_EDGE.get(column, VALUES[type]))

    return [{c: value(c, t) for c, t in COLUMNS.items()} for _ in range(ROWS)]


def ours(text, rows):
    query = parse_query(f"SELECT {text} AS y FROM A JOIN B ON A.j = B.other WINDOW TUMBLING (SIZE 1 SECOND)", SCHEMAS)
    data = {c: from_arrow(pa.array([r[c] for r in rows], ARROW_TYPES[t]), t) for c, t in COLUMNS.items()}
    result = evaluate(query.outputs[0].expr, lambda ref: data[ref.column], len(rows))
    assert isinstance(result, ColumnData)
    return as_values(result)


def equal(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return repr(a) == repr(b)
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("seed", range(8))
def test_both_compute_the_same_values(seed):
    rng = Random(seed)
    rows, duck = random_rows(rng), connect()
    create_table(duck, "A", COLUMNS, rows)
    draw, overflows = Expressions(rng, COLUMNS, frozenset(AT_THE_EDGE)), 0
    for _ in range(EXPRESSIONS):
        text = draw.any(3) if rng.random() < 0.4 else draw.condition(3)
        try:
            theirs = [value for (value,) in duck.execute(f"SELECT {text.theirs} FROM A").fetchall()]
        except duckdb.OutOfRangeException:
            overflows += 1
            continue
        wrong = [(r, a, b) for r, a, b in zip(rows, ours(text.ours, rows), theirs, strict=True) if not equal(a, b)]
        assert not wrong, f"{text.ours}\nDuckDB: {text.theirs}\n(row, ours, theirs): {wrong[:2]}"
    assert overflows < EXPRESSIONS // 20


def test_every_function_is_drawn():
    draw = Expressions(Random(0), COLUMNS, frozenset(AT_THE_EDGE))
    drawn = " ".join(draw.any(3).ours for _ in range(4_000))
    assert not [name for name in (*FUNCTIONS, "CAST", "CASE") if not re.search(rf"\b{name}\b", drawn)]
