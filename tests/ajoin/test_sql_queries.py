"""Whole statements: sources, join keys, who gets which condition, windows of joins, spellings of one query."""

from dataclasses import replace

import networkx as nx
import pytest

from optimizer.model.expressions import ColumnRef, Compare, Literal
from optimizer.model.graphs import join_graph
from optimizer.model.query import EquiPredicate, Output, Query, Source
from optimizer.model.types import ColumnType
from optimizer.model.windows import PeriodicWindow
from tests.ajoin.sql_support import WINDOW, parse, refused, show
from tests.builders import stream

BIGINT, INT = ColumnType.BIGINT, ColumnType.INT


def keys(query: Query) -> list[str]:
    return [f"{show(p.left)} = {show(p.right)}:{p.type}" for p in query.equi]


def selections(query: Query) -> dict[str, str]:
    return {alias: show(expr) for alias, expr in query.selections}


def same(*statements: str) -> Query:
    """All of them are one query, apart from the text itself."""
    first, *others = [replace(parse(sql), sql="") for sql in statements]
    for other in others:
        assert other == first
    return first


def test_a_query_with_everything_in_its_place() -> None:
    sql = """
        SELECT V.vID, W.usrID AS who, window_start
        FROM V, W WHERE V.vID = W.vID AND V.length > 5 AND V.length < W.duration
        WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 2 SECONDS);
    """
    length = ColumnRef("V", "length", INT)
    query = parse(sql)
    assert query == Query(
        sql=sql.strip(),
        sources=(Source("V", "V"), Source("W", "W")),
        window=PeriodicWindow(10_000, 2_000),
        selections=(("V", Compare(">", length, Literal(5, INT))),),
        equi=(EquiPredicate(ColumnRef("V", "vID", BIGINT), ColumnRef("W", "vID", BIGINT), BIGINT),),
        residual=(Compare("<", length, ColumnRef("W", "duration", INT)),),
        outputs=query.outputs,
    )
    assert [(o.name, show(o.expr)) for o in query.outputs] == [
        ("vID", "V.vID"),
        ("who", "W.usrID"),
        ("window_start", "window_start"),
    ]
    assert query.sql.startswith("SELECT") and query.sql.endswith(");")


def test_from_styles_are_the_same_query() -> None:
    query = same(
        *(
            f"{statement} {WINDOW}"
            for statement in (
                "SELECT * FROM V, W, C WHERE V.vID = W.vID AND W.usrID = C.usrID AND V.length > 5",
                "SELECT * FROM V JOIN W ON V.vID = W.vID JOIN C ON W.usrID = C.usrID WHERE V.length > 5",
                "SELECT * FROM V INNER JOIN W ON V.vID = W.vID AND V.length > 5 JOIN C ON C.usrID = W.usrID",
                "SELECT * FROM V JOIN W ON (W.vID = V.vID), C WHERE (W.usrID = C.usrID) AND V.length > 5",
                "select * from V as V join W W on V.vID = W.vID, C where W.usrID = C.usrID and V.length > 5",
                "SELECT * FROM V JOIN W USING (vID) JOIN C USING (usrID) WHERE V.length > 5",
                "SELECT * FROM V JOIN W JOIN C ON V.vID = W.vID ON W.usrID = C.usrID AND V.length > 5",
                "SELECT V.*, W.*, C.* FROM V JOIN W USING (vID), C WHERE V.length > 5 AND W.usrID = C.usrID",
            )
        )
    )
    assert keys(query) == ["V.vID = W.vID:BIGINT", "W.usrID = C.usrID:BIGINT"]


def test_join_keys_are_written_once_and_in_from_order() -> None:
    query = parse(f"SELECT * FROM V a, W b WHERE b.vID = a.vID AND a.vID = b.vID AND b.geo = a.geo {WINDOW}")
    assert keys(query) == ["a.vID = b.vID:BIGINT", "a.geo = b.geo:STRING"]


def test_a_key_of_two_types_is_compared_in_the_wider_one() -> None:
    schemas = {
        s.name: s
        for s in (
            stream("S", i="INT", b="BIGINT", d="DOUBLE", p="BOOLEAN"),
            stream("T", i="INT", b="BIGINT", d="DOUBLE", p="BOOLEAN"),
        )
    }
    condition = "S.i = T.b AND S.b = T.d AND S.i = T.d AND S.p = T.p AND S.time = T.time"
    assert keys(parse(f"SELECT * FROM S, T WHERE {condition} {WINDOW}", schemas)) == [
        "S.i = T.b:BIGINT",
        "S.b = T.d:DOUBLE",
        "S.i = T.d:DOUBLE",
        "S.p = T.p:BOOLEAN",
        "S.time = T.time:TIMESTAMP",
    ]


