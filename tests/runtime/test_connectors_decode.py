"""Rows and tables become tuples or dead letters, never both, never nothing."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.connectors.base import arrow_schema
from runtime.connectors.decode import conform_table, decode_rows

SCHEMA = StreamSchema(
    "S",
    (
        Column("ts", ColumnType.TIMESTAMP),
        Column("big", ColumnType.BIGINT),
        Column("small", ColumnType.INT),
        Column("real", ColumnType.DOUBLE),
        Column("text", ColumnType.STRING),
        Column("flag", ColumnType.BOOLEAN),
    ),
    time="ts",
)


def one(name: str, type: ColumnType) -> StreamSchema:
    return StreamSchema("S", (Column(name, type),), time=name)


def plain(table: pa.Table) -> list[dict]:
    """Rows with TIMESTAMP as integer milliseconds."""
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in table.columns]
    return pa.table(dict(zip(table.column_names, columns, strict=True))).to_pylist()


GOOD = {"ts": 1000, "big": 2**62, "small": -5, "real": 1.5, "text": "zürich", "flag": True}


def test_clean_rows_keep_their_order_values_and_arrow_types():
    loaded = decode_rows([GOOD, {}, {"ts": 2000, "unknown": [1, 2]}], SCHEMA, "here:")
    assert loaded.dead == []
    assert loaded.table.schema == arrow_schema(SCHEMA)
    empty = dict.fromkeys(GOOD)
    assert plain(loaded.table) == [GOOD, empty, empty | {"ts": 2000}]


def test_no_rows():
    loaded = decode_rows([], SCHEMA, "x")
    assert loaded.table.num_rows == 0
    assert loaded.table.schema == arrow_schema(SCHEMA)


@pytest.mark.parametrize(
    ("type", "value", "expected"),
    [
        ("BIGINT", 3.0, 3),
        ("BIGINT", -(2**63), -(2**63)),
        ("BIGINT", 1e18, 10**18),
        ("BIGINT", np.int64(7), 7),
        ("INT", 2**31 - 1, 2**31 - 1),
        ("INT", -0.0, 0),
        ("TIMESTAMP", 5.0, 5),
        ("TIMESTAMP", -1, -1),
        ("DOUBLE", 3, 3.0),
        ("DOUBLE", 2**60 + 1, float(2**60 + 1)),
        ("DOUBLE", math.inf, math.inf),
        ("STRING", "", ""),
        ("STRING", "null", "null"),
        ("BOOLEAN", False, False),
    ],
)
def test_accepted_values(type, value, expected):
    loaded = decode_rows([{"x": value}, {"x": None}], one("x", ColumnType(type)), "")
    assert loaded.dead == []
    assert plain(loaded.table) == [{"x": expected}, {"x": None}]


@pytest.mark.parametrize(
    ("type", "value", "said"),
    [
        ("BIGINT", True, "true"),
        ("BIGINT", "7", '"7"'),
        ("BIGINT", 3.5, "3.5 (not a whole number)"),
        ("BIGINT", 2**63, "outside"),
        ("BIGINT", 9.3e18, "outside"),
        ("BIGINT", math.nan, "not a whole number"),
        ("BIGINT", -math.inf, "not a whole number"),
        ("BIGINT", [1], "a list"),
        ("INT", 2**31, "outside"),
        ("INT", {}, "an object"),
        ("TIMESTAMP", "2024-01-01", "2024-01-01"),
        ("TIMESTAMP", False, "false"),
        ("TIMESTAMP", datetime(2024, 1, 1), "datetime"),
        ("DOUBLE", True, "true"),
        ("DOUBLE", "1.5", "1.5"),
        ("DOUBLE", 10**400, "too large"),
        ("STRING", 5, "5"),
        ("STRING", b"raw", "bytes"),
        ("STRING", "\ud800", "not valid Unicode"),
        ("BOOLEAN", 1, "1"),
        ("BOOLEAN", "true", "true"),
    ],
)
def test_refused_values_name_column_type_and_value_and_spare_their_neighbours(type, value, said):
    schema = StreamSchema("S", (Column("x", ColumnType(type)), Column("n", ColumnType.BIGINT)), time="n")
    loaded = decode_rows([{"n": 1}, {"x": value, "n": 2}, {"n": 3}], schema, "row ")
    assert [r["n"] for r in plain(loaded.table)] == [1, 3]
    [dead] = loaded.dead
    assert dead.place == "row 2"
    assert "column x" in dead.reason
    assert f"expected {type}" in dead.reason
    assert said in dead.reason
    dead.text.encode("utf-8")


@pytest.mark.parametrize("row", [None, 1, "text", [1, 2], True])
def test_rows_that_are_no_objects(row):
    loaded = decode_rows([GOOD, row, GOOD], SCHEMA, "f:")
    assert loaded.table.num_rows == 2
    assert [(d.place, "expected an object" in d.reason, d.text) for d in loaded.dead] == [
        ("f:2", True, json.dumps(row))
    ]


def test_a_row_with_two_bad_values_is_one_dead_letter_and_long_text_is_cut():
    loaded = decode_rows([{"big": "x" * 10_000, "small": "y"}], SCHEMA, "", row_numbers=[17])
    [dead] = loaded.dead
    assert dead.place == "17"
    assert "column big" in dead.reason
    assert len(dead.text) == 200


json_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(st.characters(codec=None), max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
rows_strategy = st.lists(st.one_of(json_values, st.dictionaries(st.sampled_from(list(GOOD)), json_values)), max_size=12)


@given(rows_strategy)
@settings(max_examples=150, deadline=None)
def test_each_row_is_judged_alone_and_ends_in_exactly_one_place(rows):
    together = decode_rows(rows, SCHEMA, "")
    apart = [decode_rows([row], SCHEMA, "", row_numbers=[i + 1]) for i, row in enumerate(rows)]
    assert together.table.num_rows + len(together.dead) == len(rows)
    assert together.dead == [d for a in apart for d in a.dead]
    alone = pa.concat_tables([arrow_schema(SCHEMA).empty_table(), *(a.table for a in apart)])
    assert repr(plain(together.table)) == repr(plain(alone))


# -- tables


def test_conform_adds_missing_columns_drops_extra_ones_and_orders_them():
    table = pa.table({"extra": ["a", "b"], "big": pa.array([1, 2], pa.uint8()), "ts": pa.array([5, None], pa.int32())})
    loaded = conform_table(table, SCHEMA, "t")
    assert loaded.dead == []
    assert loaded.table.schema == arrow_schema(SCHEMA)
    assert [(r["ts"], r["big"], r["text"]) for r in plain(loaded.table)] == [(5, 1, None), (None, 2, None)]


@pytest.mark.parametrize(
    ("type", "array", "expected"),
    [
        ("BIGINT", pa.array([2**63, 5], pa.uint64()), [None, 5]),
        ("BIGINT", pa.array([3.0, 3.5, math.nan]), [3, None, None]),
        ("BIGINT", pa.array([3.0], pa.float32()), [3]),
        ("BIGINT", pa.array([Decimal("4.00"), Decimal("4.50")]), [4, None]),
        ("INT", pa.array([2**31, -(2**31)], pa.int64()), [None, -(2**31)]),
        ("INT", pa.array([None, 3], pa.int8()), [..., 3]),
        ("DOUBLE", pa.array([2**60 + 1, 2], pa.int64()), [float(2**60 + 1), 2.0]),
        ("DOUBLE", pa.array([Decimal("1.25")]), [1.25]),
        ("TIMESTAMP", pa.array([1, -1], pa.timestamp("s")), [1000, -1000]),
        ("TIMESTAMP", pa.array([2**62], pa.timestamp("s")), [None]),
        ("TIMESTAMP", pa.array([1999, -1], pa.timestamp("us")), [1, -1]),
        ("TIMESTAMP", pa.array([1_999_999, -1], pa.timestamp("ns")), [1, -1]),
        ("TIMESTAMP", pa.array([7], pa.timestamp("ms", tz="Europe/Berlin")), [7]),
        (
            "TIMESTAMP",
            pa.array([datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))], pa.timestamp("us", tz="UTC")),
            [0],
        ),
        ("TIMESTAMP", pa.array([12, None], pa.int16()), [12, ...]),
        ("TIMESTAMP", pa.array([12.0, 12.5]), [12, None]),
        ("STRING", pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        ("STRING", pa.array(["a"], pa.large_string()), ["a"]),
        ("STRING", pa.array(["a"], pa.string_view()), ["a"]),
        ("BOOLEAN", pa.array([True, None]), [True, ...]),
        ("BIGINT", pa.nulls(2), [..., ...]),
        ("STRING", pa.array([b"ok", b"\xff"]).view(pa.string()), ["ok", None]),
    ],
)
def test_conform_values(type, array, expected):
    """None marks a dead letter, ... a NULL."""
    loaded = conform_table(pa.table({"x": array}), one("x", ColumnType(type)), "t")
    assert [r["x"] for r in plain(loaded.table)] == [None if e is ... else e for e in expected if e is not None]
    assert [d.place for d in loaded.dead] == [f"t row {i + 1}" for i, e in enumerate(expected) if e is None]
    assert all("column x" in d.reason for d in loaded.dead)


@pytest.mark.parametrize(
    ("type", "array"),
    [
        ("BIGINT", pa.array(["1", "2"])),
        ("BIGINT", pa.array([True, False])),
        ("BIGINT", pa.array([[1], [2]])),
        ("DOUBLE", pa.array(["1", "2"])),
        ("TIMESTAMP", pa.array([date(2024, 1, 1)] * 2)),
        ("TIMESTAMP", pa.array(["1", "2"])),
        ("STRING", pa.array([1, 2])),
        ("STRING", pa.array([b"x", b"y"])),
        ("BOOLEAN", pa.array([1, 0])),
        ("STRING", pa.array([{"a": 1}, {"a": 2}])),
    ],
)
def test_a_column_of_an_impossible_type_makes_every_row_a_dead_letter(type, array):
    loaded = conform_table(pa.table({"x": array}), one("x", ColumnType(type)), "t")
    assert loaded.table.num_rows == 0
    assert loaded.table.schema == arrow_schema(one("x", ColumnType(type)))
    assert [d.place for d in loaded.dead] == ["t row 1", "t row 2"]
    assert all(f"expected {type}" in d.reason and str(array.type) in d.reason for d in loaded.dead)


def test_a_column_that_appears_twice_is_ambiguous():
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    loaded = conform_table(table, one("x", ColumnType.BIGINT), "t")
    assert loaded.table.num_rows == 0
    assert "appears 2 times" in loaded.dead[0].reason


def test_dead_rows_are_shown_even_when_python_cannot_hold_their_values():
    far = pa.array([2**62], pa.timestamp("s"))
    table = pa.table({"ts": far, "text": pa.array([b"\xff"]).view(pa.string())})
    [dead] = conform_table(table, SCHEMA, "t").dead
    assert str(2**62) in dead.text


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=20))
@settings(max_examples=50, deadline=None)
def test_tables_and_rows_follow_the_same_rules(values):
    schema = StreamSchema("S", (Column("i", ColumnType.INT), Column("b", ColumnType.BIGINT)), time="b")
    columns = {"i": pa.array(values, pa.int64()), "b": pa.array(values, pa.int64())}
    by_table = conform_table(pa.table(columns), schema, "")
    by_rows = decode_rows([{"i": v, "b": v} for v in values], schema, " row ")
    assert by_table.table.equals(by_rows.table)
    assert by_table.dead == by_rows.dead
