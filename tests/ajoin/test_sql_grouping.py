"""GROUP BY and HAVING: what a group is, what may be said about it, and what may not."""

from dataclasses import replace

import pytest

from optimizer.model.query import Query
from tests.ajoin.sql_support import WINDOW, fold, parse, refused, select, show

JOIN = "FROM V JOIN W ON V.vID = W.vID"


def outputs(query: Query) -> list[tuple[str, str]]:
    return [(o.name, show(o.expr)) for o in query.outputs]


def groups(query: Query) -> list[str]:
    return [show(g) for g in query.groups]


def test_an_aggregation_with_everything() -> None:
    query = fold(
        "geo, length / 10 + 1 AS bucket, SUM(length) / COUNT(*) AS mean, window_end AS until",
        "WHERE vID > 1 GROUP BY geo, length / 10 HAVING COUNT(*) > 5 AND geo <> 'DE'",
    )
    assert groups(query) == ["V.geo", "(V.length / 10:INT):INT"]
    assert outputs(query) == [
        ("geo", "group 0:STRING"),
        ("bucket", "(group 1:INT + 1:INT):INT"),
        ("mean", "(SUM(V.length):BIGINT / COUNT(*):BIGINT):BIGINT"),
        ("until", "window_end"),
    ]
    assert query.having is not None
    assert show(query.having) == "((COUNT(*):BIGINT > 5:INT) AND (group 0:STRING <> 'DE':STRING))"
    assert [show(e) for _, e in query.selections] == ["(V.vID > 1:INT)"]
    assert query.needed_columns("V") == {"geo", "length"}


@pytest.mark.parametrize(
    ("items", "by", "expected"),
    [
        ("geo, COUNT(*)", "geo", ["V.geo"]),
        ("GEO, COUNT(*)", "V.geo", ["V.geo"]),
        ("geo, COUNT(*)", "(geo)", ["V.geo"]),
        ("geo, COUNT(*)", "1", ["V.geo"]),
        ("COUNT(*), geo, lang", "2, 3", ["V.geo", "V.lang"]),
        ("geo AS g, COUNT(*)", "g", ["V.geo"]),
        ("geo AS g, COUNT(*)", "G", ["V.geo"]),
        ("geo AS g, COUNT(*)", "g, geo, 1", ["V.geo"]),
        ("length % 2 = 0 AS even, COUNT(*)", "even", ["((V.length % 2:INT):INT = 0:INT)"]),
        ("COUNT(*)", "geo", ["V.geo"]),
        ("COUNT(*)", "length + 1, geo IS NULL", ["(V.length + 1:INT):INT", "(V.geo IS NULL)"]),
        # a column of the stream wins over a name of SELECT
        ("length / 10 AS length, COUNT(*)", "length", ["V.length"]),
        # what is the same for all tuples of a window divides nothing
        ("geo, COUNT(*)", "window_start, geo, window_end", ["V.geo"]),
        ("geo, COUNT(*)", "V.window_start, geo", ["V.geo"]),
        ("window_start AS s, geo, COUNT(*)", "s, 1, geo", ["V.geo"]),
        ("COUNT(*)", "window_start", []),
        ("COUNT(*)", "1 + 1", []),
    ],
)
def test_group_by(items: str, by: str, expected: list[str]) -> None:
    query = fold(items, f"GROUP BY {by}")
    assert groups(query) == expected
    assert query.folds


def test_groups_without_aggregates() -> None:
    query = fold("geo, lang AS l", "GROUP BY geo, lang")
    assert query.folds and not query.aggregates
    assert outputs(query) == [("geo", "group 0:STRING"), ("l", "group 1:STRING")]
    assert [o.name for o in fold("*", "GROUP BY vID, length, geo, lang, time").outputs] == [
        "V.vID",
        "V.length",
        "V.geo",
        "V.lang",
        "V.time",
    ]


