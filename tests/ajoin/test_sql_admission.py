"""What costs too much by its text alone is refused at creation, by the platform and by replay, and only there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ajoin.config import Settings
from ajoin.platform.catalog import Limits
from ajoin.sql import QueryLimits, admit
from ajoin.testing import LocalEngine
from optimizer.errors import SqlError
from runtime.api import QueryState
from tests.ajoin.sql_support import WINDOW, parse
from tests.ajoin.test_cli_replay import LINES, replay
from tests.ajoin.world import with_streams
from tests.builders import PAPER

FROM = "SELECT V.vID FROM V JOIN W ON V.vID = W.vID"
DEFAULTS = QueryLimits()
FINE = f"{FROM} WINDOW HOPPING (SIZE 1 DAY, ADVANCE BY 1 MS)"


def hopping(size: int, advance: int) -> str:
    return f"{FROM} WINDOW HOPPING (SIZE {size} MS, ADVANCE BY {advance} MS)"


def refused(sql: str, limits: QueryLimits = DEFAULTS) -> SqlError:
    with pytest.raises(SqlError) as caught:
        admit(sql, PAPER, limits)
    return caught.value


def test_windows_per_tuple_are_rounded_up() -> None:
    limits = QueryLimits(windows=3)
    for size, advance in ((3, 1), (30, 10), (29, 10), (1, 1), (5, 10)):
        assert admit(hopping(size, advance), PAPER, limits).window == parse(hopping(size, advance)).window
    for size, advance in ((4, 1), (31, 10)):
        assert refused(hopping(size, advance), limits).reason == "WINDOW_TOO_FINE"


def test_the_message_names_both_numbers_and_the_setting() -> None:
    error = refused(FINE)
    assert error.reason == "WINDOW_TOO_FINE"
    assert "SIZE 1 DAY, ADVANCE BY 1 MILLISECOND" in str(error)
    assert "86,400,000" in str(error) and "10,000" in str(error) and "max_windows" in str(error)


@pytest.mark.parametrize(
    ("condition", "limits", "reason", "setting"),
    [
        ("V.length IN (1, 2, NULL)", QueryLimits(in_values=2), "LIST_TOO_LONG", "max_in_values"),
        ("NOT (V.length = 1 OR V.length IN (1, 2, 3))", QueryLimits(in_values=2), "LIST_TOO_LONG", "max_in_values"),
        ("V.geo LIKE 'abc%'", QueryLimits(like_characters=3), "PATTERN_TOO_LONG", "max_like_characters"),
        ("REGEXP_LIKE(V.geo, 'a+b$')", QueryLimits(like_characters=3), "PATTERN_TOO_LONG", "max_like_characters"),
        ("CONCAT(V.geo, 'ab') = 'c'", QueryLimits(text_bytes=1001), "TEXT_TOO_LONG", "max_text_bytes"),
        ("V.length + W.usrID < 5", QueryLimits(expression_nodes=7), "SQL_TOO_COMPLEX", "max_expression_nodes"),
    ],
)
def test_prices_of_expressions(condition: str, limits: QueryLimits, reason: str, setting: str) -> None:
    sql = f"{FROM} WHERE {condition} {WINDOW}"
    error = refused(sql, limits)
    assert error.reason == reason and setting in str(error)
    (field,) = (name for name in QueryLimits.__dataclass_fields__ if f"max_{name}" == setting)
    assert admit(sql, PAPER, replace(limits, **{field: getattr(limits, field) + 1})) == parse(sql)


@pytest.mark.parametrize(
    ("sql", "field", "found", "reason"),
    [
        ("SELECT COUNT(*) AS a, SUM(length) AS b, COUNT(*) + 1 AS c FROM V", "aggregates", 2, "SQL_TOO_COMPLEX"),
        ("SELECT COUNT(*) FROM V GROUP BY geo, lang, window_start", "groups", 2, "SQL_TOO_COMPLEX"),
        ("SELECT COUNT(*) FROM V GROUP BY geo HAVING COUNT(*) > 5", "expression_nodes", 5, "SQL_TOO_COMPLEX"),
    ],
)
def test_prices_of_aggregation(sql: str, field: str, found: int, reason: str) -> None:
    sql = f"{sql} {WINDOW}"
    error = refused(sql, replace(DEFAULTS, **{field: found - 1}))
    assert error.reason == reason and f"max_{field}" in str(error) and f" {found} " in str(error)
    assert admit(sql, PAPER, replace(DEFAULTS, **{field: found})) == parse(sql)


def test_prices_of_windows_over_one_stream() -> None:
    large = "SELECT COUNT(*) FROM V WINDOW COUNT (SIZE 1000001 ADVANCE BY 1000)"
    error = refused(large)
    assert error.reason == "WINDOW_TOO_LARGE" and "1,000,001" in str(error) and "max_count_window" in str(error)
    assert admit(large, PAPER, replace(DEFAULTS, count_window=1_000_001)) == parse(large)
    assert refused("SELECT COUNT(*) FROM V WINDOW COUNT (SIZE 1000000 ADVANCE BY 1)").reason == "WINDOW_TOO_FINE"
    assert refused("SELECT vID FROM V WINDOW HOPPING (SIZE 1 DAY, ADVANCE BY 1 MS)").reason == "WINDOW_TOO_FINE"
    edges = "SELECT COUNT(*) FROM V WINDOW PUNCTUATED BY (length IN (1, 2, 3))"
    assert refused(edges, QueryLimits(in_values=2)).reason == "LIST_TOO_LONG"


def test_nested_replacements_multiply() -> None:
    text = "V.geo"
    for _ in range(4):
        text = f"REPLACE({text}, 'a', 'aaaaaaaaaa')"
    error = refused(f"{FROM} WHERE LENGTH({text}) > 5 {WINDOW}")
    assert error.reason == "TEXT_TOO_LONG" and "10,000,000 bytes" in str(error) and "max_text_bytes" in str(error)
    admit(f"{FROM} WHERE LENGTH({text.replace('aaaaaaaaaa', 'b')}) > 5 {WINDOW}", PAPER, DEFAULTS)


def test_every_limit_is_a_setting_with_the_same_default() -> None:
    assert Settings().limits == Limits(ahead_ms=int(Settings().max_ahead * 1000))
    chosen = {f"max_{name}": 100 + i for i, name in enumerate(QueryLimits.__dataclass_fields__)}
    assert Settings(**chosen).limits.query == QueryLimits(*chosen.values())


def test_the_platform_refuses_it_and_goes_on(tmp_path: Path) -> None:
    with with_streams(tmp_path / "state") as world:
        with pytest.raises(SqlError) as caught:
            world.client.create_query(FINE, id="fine")
        assert caught.value.reason == "WINDOW_TOO_FINE" and "max_windows" in str(caught.value)
        with pytest.raises(SqlError):
            world.client.explain(sql=FINE)
        world.client.create_query(hopping(10_000, 1), id="just")
        assert [q.id for q in world.platform.queries()] == ["just"]


def test_replay_refuses_it_unless_told_otherwise(tmp_path: Path) -> None:
    sql = "SELECT V.vID FROM V JOIN W ON V.vID = W.vID WINDOW HOPPING (SIZE 11 SECONDS, ADVANCE BY 1 MS)"
    lines = [*LINES[:2], {"create": "q", "sql": sql}, {"epoch": True}]
    answer = replay(tmp_path, lines=lines)
    assert answer.exit_code != 0 and "WINDOW_TOO_FINE" in answer.stderr
    assert replay(tmp_path, "--set", "max_windows=11000", lines=lines).exit_code == 0


def test_the_value_itself_knows_no_limit(tmp_path: Path) -> None:
    """An engine in a test's hands takes any query, and so does one that opens a log with an older limit."""
    with LocalEngine(tmp_path / "state") as engine:
        for name in "VW":
            engine.create_stream(name, columns={"vID": "BIGINT", "ts": "TIMESTAMP"})
        engine.create_query(FINE, id="fine")
        engine.restart()
        assert engine.engine.query("fine").state == QueryState.RUNNING
