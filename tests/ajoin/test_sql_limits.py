"""Hostile text: the answer is always a query or a SqlError with a place inside the text, in bounded work."""

import random

import pytest

from ajoin.sql import MAX_SQL_LENGTH, parse_query
from optimizer.errors import SqlError
from tests.ajoin.sql_support import WINDOW, parse, where
from tests.builders import PAPER

HEAD = "SELECT * FROM V, W WHERE V.vID = W.vID AND "


def reason(sql: str) -> str:
    with pytest.raises(SqlError) as caught:
        parse(sql)
    assert len(str(caught.value)) < 2000, "an error must fit into a gRPC trailer"
    return caught.value.reason


def test_the_length_limit_counts_bytes_and_can_be_set() -> None:
    sql = f"{HEAD} V.geo = 'ü' {WINDOW}"
    size = len(sql.encode())
    assert parse_query(sql, PAPER, max_length=size).sql == sql
    with pytest.raises(SqlError) as caught:
        parse_query(sql, PAPER, max_length=size - 1)
    assert (caught.value.reason, caught.value.line) == ("SQL_TOO_LONG", 0)
    assert reason("SELECT " + "x" * 1_000_000) == "SQL_TOO_LONG"
    assert MAX_SQL_LENGTH == 65_536


@pytest.mark.parametrize(
    "condition",
    [
        "(" * 20_000 + "V.length" + ")" * 20_000 + " = 1",
        "(" * 33 + "V.length" + ")" * 33 + " = 1",
        "NOT " * 10_000 + "V.length = 1",
        "V.length = " + "- " * 10_000 + "V.length",
        "V.length" + " + 1" * 10_000 + " = 1",
        "V.length = 1" + " = TRUE" * 5_000,
        "V.length = 1" + " IS TRUE" * 5_000,
        "CASE WHEN " * 3_000,
        "V.length IN " + "(" * 1_000,
        "[" * 1_000,
        "V.time > " + "INTERVAL " * 3_000,
    ],
)
def test_deep_nesting_is_refused(condition: str) -> None:
    assert reason(f"{HEAD} {condition} {WINDOW}") == "SQL_TOO_COMPLEX"


def test_reasonable_nesting_is_fine() -> None:
    assert where("(" * 25 + "V.length" + ")" * 25 + " = 1").selections
    assert where("NOT " * 20 + "C.photo").selections
    assert where("V.length" + " + 1" * 40 + " = 1").selections


def test_nested_between_cannot_double_without_end() -> None:
    condition = "V.length = 1"
    for _ in range(25):
        condition = f"({condition}) BETWEEN FALSE AND TRUE"
    assert reason(f"{HEAD} {condition} {WINDOW}") == "SQL_TOO_COMPLEX"


def test_wide_statements_are_fine() -> None:
    many = " OR ".join(f"V.length = {i}" for i in range(2_000))
    ((_, either),) = where(many).selections
    assert len(either.operands) == 2_000
    ((_, both),) = where(many.replace(" OR ", " AND ")).selections
    assert len(both.operands) == 2_000
    ((_, listed),) = where(f"V.length IN ({', '.join(map(str, range(5_000)))})").selections
    assert len(listed.values) == 5_000
    items = ", ".join(f"V.vID AS c{i}" for i in range(500))
    assert len(parse(f"SELECT {items} FROM V JOIN W USING (vID) {WINDOW}").outputs) == 500
    by = ", ".join(f"length + {i}" for i in range(1_500))
    sums = ", ".join(f"SUM(length + {i}) AS s{i}" for i in range(800))
    folded = parse(f"SELECT {sums} FROM V GROUP BY {by} HAVING {' AND '.join(['s1 > s2'] * 1_000)} {WINDOW}")
    assert (len(folded.groups), len(folded.aggregates)) == (1_500, 800)


def test_a_name_in_having_cannot_multiply_without_end() -> None:
    items = " + ".join(["SUM(length)"] * 60)
    having = " AND ".join(["s > 1"] * 2_000)
    assert reason(f"SELECT {items} AS s FROM V HAVING {having} {WINDOW}") == "SQL_TOO_COMPLEX"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (f"SELECT * FROM {', '.join(f'V v{i}' for i in range(3_000))} {WINDOW}", "SOURCE_COUNT"),
        ("SELECT * FROM V" + " JOIN W" * 5_000, "SQL_TOO_COMPLEX"),
        (f"{HEAD} V.{'x' * 60_000} = 1 {WINDOW}", "UNKNOWN_COLUMN"),
        (f"SELECT * FROM {'x' * 60_000}, V {WINDOW}", "UNKNOWN_STREAM"),
        (f"{HEAD} V.vID = {'9' * 60_000} {WINDOW}", "LITERAL_OUT_OF_RANGE"),
        (f"{HEAD} V.length{'::INT' * 5_000} = 1 {WINDOW}", "SQL_TOO_COMPLEX"),
        (f"{HEAD} {'a.' * 10_000}b = 1 {WINDOW}", "UNSUPPORTED_EXPRESSION"),
        (f"{HEAD} V.\0x = 1 {WINDOW}", "UNKNOWN_COLUMN"),
        (";" * 60_000, "SQL_EMPTY"),
    ],
)
def test_oversized_parts(statement: str, expected: str) -> None:
    assert reason(statement) == expected