def test_self_join_and_cycle() -> None:
    query = parse(
        f"""SELECT * FROM W a JOIN W b ON a.vID = b.vID
            JOIN W c ON b.usrID = c.usrID AND c.geo = a.geo {WINDOW}"""
    )
    assert query.sources == (Source("a", "W"), Source("b", "W"), Source("c", "W"))
    assert keys(query) == ["a.vID = b.vID:BIGINT", "b.usrID = c.usrID:BIGINT", "a.geo = c.geo:STRING"]
    assert query.outputs[0] == Output("a.usrID", ColumnRef("a", "usrID", BIGINT))


def test_eight_sources_are_allowed_and_nine_are_not() -> None:
    def star(n: int) -> str:
        others = ", ".join(f"W w{i}" for i in range(1, n - 1))
        last = f"W ^w{n - 1}"
        condition = " AND ".join(f"V.vID = w{i}.vID" for i in range(1, n))
        return f"SELECT * FROM V, {others}, {last} WHERE {condition} {WINDOW}"

    assert len(parse(star(8).replace("^", "")).sources) == 8
    refused(star(9), "SOURCE_COUNT", "w8")


def test_every_condition_goes_to_the_stream_that_can_decide_it() -> None:
    query = parse(
        f"""SELECT * FROM V JOIN W ON V.vID = W.vID AND W.duration > 1 AND 1 = 0
            WHERE (V.length > 2 AND (V.lang = 'de' AND V.geo <> W.geo)) AND W.geo LIKE 'D%' {WINDOW}"""
    )
    assert selections(query) == {
        "V": "((1:INT = 0:INT) AND (V.length > 2:INT) AND (V.lang = 'de':STRING))",
        "W": "((W.duration > 1:INT) AND (W.geo LIKE 'D%'))",
    }
    assert [show(r) for r in query.residual] == ["(V.geo <> W.geo)"]


def test_using_merges_a_column() -> None:
    query = parse(f"SELECT usrID FROM W JOIN C USING (usrID) JOIN R USING (usrID) WHERE usrID > 5 {WINDOW}")
    assert keys(query) == ["W.usrID = C.usrID:BIGINT", "W.usrID = R.usrID:BIGINT"]
    assert selections(query) == {"W": "(W.usrID > 5:INT)"}
    refused(
        f"SELECT * FROM W JOIN R ON W.usrID = R.usrID JOIN C USING (^usrID) {WINDOW}",
        "AMBIGUOUS_NAME",
        "usrID",
    )
    refused(f"SELECT * FROM V JOIN W USING (^lang) {WINDOW}", "UNKNOWN_COLUMN", "lang")
    refused(f"SELECT * FROM V JOIN C USING (^usrID) {WINDOW}", "UNKNOWN_COLUMN", "usrID")


@pytest.mark.parametrize(
    ("clause", "size", "advance"),
    [
        ("WINDOW TUMBLING (SIZE 1 MILLISECOND)", 1, 1),
        ("WINDOW TUMBLING (SIZE 250 MILLISECONDS)", 250, 250),
        ("WINDOW TUMBLING (SIZE 250 MS)", 250, 250),
        ("window tumbling (size 10 s)", 10_000, 10_000),
        ("WINDOW TUMBLING(SIZE 1 SECOND)", 1_000, 1_000),
        ("WINDOW TUMBLING (SIZE 2 Minutes)", 120_000, 120_000),
        ("WINDOW TUMBLING (SIZE 1 MINUTE) ;", 60_000, 60_000),
        ("WINDOW TUMBLING (SIZE 3 HOURS) -- done", 10_800_000, 10_800_000),
        ("WINDOW TUMBLING (SIZE 1 DAY)", 86_400_000, 86_400_000),
        ("WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 3 SECONDS)", 10_000, 3_000),
        ("WINDOW HOPPING (SIZE 1 S, ADVANCE BY 1 MINUTE)", 1_000, 60_000),
        ("Window /* why */ Hopping (Size 1 Hour,\nAdvance By 500 ms)", 3_600_000, 500),
    ],
)
def test_window_clause(clause: str, size: int, advance: int) -> None:
    assert parse(f"SELECT * FROM V, W WHERE V.vID = W.vID {clause}").window == PeriodicWindow(size, advance)


