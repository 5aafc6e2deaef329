"""Names: streams, aliases, columns and output columns, in any case, quoted, Unicode, or wrong."""

import pytest

from optimizer.model.query import Source
from tests.ajoin.sql_support import WINDOW, parse, refused, select, show
from tests.builders import PAPER, stream

ODD = {
    s.name: s
    for s in (
        stream("my stream", **{"my col": "BIGINT", "a.b": "INT", "größe": "INT", "Name": "STRING", "NAME": "INT"}),
        stream("Ströme", **{"my col": "BIGINT", "window_start": "BIGINT", "Ключ": "INT", "select": "INT"}),
        stream("tick", time="ts", left="BIGINT", order="BIGINT", end="INT", window="INT"),
        stream("Tick", time="ts", left="BIGINT"),
        stream("TAIL", time="ts", left="BIGINT"),
    )
}


def outputs(items: str) -> list[tuple[str, str]]:
    return [(o.name, show(o.expr)) for o in select(items).outputs]


def test_star_names_columns_by_alias_in_from_and_schema_order() -> None:
    query = parse(f"SELECT * FROM R AS r, W WHERE r.usrID = W.usrID {WINDOW}")
    assert [o.name for o in query.outputs] == [
        "r.usrID",
        "r.reaction",
        "r.time",
        "W.usrID",
        "W.vID",
        "W.duration",
        "W.geo",
        "W.time",
    ]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("a.vID", [("vID", "a.vID")]),
        ("a.vID AS v, b.vID", [("v", "a.vID"), ("vID", "b.vID")]),
        ("length", [("length", "a.length")]),
        ("LENGTH, B.DURATION", [("length", "a.length"), ("duration", "b.duration")]),
        ('"length" AS "an Ünïcode näme"', [("an Ünïcode näme", "a.length")]),
        ("a.time, b.time AS t2", [("time", "a.time"), ("t2", "b.time")]),
        ("window_start, Window_End AS e", [("window_start", "window_start"), ("e", "window_end")]),
        ("WINDOW_START", [("window_start", "window_start")]),
        ("a.window_start", [("window_start", "window_start")]),
        ("b.*, a.geo", [(f"b.{c.name}", f"b.{c.name}") for c in PAPER["W"].columns] + [("geo", "a.geo")]),
        ("a.length AS order_, a.geo AS count", [("order_", "a.length"), ("count", "a.geo")]),
    ],
)
def test_outputs(items: str, expected: list[tuple[str, str]]) -> None:
    assert outputs(items) == expected


def test_quoted_and_unicode_names() -> None:
    query = parse(
        f"""SELECT m.größe, "a.b" AS "a.b", m."Name" AS n1, m.NAME AS n2, s.Ключ, s."select"
            FROM "my stream" m JOIN Ströme s ON m."my col" = s."my col" WHERE s.КЛЮЧ > 1 {WINDOW}""",
        ODD,
    )
    assert query.sources == (Source("m", "my stream"), Source("s", "Ströme"))
    assert [(o.name, show(o.expr)) for o in query.outputs] == [
        ("größe", "m.größe"),
        ("a.b", "m.a.b"),
        ("n1", "m.Name"),
        ("n2", "m.NAME"),
        ("Ключ", "s.Ключ"),
        ("select", "s.select"),
    ]
    assert [show(e) for _, e in query.selections] == ["(s.Ключ > 1:INT)"]


def test_a_stream_name_without_alias_may_be_quoted_too() -> None:
    query = parse(f"""SELECT "my stream"."my col" FROM "my stream" JOIN "Ströme" USING ("my col") {WINDOW}""", ODD)
    assert query.sources == (Source("my stream", "my stream"), Source("Ströme", "Ströme"))


def test_keywords_are_fine_as_column_names() -> None:
    query = parse(f"SELECT a.left, a.order, a.end, a.window FROM tick a JOIN TAIL b ON a.left = b.left {WINDOW}", ODD)
    assert [o.name for o in query.outputs] == ["left", "order", "end", "window"]


def test_a_column_called_like_a_window_bound() -> None:
    def shown(items: str) -> list[str]:
        sql = f'SELECT {items} FROM "my stream" m JOIN "Ströme" s USING ("my col") {WINDOW}'
        return [show(o.expr) for o in parse(sql, ODD).outputs]

    assert shown("window_start") == ["window_start"]
    assert shown("s.window_start AS x, m.window_start") == ["s.window_start", "window_start"]
    assert "s.window_start" in shown("*")


