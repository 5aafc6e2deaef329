"""docs/sql.md says what the code does: its examples parse, and its list of reasons is complete."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ajoin.sql import Reason
from optimizer.errors import SqlError
from tests.ajoin.sql_support import WINDOW, parse, select
from tests.builders import PAPER

TEXT = (Path(__file__).parents[2] / "docs" / "sql.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```sql\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("sql", EXAMPLES)
def test_example(sql: str) -> None:
    query = parse(sql)
    assert query.equi and query.outputs and query.sql == sql.strip()


def test_the_two_spellings_of_one_query_are_one_query() -> None:
    comma, join = EXAMPLES[1:3]
    assert replace(parse(comma), sql="") == replace(parse(join), sql="")


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
