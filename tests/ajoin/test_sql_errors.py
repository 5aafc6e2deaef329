"""Statements outside the language: each gets its own reason, at the place where it leaves the language."""

import pytest

from optimizer.errors import InvalidRequest, SqlError
from tests.ajoin.sql_support import WINDOW, parse, refused

ON = "V.vID = W.vID"


@pytest.mark.parametrize(
    ("statement", "reason", "token"),
    [
        # the statement as a whole
        ("", "SQL_EMPTY", ""),
        (" \n\t", "SQL_EMPTY", ""),
        (";;", "SQL_EMPTY", ""),
        ("-- only a comment", "SQL_EMPTY", ""),
        ("^INSERT INTO V VALUES (1)", "NOT_A_SELECT", "INSERT"),
        ("^EXPLAIN SELECT * FROM V", "NOT_A_SELECT", "EXPLAIN"),
        ("^FROM V SELECT vID", "NOT_A_SELECT", "FROM"),
        ("^hello world", "NOT_A_SELECT", "hello"),
        ("^5", "NOT_A_SELECT", "5"),
        (f"SELECT * FROM V, W WHERE {ON} {WINDOW}; ^SELECT 1", "MULTIPLE_STATEMENTS", "SELECT"),
        ("SELECT 1; ^DROP TABLE V", "MULTIPLE_STATEMENTS", "DROP"),
        ("^(SELECT * FROM V)", "UNSUPPORTED_SUBQUERY", "("),
        ("^WITH x AS (SELECT 1) SELECT * FROM x", "UNSUPPORTED_SUBQUERY", "WITH"),
        # aggregation
        ("SELECT AVG(length) FROM V^", "MISSING_WINDOW", ""),
        ("SELECT geo FROM V GROUP BY geo^;", "MISSING_WINDOW", ";"),
        ("SELECT ^ROW_NUMBER() OVER (ORDER BY vID) AS n FROM V, W", "UNSUPPORTED_AGGREGATION", "ROW_NUMBER"),
        (f"SELECT ^SUM(length) OVER (PARTITION BY geo) AS n FROM V {WINDOW}", "UNSUPPORTED_AGGREGATION", "SUM"),
        (f"SELECT ^CORR(length, vID) AS c FROM V {WINDOW}", "UNSUPPORTED_FUNCTION", "CORR"),
        (f"SELECT V.geo FROM V, W WHERE {ON} ^HAVING V.vID > 1", "INVALID_GROUPING", "HAVING"),
        (f"SELECT V.geo FROM V, W WHERE {ON} GROUP BY V.geo HAVING ^{WINDOW}", "SQL_SYNTAX", "WINDOW"),
        (f"SELECT COUNT(*) FROM V ^GROUP BY {WINDOW}", "SQL_SYNTAX", "GROUP BY"),
        (f"SELECT COUNT(*) FROM V GROUP BY geo, ^{WINDOW}", "SQL_SYNTAX", "WINDOW"),
        (f"SELECT COUNT(*) FROM V GROUP BY geo WHERE ^vID > 1 {WINDOW}", "SQL_SYNTAX", "vID"),
        (f"SELECT COUNT(*) FROM V HAVING COUNT(*) > 1 ^GROUP BY geo {WINDOW}", "SQL_SYNTAX", "GROUP BY"),
        # other clauses
        ("SELECT ^DISTINCT V.geo FROM V, W", "UNSUPPORTED_DISTINCT", "DISTINCT"),
        (f"SELECT * FROM V, W WHERE {ON} ^ORDER BY V.vID {WINDOW}", "UNSUPPORTED_ORDER_BY", "ORDER BY"),
        (f"SELECT * FROM V, W WHERE {ON} ^LIMIT 5", "UNSUPPORTED_LIMIT", "LIMIT"),
        (f"SELECT * FROM V, W WHERE {ON} ^OFFSET 5", "UNSUPPORTED_LIMIT", "OFFSET"),
        (f"SELECT * FROM V, W WHERE {ON} ^FETCH FIRST 5 ROWS ONLY", "UNSUPPORTED_LIMIT", "FETCH"),
        ("SELECT * FROM V ^UNION SELECT * FROM W", "UNSUPPORTED_SET_OPERATION", "UNION"),
        ("SELECT * FROM V ^INTERSECT SELECT * FROM W", "UNSUPPORTED_SET_OPERATION", "INTERSECT"),
        ("SELECT * FROM V ^EXCEPT SELECT * FROM W", "UNSUPPORTED_SET_OPERATION", "EXCEPT"),
        (f"SELECT * FROM V, W WHERE {ON} ^FOR UPDATE", "UNSUPPORTED_CLAUSE", "FOR"),
        (f"SELECT * FROM V, W WHERE {ON} ^QUALIFY V.vID = 1", "UNSUPPORTED_CLAUSE", "QUALIFY"),
        ("SELECT * INTO ^x FROM V, W", "UNSUPPORTED_CLAUSE", "x"),
        ("SELECT * FROM ^V TABLESAMPLE (10), W", "UNSUPPORTED_CLAUSE", "V"),
        ("SELECT ^* EXCEPT (vID) FROM V, W WHERE V.vID = W.vID", "UNSUPPORTED_EXPRESSION", "*"),
        # joins
        (f"SELECT * FROM V ^LEFT JOIN W ON {ON}", "UNSUPPORTED_JOIN", "LEFT"),
        (f"SELECT * FROM V ^RIGHT OUTER JOIN W ON {ON}", "UNSUPPORTED_JOIN", "RIGHT"),
        (f"SELECT * FROM V ^FULL OUTER JOIN W ON {ON}", "UNSUPPORTED_JOIN", "FULL"),
        ("SELECT * FROM V ^CROSS JOIN W", "UNSUPPORTED_JOIN", "CROSS"),
        ("SELECT * FROM V ^NATURAL JOIN W", "UNSUPPORTED_JOIN", "NATURAL"),
        (f"SELECT * FROM V ^SEMI JOIN W ON {ON}", "UNSUPPORTED_JOIN", "SEMI"),
        (f"SELECT * FROM V ^ASOF JOIN W ON {ON}", "UNSUPPORTED_JOIN", "ASOF"),
        # sources
        ("^SELECT *", "SOURCE_COUNT", "SELECT"),
        ("SELECT * FROM V, (^SELECT * FROM W) x", "UNSUPPORTED_SUBQUERY", "SELECT"),
        ("SELECT * FROM V, LATERAL (^SELECT 1) x", "UNSUPPORTED_SUBQUERY", "SELECT"),
        (f"SELECT * FROM (^V JOIN W ON {ON})", "UNSUPPORTED_SUBQUERY", "V"),
        ("SELECT * FROM V, UNNEST(^x)", "UNSUPPORTED_SUBQUERY", "x"),
        ("SELECT * FROM ^db.V, W", "UNSUPPORTED_CLAUSE", "db"),
        ("SELECT * FROM V ^a(x, y), W", "UNSUPPORTED_CLAUSE", "a"),
        # syntax
        ("SELECT V.vID, ^FROM V, W", "SQL_SYNTAX", "FROM"),
        ("SELECT ^, V.vID FROM V, W", "SQL_SYNTAX", ","),
        ("^SELECT FROM V, W WHERE V.vID = W.vID", "SQL_SYNTAX", "SELECT"),
        (f"SELECT * FROM V, W, ^{WINDOW}", "SQL_SYNTAX", "WINDOW"),
        ("SELECT * FROM V ^AS", "SQL_SYNTAX", "AS"),
        ("SELECT * FROM V AS ^&& JOIN W ON TRUE", "SQL_SYNTAX", "&&"),
        ("SELECT * FROM V ^* JOIN W ON TRUE", "SQL_SYNTAX", "*"),
        (f"SELECT * FROM V, W WHERE ^{WINDOW}", "SQL_SYNTAX", "WINDOW"),
        ("SELECT * FROM V, W ^WHERE", "SQL_SYNTAX", "WHERE"),
        (f"SELECT * FROM V, W WHERE (V.vID = W.vID ^{WINDOW}", "SQL_SYNTAX", "WINDOW"),
        (f"SELECT * FROM V, W WHERE V.vID = W.vID^) {WINDOW}", "SQL_SYNTAX", ")"),
        ("SELECT * FROM V, W WHERE V.vID = W.vID AND V.geo = ^'abc", "SQL_SYNTAX", "'"),
        ('SELECT * FROM ^"V, W', "SQL_SYNTAX", '"'),
        ("SELECT * FROM V, ^/* W", "SQL_SYNTAX", "/"),
        ("SELECT V.vID W^.vID FROM V, W", "SQL_SYNTAX", "."),
        (f"SELECT * FROM V, W WHERE V.vID = 0^x1F {WINDOW}", "SQL_SYNTAX", "x1F"),
        ("SELECT * FROM ^{{ table }}", "SQL_SYNTAX", "{"),
    ],
)
def test_refused(statement: str, reason: str, token: str) -> None:
    error = refused(statement, reason, token)
    assert error.message
    assert "<class" not in error.message and "\x1b" not in str(error)


def test_places_count_lines_and_characters_of_the_text_as_sent() -> None:
    refused(
        f"\n\n  SELECT *\r\nFROM V a,\r\n     W b\nWHERE a.geo = 'ü😀' AND a.^nix = 1\n{WINDOW}",
        "UNKNOWN_COLUMN",
        "nix",
    )
    refused(
        f"/* ä\n */ SELECT a.größe, a.^größe FROM V a, W b {WINDOW}".replace("a.größe", "a.geo", 1),
        "UNKNOWN_COLUMN",
        "größe",
    )
    refused("SELECT *\nFROM V, W\nWHERE 'two\nlines' = V.geo AND ^'open", "SQL_SYNTAX", "'")
    refused(f"SELECT * FROM V, W WHERE ^V . length = 'x' {WINDOW}", "TYPE_MISMATCH", "V . length")


def test_an_error_reads_well() -> None:
    with pytest.raises(SqlError) as caught:
        parse(f"SELECT V.vID\nFROM V, W WHERE V.vID = W.vidd {WINDOW}")
    assert str(caught.value) == ("line 2, column 27 at 'vidd': W (stream W) has no column 'vidd' (did you mean vID?)")
    assert isinstance(caught.value, InvalidRequest)
