"""docs/sql.md says what the code does: its examples parse, and its list of reasons is complete."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ajoin.sql import Reason
from optimizer.errors import SqlError
from optimizer.model.aggregates import BUILT_IN
from optimizer.model.query import Query
from optimizer.model.types import ColumnType
from optimizer.model.windows import (
    CountWindow,
    FixedWindow,
    PeriodicWindow,
    PunctuatedWindow,
    SessionWindow,
    Unwindowed,
)
from tests.ajoin.sql_support import WINDOW, fold, parse, select
from tests.builders import PAPER

TEXT = (Path(__file__).parents[2] / "docs" / "sql.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```sql\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("sql", EXAMPLES)
def test_example(sql: str) -> None:
    query = parse(sql)
    assert query.outputs and query.sql == sql.strip()
    assert len(query.equi) >= len(query.sources) - 1


def test_the_two_spellings_of_one_query_are_one_query() -> None:
    comma, join = (sql for sql in EXAMPLES if "photo" in sql and "HOPPING" in sql)
    assert replace(parse(comma), sql="") == replace(parse(join), sql="")


def test_every_aggregate_is_listed() -> None:
    table = TEXT.split("\n## Aggregates\n")[1].split("\n- NULL values")[0]
    called = set(re.findall(r"`([A-Z_]+)\b", table)) - {t.value for t in ColumnType}
    functions = {a.function for name in called for a in _call(name).aggregates}
    assert functions == set(BUILT_IN)


def _call(name: str) -> Query:
    given = {"ARG_MIN": "geo, vID", "ARG_MAX": "geo, vID", "MIN_BY": "geo, vID", "MAX_BY": "geo, vID"}
    arguments = given.get(name, "length, 0.5" if name in ("QUANTILE", "PERCENTILE_CONT") else "length")
    distinct = ", COUNT(DISTINCT length) AS d" if name == "COUNT" else ""
    return fold(f"{name}({arguments}){distinct}")


def test_every_kind_of_window_has_an_example() -> None:
    shown = {type(parse(sql).window) for sql in EXAMPLES}
    assert shown == {PeriodicWindow, FixedWindow, SessionWindow, CountWindow, PunctuatedWindow, Unwindowed}


def test_every_reason_is_listed_once() -> None:
    listed = re.findall(r"^\| `([A-Z_]+)` \|", TEXT, re.MULTILINE)
    assert listed == [reason.value for reason in Reason]


def test_the_streams_of_the_page_are_those_of_the_examples() -> None:
    for schema in PAPER.values():
        columns = ", ".join(f"{c.name} {c.type}" for c in schema.columns)
        assert f"`{columns}`" in TEXT


def test_the_quoted_error_is_real() -> None:
    with pytest.raises(SqlError) as caught:
        parse(f"SELECT V.lenght FROM V JOIN W USING (vID) {WINDOW}")
    assert str(caught.value) in TEXT


def test_an_unquoted_name_may_differ_in_case() -> None:
    assert select("A.VID").outputs == select("a.vID").outputs
