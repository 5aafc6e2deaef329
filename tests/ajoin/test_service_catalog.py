"""What is refused at the door, and what is not."""

from __future__ import annotations

import pytest

from ajoin.errors import InvalidRequest, ResourceExhausted
from ajoin.platform.catalog import Limits, check_name, check_room, check_stream, column_type
from optimizer.model.types import Column, ColumnType, StreamSchema

TS = Column("ts", ColumnType.TIMESTAMP)
LIMITS = Limits(columns=3)


def schema(*columns: Column, name: str = "S", time: str = "ts", **settings) -> StreamSchema:
    return StreamSchema(name, columns or (TS,), time, **settings)


@pytest.mark.parametrize(
    "name", ["V", "q-1", "ünïcode", "名前", 'with "quotes"', "it's", "a b", "x" * 128, "a.b", "..."]
)
def test_good_names(name):
    check_name("stream", name)


@pytest.mark.parametrize("name", ["", " ", "x" * 129, "a/b", "a\nb", "a\0b", "\x1b[31m", ".", "..", "\u2028"])
def test_bad_names(name):
    with pytest.raises(InvalidRequest) as refused:
        check_name("stream", name)
    assert refused.value.reason == "INVALID_NAME" and refused.value.hint
    assert refused.value.message.isprintable()


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (StreamSchema("S", (), "ts"), "NO_COLUMNS"),
        (schema(TS, *(Column(f"c{i}", ColumnType.INT) for i in range(3))), "TOO_MANY_COLUMNS"),
        (schema(TS, Column("a", ColumnType.INT), Column("a", ColumnType.INT)), "DUPLICATE_COLUMN"),
        (schema(TS, Column("a/b", ColumnType.INT)), "INVALID_NAME"),
        (schema(time="nothing"), "TIME_COLUMN_MISSING"),
        (schema(time=""), "TIME_COLUMN_MISSING"),
        (schema(Column("ts", ColumnType.STRING)), "TIME_COLUMN_TYPE"),
        (schema(watermark_delay_ms=-1), "NEGATIVE_DELAY"),
        (schema(allowed_lateness_ms=-1), "NEGATIVE_DELAY"),
        (schema(idle_timeout_ms=-1), "NEGATIVE_DELAY"),
        (schema(name="a/b"), "INVALID_NAME"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_streams(bad, reason):
    with pytest.raises(InvalidRequest) as refused:
        check_stream(bad, LIMITS)
    assert refused.value.reason == reason and refused.value.hint


def test_good_streams():
    check_stream(schema(), LIMITS)
    check_stream(schema(Column("t", ColumnType.BIGINT), time="t", idle_timeout_ms=0), LIMITS)
    wide = schema(TS, *(Column(f"c{i}", ColumnType.DOUBLE) for i in range(1999)))
    check_stream(wide, Limits())


def test_types_by_name():
    assert column_type("bigint") == ColumnType.BIGINT
    with pytest.raises(InvalidRequest) as refused:
        column_type("DECIMAL")
    assert refused.value.reason == "UNKNOWN_COLUMN_TYPE" and "TIMESTAMP" in refused.value.hint


def test_room():
    check_room("queries", 1, 1, 2)
    with pytest.raises(ResourceExhausted) as refused:
        check_room("queries", 2, 1, 2)
    assert refused.value.reason == "TOO_MANY_QUERIES"