def test_table_functions_are_another_spelling_of_the_window_clause() -> None:
    on = "a.vID = b.vID"
    same(
        f"SELECT * FROM V a JOIN W b ON {on} WINDOW TUMBLING (SIZE 10 SECONDS)",
        f"""SELECT * FROM TUMBLE(V, time, INTERVAL '10 seconds') a
            JOIN TUMBLE(W, time, INTERVAL '10' SECOND) AS b ON {on}""",
        f"""SELECT * FROM tumble(v, TIME, INTERVAL 10 SECONDS) a,
            TABLE(TUMBLE(TABLE W, DESCRIPTOR(time), INTERVAL '10' SECOND)) b WHERE {on}""",
        f"""SELECT * FROM TUMBLE(V, time, INTERVAL '10 s') a JOIN TUMBLE(W, time, INTERVAL '10 s') b
            ON {on} AND a.window_start = b.window_start AND b.window_end = a.window_end""",
    )
    hop = same(
        f"SELECT * FROM V a JOIN W b ON {on} WINDOW HOPPING (SIZE 1 MINUTE, ADVANCE BY 15 SECONDS)",
        f"""SELECT * FROM HOP(V, time, INTERVAL '15 seconds', INTERVAL '1 minute') a
            JOIN HOP(W, time, INTERVAL '15 seconds', INTERVAL '1 minute') b ON {on}""",
    )
    assert hop.window == PeriodicWindow(60_000, 15_000)
    unnamed = parse("SELECT * FROM TUMBLE(V, time, INTERVAL '1 s') JOIN TUMBLE(W, time, INTERVAL '1 s') USING (vID)")
    assert unnamed.sources == (Source("V", "V"), Source("W", "W"))


@pytest.mark.parametrize(
    ("clause", "reason", "token"),
    [
        ("^", "MISSING_WINDOW", ""),
        ("^;", "MISSING_WINDOW", ";"),
        (" ^WINDOW", "INVALID_WINDOW", "WINDOW"),
        (" WINDOW ^SLIDING (SIZE 1 S)", "INVALID_WINDOW", "SLIDING"),
        (" WINDOW ^w AS (PARTITION BY x)", "INVALID_WINDOW", "w"),
        (" WINDOW TUMBLING ^SIZE 1 S", "INVALID_WINDOW", "SIZE"),
        (" WINDOW TUMBLING (^1 S)", "INVALID_WINDOW", "1"),
        (" WINDOW TUMBLING (SIZE ^S)", "INVALID_WINDOW", "S"),
        (" WINDOW TUMBLING (SIZE ^10)", "INVALID_WINDOW", "10"),
        (" WINDOW TUMBLING (SIZE ^-1 S)", "INVALID_WINDOW", "-"),
        (" WINDOW TUMBLING (SIZE ^0 S)", "INVALID_WINDOW", "0"),
        (" WINDOW TUMBLING (SIZE ^0.0015 S)", "INVALID_WINDOW", "0.0015"),
        (" WINDOW TUMBLING (SIZE ^2 WEEKS)", "INVALID_WINDOW", "2"),
        (" WINDOW TUMBLING (SIZE ^999999 DAYS)", "INVALID_WINDOW", "999999"),
        (" WINDOW TUMBLING (SIZE ^999999999999999999 DAYS)", "INVALID_WINDOW", "999999999999999999"),
        (" WINDOW TUMBLING (SIZE 1 S^, ADVANCE BY 1 S)", "INVALID_WINDOW", ","),
        (" WINDOW TUMBLING (SIZE 1 ^S", "INVALID_WINDOW", "S"),
        (" WINDOW HOPPING (SIZE 1 S^)", "INVALID_WINDOW", ")"),
        (" WINDOW HOPPING (SIZE 1 S, ^BY 1 S)", "INVALID_WINDOW", "BY"),
        (" WINDOW HOPPING (SIZE 1 S, ADVANCE ^1 S)", "INVALID_WINDOW", "1"),
        (" WINDOW HOPPING (SIZE 1 S, ADVANCE BY ^0 S)", "INVALID_WINDOW", "0"),
        (" WINDOW ^SESSION (5 SECONDS)", "UNSUPPORTED_WINDOW", "SESSION"),
        (" WINDOW ^COUNT (SIZE 5)", "UNSUPPORTED_WINDOW", "COUNT"),
        (" WINDOW TUMBLING (SIZE 1 S) ^WHERE V.vID = 1", "SQL_SYNTAX", "WHERE"),
        (" WINDOW TUMBLING (SIZE 1 S) ^WINDOW TUMBLING (SIZE 1 S)", "SQL_SYNTAX", "WINDOW"),
        (" WINDOW TUMBLING (SIZE 1 S) ^)", "SQL_SYNTAX", ")"),
    ],
)
def test_refused_window_clause(clause: str, reason: str, token: str) -> None:
    refused(f"SELECT * FROM V, W WHERE V.vID = W.vID{clause}", reason, token)