def test_spellings_of_a_group_are_one_query() -> None:
    queries = [
        fold("geo AS g, COUNT(*)", f"GROUP BY {by}")
        for by in ("geo", "g", "1", "V.geo", "geo, window_start, window_end")
    ]
    assert len({replace(q, sql="") for q in queries}) == 1


def test_a_larger_group_is_found_before_its_parts() -> None:
    query = fold("length + 1 AS a, length AS b, (length + 1) * 2 AS c", "GROUP BY length, length + 1")
    assert [e for _, e in outputs(query)] == ["group 1:INT", "group 0:INT", "(group 1:INT * 2:INT):INT"]


def test_groups_of_a_join() -> None:
    query = parse(f"SELECT V.geo, W.geo AS seen, SUM(duration) {JOIN} GROUP BY V.geo, W.geo {WINDOW}")
    assert groups(query) == ["V.geo", "W.geo"]
    assert query.needed_columns("W") == {"vID", "geo", "duration"}
    across = parse(f"SELECT COUNT(*) {JOIN} GROUP BY V.length - W.duration {WINDOW}")
    assert groups(across) == ["(V.length - W.duration):INT"]
    merged = parse(f"SELECT vID, COUNT(*) FROM V JOIN W USING (vID) GROUP BY vID {WINDOW}")
    assert groups(merged) == ["V.vID"]
    named = parse(f"SELECT V.geo AS geo, COUNT(*) {JOIN} GROUP BY geo {WINDOW}")
    assert groups(named) == ["V.geo"]


@pytest.mark.parametrize(
    ("having", "expected"),
    [
        ("COUNT(*) > 5", "(COUNT(*):BIGINT > 5:INT)"),
        ("MAX(length) BETWEEN 1 AND 2", "((MAX(V.length):INT >= 1:INT) AND (MAX(V.length):INT <= 2:INT))"),
        ("geo = 'DE'", "(group 0:STRING = 'DE':STRING)"),
        (
            "geo IN ('DE', 'US') OR n IS NULL",
            "((group 0:STRING IN 'DE':STRING, 'US':STRING) OR (SUM(V.length):BIGINT IS NULL))",
        ),
        ("n > 5", "(SUM(V.length):BIGINT > 5:INT)"),
        ("window_end > TIMESTAMP '1970-01-01'", "(window_end > 0:TIMESTAMP)"),
        ("TRUE", "True:BOOLEAN"),
    ],
)
def test_having(having: str, expected: str) -> None:
    query = fold("geo, SUM(length) AS n", f"GROUP BY geo HAVING {having}")
    assert query.having is not None
    assert show(query.having) == expected


def test_having_alone_folds() -> None:
    query = fold("window_start", "HAVING COUNT(*) > 5")
    assert query.folds and [show(a) for a in query.aggregates] == ["COUNT(*):BIGINT"]


def test_a_name_that_names_itself() -> None:
    query = fold("COUNT(*) + 1 AS n", "HAVING n > 5")
    assert query.having is not None and show(query.having) == "((COUNT(*):BIGINT + 1:INT):BIGINT > 5:INT)"
    refused(f"SELECT ^n + 1 AS n, COUNT(*) FROM V HAVING n > 5 {WINDOW}", "UNKNOWN_COLUMN", "n")