def test_the_exact_name_wins_and_case_alone_decides_only_when_unique() -> None:
    joined = "tick JOIN Tick ON tick.left = Tick.left JOIN tail ON tail.left = tick.left"
    query = parse(f"SELECT 1 AS x FROM {joined} {WINDOW}", ODD)
    assert query.sources == (Source("tick", "tick"), Source("Tick", "Tick"), Source("tail", "TAIL"))
    refused(f"SELECT * FROM ^TICK a, TAIL b {WINDOW}", "AMBIGUOUS_NAME", "TICK", ODD)
    refused(f"SELECT * FROM tick, Tick WHERE ^TICK.left = 1 {WINDOW}", "AMBIGUOUS_NAME", "TICK", ODD)
    refused(f'SELECT m.^nAmE FROM "my stream" m, TAIL b {WINDOW}', "AMBIGUOUS_NAME", "nAmE", ODD)
    refused(f'SELECT * FROM ^"tail" a, tick b {WINDOW}', "UNKNOWN_STREAM", '"tail"', ODD)
    refused(f'SELECT a.^"LENGTH" FROM V a, W b {WINDOW}', "UNKNOWN_COLUMN", '"LENGTH"')
    refused(f'SELECT ^"A".length FROM V a, W b {WINDOW}', "UNKNOWN_SOURCE", '"A"')


@pytest.mark.parametrize(
    ("statement", "reason", "token", "say"),
    [
        ("SELECT * FROM ^X, W", "UNKNOWN_STREAM", "X", "there are C, R, V, W"),
        ("SELECT * FROM V a, W ^a", "DUPLICATE_ALIAS", "a", "W AS a2"),
        ("SELECT * FROM V, ^V", "DUPLICATE_ALIAS", "V", "V AS V2"),
        ("SELECT ^x.vID FROM V a, W b", "UNKNOWN_SOURCE", "x", "there are a, b"),
        ("SELECT ^V.vID FROM V a, W b", "UNKNOWN_SOURCE", "V", "alias"),
        ("SELECT ^x.* FROM V a, W b", "UNKNOWN_SOURCE", "x", "there are a, b"),
        ("SELECT a.^lenght FROM V a, W b", "UNKNOWN_COLUMN", "lenght", "did you mean length"),
        ("SELECT ^duratoin FROM V a, W b", "UNKNOWN_COLUMN", "duratoin", "did you mean duration?"),
        ("SELECT a.^zzz FROM V a, W b", "UNKNOWN_COLUMN", "zzz", "there are vID, length, geo, lang, time"),
        ("SELECT ^usr_id FROM V a, W b", "UNKNOWN_COLUMN", "usr_id", "did you mean usrID?"),
        ("SELECT ^geo FROM V a, W b", "AMBIGUOUS_NAME", "geo", "a.geo, b.geo"),
        (
            "SELECT * FROM V a, W b WHERE a.vID = b.vID AND ^GEO = 'x'",
            "AMBIGUOUS_NAME",
            "GEO",
            "a.geo, b.geo",
        ),
        ("SELECT a.vID, ^b.vID FROM V a, W b", "DUPLICATE_OUTPUT", "b.vID", "AS"),
        ("SELECT a.vID AS x, b.vID AS ^x FROM V a, W b", "DUPLICATE_OUTPUT", "x", "AS"),
        ("SELECT a.*, ^a.* FROM V a, W b", "DUPLICATE_OUTPUT", "a.*", "a.vID"),
        ("SELECT a.vID AS ^window_start FROM V a, W b", "RESERVED_OUTPUT", "window_start", "AS"),
        ("SELECT window_start AS ^window_end FROM V a, W b", "RESERVED_OUTPUT", "window_end", "AS"),
        ("SELECT ^a.length + 1 FROM V a, W b", "MISSING_OUTPUT_NAME", "a.length", "AS"),
        ("SELECT ^5 FROM V a, W b", "MISSING_OUTPUT_NAME", "5", "AS"),
        ("SELECT ^NULL FROM V a, W b", "MISSING_OUTPUT_NAME", "NULL", "AS"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_ones(statement: str, reason: str, token: str, say: str) -> None:
    assert say in str(refused(f"{statement} {WINDOW}", reason, token))


def test_no_streams_at_all() -> None:
    error = refused(f"SELECT * FROM ^V, W {WINDOW}", "UNKNOWN_STREAM", "V", {})
    assert "none yet" in error.message


def test_a_long_list_of_streams_is_cut() -> None:
    many = {f"s{i:03}": stream(f"s{i:03}", k="INT") for i in range(100)}
    error = refused(f"SELECT * FROM ^unknown, s001 {WINDOW}", "UNKNOWN_STREAM", "unknown", many)
    assert "s019, ..." in error.message and "s020" not in error.message