@pytest.mark.parametrize(
    ("from_", "reason", "token"),
    [
        ("TUMBLE(V, time, INTERVAL '1 s') a, W ^b WHERE a.vID = b.vID", "CONFLICTING_WINDOWS", "b"),
        (
            "TUMBLE(V, time, INTERVAL '1 s') a, TUMBLE(W, time, INTERVAL '2 s') ^b WHERE a.vID = b.vID",
            "CONFLICTING_WINDOWS",
            "b",
        ),
        (
            "^TUMBLE(V, time, INTERVAL '1 s') a, W b WHERE a.vID = b.vID WINDOW TUMBLING (SIZE 1 S)",
            "CONFLICTING_WINDOWS",
            "TUMBLE",
        ),
        ("^TUMBLE(V, time) a, W b", "INVALID_WINDOW", "TUMBLE"),
        ("^TUMBLE() a, W b", "INVALID_WINDOW", "TUMBLE"),
        ("^TUMBLE(V, time, 5) a, W b", "INVALID_WINDOW", "TUMBLE"),
        ("^TUMBLE(V, time, INTERVAL '1 s', INTERVAL '1 s') a, W b", "INVALID_WINDOW", "TUMBLE"),
        ("^HOP(V, time, INTERVAL '1 s') a, W b", "INVALID_WINDOW", "HOP"),
        ("TUMBLE(V, ^geo, INTERVAL '1 s') a, W b", "INVALID_WINDOW", "geo"),
        ("TUMBLE(V, time, INTERVAL ^'0 s') a, W b", "INVALID_WINDOW", "'0 s'"),
        ("TUMBLE(V, time, INTERVAL ^'-1 s') a, W b", "INVALID_WINDOW", "'-1 s'"),
        ("TUMBLE(V, time, INTERVAL ^'1 month') a, W b", "INVALID_WINDOW", "'1 month'"),
        ("TUMBLE(^X, time, INTERVAL '1 s') a, W b", "UNKNOWN_STREAM", "X"),
        ("^SESSION_WINDOW(V, time) a, W b", "UNSUPPORTED_FUNCTION", "SESSION_WINDOW"),
    ],
)
def test_refused_table_function(from_: str, reason: str, token: str) -> None:
    refused(f"SELECT * FROM {from_}", reason, token)


@pytest.mark.parametrize(
    ("from_", "token", "groups"),
    [
        ("V, ^W", "W", "V | W"),
        ("V, W, ^C WHERE V.vID = W.vID", "C", "V, W | C"),
        ("V, W, ^C, R WHERE V.vID = W.vID AND C.usrID = R.usrID", "C", "V, W | C, R"),
        ("V a, C ^b, W c WHERE a.vID = c.vID", "b", "a, c | b"),
        ("V, ^W WHERE V.vID < W.vID", "W", "V | W"),
        ("V, ^W WHERE V.vID = W.vID OR V.length = 1", "W", "V | W"),
        ("V JOIN ^W ON TRUE", "W", "V | W"),
        ("V JOIN ^W ON V.vID = W.vID + 1", "W", "V | W"),
    ],
)
def test_a_cross_product_names_what_is_not_connected(from_: str, token: str, groups: str) -> None:
    error = refused(f"SELECT * FROM {from_} {WINDOW}", "CROSS_PRODUCT", token)
    assert error.message.endswith(": " + groups)
    assert "=" in error.hint


@pytest.mark.parametrize(
    ("statement", "streams"),
    [
        ("V, W WHERE V.vID = W.vID AND V.geo <> W.geo AND W.duration > V.length / 2", {"V", "W"}),
        ("V, W, C WHERE V.vID = W.vID AND W.usrID = C.usrID AND V.lang = 'german'", {"V", "W", "C"}),
        ("W, C, R WHERE W.usrID = C.usrID AND C.usrID = R.usrID AND C.photo", {"W", "C", "R"}),
    ],
)
def test_queries_like_those_of_the_paper(statement: str, streams: set[str]) -> None:
    query = parse(f"SELECT * FROM {statement} {WINDOW}")
    assert query.streams == streams
    assert nx.is_connected(join_graph(streams, query.equi))