@pytest.mark.parametrize(
    ("marked", "reason", "token", "say"),
    [
        ("geo, ^length, COUNT(*) FROM V GROUP BY geo", "NOT_GROUPED", "length", "ANY_VALUE(V.length)"),
        ("^geo, COUNT(*) FROM V", "NOT_GROUPED", "geo", "V.geo is neither"),
        ("COUNT(*) + ^V.length AS x FROM V GROUP BY geo", "NOT_GROUPED", "V.length", "the groups are by V.geo"),
        ("SUM(length) + ^length AS x FROM V", "NOT_GROUPED", "length", "add V.length to GROUP BY"),
        ("SUM(vID) FILTER (WHERE length > 1) + ^length AS x FROM V", "NOT_GROUPED", "length", "GROUP BY"),
        ("^*, COUNT(*) FROM V GROUP BY vID", "NOT_GROUPED", "*", "V.length"),
        ("^length + 2 AS x FROM V GROUP BY length + 1", "NOT_GROUPED", "length", "an expression"),
        ("COUNT(*) FROM V GROUP BY geo HAVING ^lang = 'de'", "NOT_GROUPED", "lang", "V.lang"),
        ("COUNT(*) FROM V GROUP BY ^0", "INVALID_GROUPING", "0", "from 1 to 1"),
        ("COUNT(*) FROM V GROUP BY ^2", "INVALID_GROUPING", "2", "from 1 to 1"),
        ("COUNT(*) FROM V GROUP BY ^1.5", "INVALID_GROUPING", "1.5", "from 1 to 1"),
        ("COUNT(*) FROM V GROUP BY ^99999999999999999999", "INVALID_GROUPING", "99999999999999999999", "from 1"),
        ("COUNT(*) FROM V GROUP BY ^'geo'", "INVALID_GROUPING", "'geo'", "constant"),
        ("COUNT(*) FROM V GROUP BY ^NULL", "INVALID_GROUPING", "NULL", "constant"),
        ("* FROM V GROUP BY ^1", "INVALID_GROUPING", "1", "no single column"),
        ("COUNT(*) FROM V GROUP BY ^1", "MISPLACED_AGGREGATE", "1", "item 1"),
        ("COUNT(*) AS n FROM V GROUP BY ^n", "MISPLACED_AGGREGATE", "n", "after grouping"),
        ("geo AS g, lang AS g, COUNT(*) FROM V GROUP BY ^g", "AMBIGUOUS_NAME", "g", "several items"),
        ("COUNT(*) FROM V GROUP BY ^nix", "UNKNOWN_COLUMN", "nix", "there are vID"),
        ("COUNT(*) FROM V GROUP BY ^time - window_start", "INVALID_GROUPING", "time", "of their own"),
        ("geo FROM V ^HAVING geo = 'x'", "INVALID_GROUPING", "HAVING", "use WHERE"),
        ("window_start FROM V ^GROUP BY window_start", "INVALID_GROUPING", "GROUP BY", "COUNT(*)"),
        ("COUNT(*) FROM V HAVING ^SUM(length)", "TYPE_MISMATCH", "SUM", "BOOLEAN"),
        ("COUNT(*) FROM V ^GROUP BY ALL", "UNSUPPORTED_AGGREGATION", "GROUP BY", "ALL"),
        ("COUNT(*) FROM V ^GROUP BY DISTINCT geo", "UNSUPPORTED_AGGREGATION", "GROUP BY", "ALL"),
        ("COUNT(*) FROM V ^GROUP BY geo WITH ROLLUP", "UNSUPPORTED_AGGREGATION", "GROUP BY", "ROLLUP"),
        ("COUNT(*) FROM V GROUP BY ROLLUP (^geo)", "UNSUPPORTED_AGGREGATION", "geo", "ROLLUP"),
        ("COUNT(*) FROM V GROUP BY GROUPING SETS ((^geo), (lang))", "UNSUPPORTED_AGGREGATION", "geo", "SETS"),
        ("COUNT(*) FROM V GROUP BY (^geo, lang)", "UNSUPPORTED_AGGREGATION", "geo", "lists"),
        ("^DISTINCT geo FROM V", "UNSUPPORTED_DISTINCT", "DISTINCT", "GROUP BY"),
    ],
)
def test_refused(marked: str, reason: str, token: str, say: str) -> None:
    assert say in str(refused(f"SELECT {marked} {WINDOW}", reason, token))


def test_a_query_without_groups_or_aggregates_does_not_fold() -> None:
    assert not select("a.vID, window_start").folds