def test_strange_characters_in_strings_survive() -> None:
    for text in ("\0", "\ud800", "😀", "\u202e", "\r\n"):
        ((_, compare),) = where(f"V.geo = '{text}'").selections
        assert compare.right.value == text


WORDS = """
SELECT * FROM V W C a b , . ( ) [ ] { } WHERE AND OR NOT IN BETWEEN LIKE ESCAPE IS NULL TRUE JOIN
INNER LEFT ON USING AS WINDOW TUMBLING HOPPING SIZE ADVANCE BY 10 SECONDS S 1.5 'x' "y" vID length
time geo = < > <= <> + - / % INTERVAL TIMESTAMP '1s' TUMBLE HOP CASE WHEN END CAST :: ; -- /* */ ? :
@ COUNT || && ! ~ -> => GROUP ORDER LIMIT UNION EXCEPT LATERAL UNNEST VALUES PIVOT WITH DISTINCT
OVER PARTITION FILTER EXISTS ANY ARRAY MAP STRUCT {{ }} # ` \\ 0x1F N'x' DATE CURRENT_DATE EXTRACT
SUM FIRST QUANTILE WITHIN SESSION GAP PUNCTUATED STATE_TTL TABLE DESCRIPTOR EMIT ROWS ALL ROLLUP
FOR IF MATCH_RECOGNIZE TRIM TRY_CAST FETCH OFFSET QUALIFY HAVING START CONNECT AT COLLATE
"""
BASE = """
SELECT a . vID , length AS l FROM V AS a JOIN W AS b ON a . vID = b . vID WHERE a . length + 1 > 5
AND b . geo LIKE 'x' AND a . time BETWEEN 1 AND 2 AND b . geo IN ( 'x' , NULL ) WINDOW HOPPING (
SIZE 10 S , ADVANCE BY 5 S )
"""
FOLDED = """
SELECT geo AS g , SUM ( length ) FILTER ( WHERE vID > 1 ) AS s , QUANTILE ( length , 0.5 ) FROM V GROUP BY g , length
, window_start HAVING COUNT ( * ) > 5 AND s < 7 WINDOW COUNT ( SIZE 10 ADVANCE BY 3 ) STATE_TTL 1 HOUR EMIT ROWS
"""
NESTED = """
SELECT a . geo , COUNT ( DISTINCT lang ) AS n FROM TABLE ( SESSION ( TABLE V PARTITION BY geo , DESCRIPTOR ( time ) ,
INTERVAL '1' MINUTE ) ) AS a WHERE length BETWEEN 1 AND 2 GROUP BY geo , window_end
"""
ONCE = "SELECT COUNT ( * ) FROM V WHERE length > 5 WINDOW BETWEEN TIMESTAMP '2024-01-01' AND - 5 EMIT ROWS"
PUNCTUATED = "SELECT geo , MAX ( time ) FROM V GROUP BY 1 WINDOW PUNCTUATED BY ( lang = 'end' OR ( length > 5 ) )"


@pytest.mark.parametrize("base", [BASE, FOLDED, NESTED, ONCE, PUNCTUATED])
@pytest.mark.parametrize("seed", range(10))
def test_a_damaged_statement_is_a_query_or_a_placed_error(seed: int, base: str) -> None:
    rng = random.Random(seed)
    vocabulary, outcomes = WORDS.split(), set()
    for _ in range(200):
        words = base.split()
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(words))
            words[at : at + rng.randint(0, 1)] = rng.choices(vocabulary, k=rng.randint(0, 2))
        sql = " ".join(words)
        try:
            parse(sql)
            outcomes.add("OK")
        except SqlError as error:
            assert error.reason == "SQL_EMPTY" or 1 <= error.column <= len(sql) + 1, sql
            assert error.token in sql
            outcomes.add(error.reason)
    assert len(outcomes) > 3
