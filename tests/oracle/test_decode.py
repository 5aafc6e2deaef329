"""What is a tuple and what is a dead letter; files bring the same tuples as lines."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from optimizer.model.types import ColumnType
from tests.oracle import ExpectedStream, run_oracle
from tests.oracle.cases import COLUMNS, SCHEMAS, a, asked, b, query, run, told
from tests.oracle.decode import DeadLetter, decode, decode_value


@pytest.mark.parametrize(
    ("type_", "value", "decoded"),
    [
        ("BIGINT", 3, 3),
        ("BIGINT", 3.0, 3),
        ("BIGINT", 2**63 - 1, 2**63 - 1),
        ("BIGINT", -(2**63), -(2**63)),
        ("INT", -(2**31), -(2**31)),
        ("TIMESTAMP", 1e3, 1000),
        ("DOUBLE", 3, 3.0),
        ("DOUBLE", -0.5, -0.5),
        ("STRING", "", ""),
        ("BOOLEAN", False, False),
    ],
)
def test_values_that_fit(type_, value, decoded):
    result = decode_value(value, ColumnType(type_))
    assert result == decoded
    assert type(result) is type(decoded)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("BIGINT", 3.5),
        ("BIGINT", 2**63),
        ("BIGINT", 2.0**63),
        ("BIGINT", True),
        ("BIGINT", "3"),
        ("BIGINT", math.inf),
        ("BIGINT", math.nan),
        ("INT", 2**31),
        ("TIMESTAMP", "1970-01-01"),
        ("DOUBLE", False),
        ("DOUBLE", "1"),
        ("DOUBLE", 10**400),
        ("STRING", 1),
        ("BOOLEAN", 1),
        ("STRING", ["x"]),
    ],
)
def test_values_that_do_not(type_, value):
    with pytest.raises(DeadLetter):
        decode_value(value, ColumnType(type_))


def test_missing_and_unknown_fields():
    assert decode({"ts": 1, "other": [2]}, SCHEMAS["A"]) == {
        "ts": 1,
        "k": None,
        "i": None,
        "d": None,
        "s": None,
    }
    for row in ({"k": 1}, {"ts": None}, [1], "text", None):
        with pytest.raises(DeadLetter):
            decode(row, SCHEMAS["A"])


def test_dead_letters_are_counted_and_harm_nobody():
    # The broken a99 must not move the watermark: a2 of the next epoch is in time.
    expected = run(query(10), a(1), a(99, k="broken"), a(None), b(5), {"epoch": True}, a(2))
    assert expected.streams["A"] == ExpectedStream(tuples=2, late_dropped=0, dead_letter=2)
    assert told(asked(expected).rows) == [(0, 10, 1, 5), (0, 10, 2, 5)]


def test_files_bring_the_same_tuples(tmp_path):
    micros = pa.array([1000, None, 3999], pa.int64())
    table = pa.table({"ts": micros.cast(pa.timestamp("us")), "k": pa.array([1, 1, 2], pa.int32())})
    pq.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_text('{"ts": 4, "k": 1}\nnot json\n\n' + json.dumps({"ts": 5, "k": 2}))
    scenario = [
        *({"stream": name, "schema": COLUMNS, "time": "ts"} for name in ("A", "B")),
        {"create": "q", "sql": "q"},
        {"events": "A", "file": "a.parquet"},
        {"events": "B", "file": "b.jsonl"},
    ]
    expected = run_oracle(scenario, tmp_path, parse=lambda sql, schemas: query(10))
    assert expected.streams == {"A": ExpectedStream(2, 0, 1), "B": ExpectedStream(2, 0, 1)}
    assert told(asked(expected).rows) == [(0, 10, 1, 4), (0, 10, 3, 5)]
