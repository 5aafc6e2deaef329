"""Windows of queries over one stream, windows by data, fixed windows, and table functions of Flink and RisingWave."""

from dataclasses import replace

import pytest

from optimizer.model.expressions import WindowBound
from optimizer.model.query import FOLD, ROWS, Query
from optimizer.model.types import ColumnType
from optimizer.model.windows import (
    CountWindow,
    FixedWindow,
    PeriodicWindow,
    PunctuatedWindow,
    SessionWindow,
    Unwindowed,
    Window,
)
from tests.ajoin.sql_support import parse, refused, show

COUNTED = "SELECT geo, COUNT(*) FROM V GROUP BY geo"
JOIN = "SELECT V.vID FROM V JOIN W ON V.vID = W.vID"


def same(*statements: str) -> Query:
    first, *others = [replace(parse(sql), sql="") for sql in statements]
    for other in others:
        assert other == first
    return first


def test_rows_of_one_stream_need_no_window() -> None:
    query = parse("SELECT vID, length + 1 AS more, window_start FROM V AS v WHERE lang = 'de' AND length > 5")
    assert query.window == Unwindowed() and query.window.sql == ""
    assert [(o.name, show(o.expr)) for o in query.outputs] == [
        ("vID", "v.vID"),
        ("more", "(v.length + 1:INT):INT"),
        ("window_start", "window_start"),
    ]
    assert not (query.equi or query.residual or query.folds)
    assert query.sink_mode == ROWS
    assert [o.name for o in parse("SELECT * FROM R;").outputs] == ["R.usrID", "R.reaction", "R.time"]


@pytest.mark.parametrize(
    ("clause", "window"),
    [
        ("TUMBLING (SIZE 1 S)", PeriodicWindow(1_000, 1_000)),
        ("HOPPING (SIZE 3 S, ADVANCE BY 1 S)", PeriodicWindow(3_000, 1_000)),
        ("BETWEEN 5 AND 10", FixedWindow(5, 10)),
    ],
)
def test_rows_of_one_stream_and_of_a_join_can_have_aligned_windows(clause: str, window: Window) -> None:
    for sql in ("SELECT vID FROM V", JOIN):
        query = parse(f"{sql} WINDOW {clause}")
        assert query.window == window and query.sink_mode == ROWS
    assert parse(f"{COUNTED} WINDOW {clause}").sink_mode == FOLD


@pytest.mark.parametrize(
    ("clause", "window", "ttl"),
    [
        ("SESSION (10 SECONDS)", SessionWindow(10_000), None),
        ("session (gap 10 seconds)", SessionWindow(10_000), None),
        ("SESSION (1 MS) STATE_TTL 1 HOUR", SessionWindow(1), 3_600_000),
        ("SESSION (1 SECOND) STATE_TTL 1000 MS", SessionWindow(1_000), 1_000),
        ("COUNT (SIZE 5) STATE_TTL 1 MS", CountWindow(5, 5), 1),
        ("COUNT (SIZE 100)", CountWindow(100, 100), None),
        ("COUNT (SIZE 100, ADVANCE BY 10)", CountWindow(100, 10), None),
        ("COUNT (SIZE 1 ADVANCE BY 10) STATE_TTL 1 DAY", CountWindow(1, 10), 86_400_000),
        ("BETWEEN -5 AND 1700000000000", FixedWindow(-5, 1_700_000_000_000), None),
        (
            "BETWEEN TIMESTAMP '1970-01-01 00:00:01' AND TIMESTAMP '1970-01-02'",
            FixedWindow(1_000, 86_400_000),
            None,
        ),
        ("BETWEEN 5 AND (TIMESTAMP '1970-01-02') EMIT ROWS", FixedWindow(5, 86_400_000), None),
    ],
)
def test_window_clause(clause: str, window: Window, ttl: int | None) -> None:
    query = parse(f"{COUNTED} WINDOW {clause}")
    assert (query.window, query.state_ttl_ms) == (window, ttl)


@pytest.mark.parametrize(
    "clause",
    [
        "SESSION (90 SECONDS)",
        "COUNT (SIZE 5)",
        "COUNT (SIZE 5 ADVANCE BY 2)",
        "BETWEEN 5 AND 10",
        "PUNCTUATED BY (lang = 'end')",
    ],
)
def test_a_window_reads_as_it_is_written(clause: str) -> None:
    assert parse(f"{COUNTED} WINDOW {clause}").window.sql == clause


def test_punctuated_windows() -> None:
    query = parse(f"{COUNTED} WINDOW PUNCTUATED BY ( lang = 'end)' OR (length > 3) ) EMIT ROWS")
    assert isinstance(query.window, PunctuatedWindow)
    assert show(query.window.condition) == "((V.lang = 'end)':STRING) OR (V.length > 3:INT))"
    assert query.window.text == "lang = 'end)' OR (length > 3)"
    assert not query.selections


def test_bounds_of_count_windows_are_positions() -> None:
    query = parse("SELECT window_start, window_end - window_start AS n, COUNT(*) FROM V WINDOW COUNT (SIZE 5)")
    assert query.outputs[0].expr == WindowBound("window_start", ColumnType.BIGINT)
    assert query.outputs[1].expr.type == ColumnType.BIGINT
    timed = parse("SELECT window_start, COUNT(*) FROM V WINDOW SESSION (5 S)")
    assert timed.outputs[0].expr == WindowBound("window_start")


@pytest.mark.parametrize(
    ("clause", "reason", "token"),
    [
        ("SESSION (^SIZE 5 S)", "INVALID_WINDOW", "SIZE"),
        ("SESSION ^5 S", "INVALID_WINDOW", "5"),
        ("SESSION (^5)", "INVALID_WINDOW", "5"),
        ("SESSION (^0 S)", "INVALID_WINDOW", "0"),
        ("SESSION (^)", "INVALID_WINDOW", ")"),
        ("SESSION (5 S^, ADVANCE BY 1 S)", "INVALID_WINDOW", ","),
        ("COUNT (SIZE ^0)", "INVALID_WINDOW", "0"),
        ("COUNT (SIZE ^1.5)", "INVALID_WINDOW", "1.5"),
        ("COUNT (SIZE ^-5)", "INVALID_WINDOW", "-"),
        ("COUNT (SIZE 5 ^SECONDS)", "INVALID_WINDOW", "SECONDS"),
        ("COUNT (^5)", "INVALID_WINDOW", "5"),
        ("COUNT (SIZE ^9999999999999999999)", "INVALID_WINDOW", "9999999999999999999"),
        ("COUNT (SIZE 5, ADVANCE BY ^0)", "INVALID_WINDOW", "0"),
        ("COUNT (SIZE 5, ^BY 1)", "INVALID_WINDOW", "BY"),
        ("BETWEEN 10 AND ^5", "INVALID_WINDOW", "5"),
        ("BETWEEN 5 AND ^5", "INVALID_WINDOW", "5"),
        ("BETWEEN 5 ^10", "INVALID_WINDOW", "10"),
        ("BETWEEN 5 ^AND", "INVALID_WINDOW", "AND"),
        ("BETWEEN ^vID AND 5", "INVALID_WINDOW", "vID"),
        ("BETWEEN 5 AND ^'2024-01-01'", "INVALID_WINDOW", "'2024-01-01'"),
        ("BETWEEN 5 AND INTERVAL ^'1 day'", "INVALID_WINDOW", "'1 day'"),
        ("BETWEEN ^NULL AND 5", "INVALID_WINDOW", "NULL"),
        ("BETWEEN 5 AND ^9223372036854775807", "INVALID_WINDOW", "9223372036854775807"),
        ("PUNCTUATED ^(TRUE)", "INVALID_WINDOW", "("),
        ("PUNCTUATED BY ^TRUE", "INVALID_WINDOW", "TRUE"),
        ("PUNCTUATED BY (^)", "INVALID_WINDOW", ")"),
        ("PUNCTUATED BY (^length)", "TYPE_MISMATCH", "length"),
        ("PUNCTUATED BY (^nix = 1)", "UNKNOWN_COLUMN", "nix"),
        ("PUNCTUATED BY (^time > window_start)", "WINDOW_BOUND_IN_CONDITION", "time"),
        ("TUMBLING (SIZE 1 S) STATE_TTL ^1 HOUR", "INVALID_WINDOW", "1"),
        ("PUNCTUATED BY (TRUE) STATE_TTL ^1 HOUR", "INVALID_WINDOW", "1"),
        ("BETWEEN 5 AND 10 STATE_TTL ^1 HOUR", "INVALID_WINDOW", "1"),
        ("SESSION (1 S) STATE_TTL ^999 MS", "INVALID_WINDOW", "999"),
        ("COUNT (SIZE 5) STATE_TTL ^0 S", "INVALID_WINDOW", "0"),
        ("SESSION (1 S) STATE_TTL ^HOUR", "INVALID_WINDOW", "HOUR"),
        ("SESSION (1 S) ^TTL 1 HOUR", "SQL_SYNTAX", "TTL"),
        ("SESSION (1 S) ^ORDER BY geo", "SQL_SYNTAX", "ORDER BY"),
    ],
)
def test_refused_window_clause(clause: str, reason: str, token: str) -> None:
    refused(f"{COUNTED} WINDOW {clause}", reason, token)


def test_a_ttl_shorter_than_the_gap_says_why() -> None:
    why = refused(f"{COUNTED} WINDOW SESSION (90 SECONDS) STATE_TTL ^1 MINUTE", "INVALID_WINDOW", "1")
    assert "shorter than the gap" in why.message and "90 SECONDS" in why.message
    assert why.hint.startswith("leave it out")


@pytest.mark.parametrize("clause", ["^SESSION (5 S)", "^COUNT (SIZE 5)", "^PUNCTUATED BY (TRUE)"])
def test_windows_by_data_aggregate_one_stream(clause: str) -> None:
    kind = clause[1:].split()[0]
    assert "cannot join" in refused(f"{JOIN} WINDOW {clause}", "UNSUPPORTED_WINDOW", kind).message
    counted = f"SELECT COUNT(*) FROM V JOIN W ON V.vID = W.vID WINDOW {clause}"
    assert "one stream" in refused(counted, "UNSUPPORTED_WINDOW", kind).message
    assert "no aggregate" in refused(f"SELECT vID FROM V WINDOW {clause}", "UNSUPPORTED_WINDOW", kind).message


def test_what_needs_a_window() -> None:
    assert "a join" in refused(f"{JOIN}^", "MISSING_WINDOW", "").message
    assert "an aggregate" in refused("SELECT COUNT(*) FROM V^", "MISSING_WINDOW", "").message
    refused("SELECT vID FROM V WHERE ^window_start = window_start", "WINDOW_BOUND_IN_CONDITION", "window_start")


def test_flink_and_risingwave_forms_are_the_window_clause() -> None:
    by = "GROUP BY geo"
    full = "GROUP BY window_start, window_end, geo"
    same(
        f"SELECT geo, COUNT(*) FROM V {by} WINDOW TUMBLING (SIZE 1 MINUTE)",
        f"SELECT geo, COUNT(*) FROM TABLE(TUMBLE(TABLE V, DESCRIPTOR(time), INTERVAL '1' MINUTE)) {full}",
        f"SELECT geo, COUNT(*) FROM table ( tumble ( table v , descriptor ( TIME ) , interval '60 s' ) ) AS V {by}",
        f"SELECT geo, COUNT(*) FROM TUMBLE(V, time, INTERVAL '1 MINUTE') {full}",
        f"SELECT geo, COUNT(*) FROM TUMBLE(TABLE V, DESCRIPTOR(time), INTERVAL '1 MINUTE') {by}",
        f"""SELECT geo, COUNT(*)
            FROM TABLE(TUMBLE(DATA => TABLE V, TIMECOL => DESCRIPTOR(time), SIZE => INTERVAL '1' MINUTE)) {by}""",
    )
    same(
        f"SELECT geo, COUNT(*) FROM V x {by} WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 1 MINUTE)",
        f"""SELECT x.geo, COUNT(*)
            FROM TABLE(HOP(TABLE V, DESCRIPTOR(time), INTERVAL '1' MINUTE, INTERVAL '1' HOUR)) x {full}""",
        f"SELECT geo, COUNT(*) FROM HOP(V, time, INTERVAL '1 minute', INTERVAL '1 hour') AS x {full}",
        f"""SELECT geo, COUNT(*) FROM HOP(size => INTERVAL '1 hour', slide => INTERVAL '1 minute',
            data => TABLE V, timecol => DESCRIPTOR(time)) x {full}""",
    )
    same(
        f"SELECT geo, COUNT(*) FROM V {by} WINDOW SESSION (5 MINUTES)",
        f"""SELECT geo, COUNT(*)
            FROM TABLE(SESSION(TABLE V PARTITION BY geo, DESCRIPTOR(time), INTERVAL '5' MINUTES)) {full}""",
        f"SELECT geo, COUNT(*) FROM SESSION(TABLE V PARTITION BY (geo), DESCRIPTOR(time), INTERVAL '5 minutes') {by}",
    )
    rows = parse("SELECT vID, window_end FROM TABLE(TUMBLE(TABLE V, DESCRIPTOR(time), INTERVAL '1' MINUTE))")
    assert rows.window == PeriodicWindow(60_000, 60_000) and not rows.folds


def test_flinks_window_join() -> None:
    tumble = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(time), INTERVAL '5' MINUTES))"
    same(
        "SELECT L.vID, R.usrID FROM V L JOIN W R ON L.vID = R.vID WINDOW TUMBLING (SIZE 5 MINUTES)",
        f"""SELECT L.vID, R.usrID FROM {tumble.format("V")} L JOIN {tumble.format("W")} R
            ON L.vID = R.vID AND L.window_start = R.window_start AND L.window_end = R.window_end""",
        f"""SELECT L.vID, R.usrID FROM {tumble.format("V")} AS L, {tumble.format("W")} AS R
            WHERE L.vID = R.vID AND L.window_start = R.window_start""",
    )


def test_sessions_of_several_columns() -> None:
    session = "TABLE(SESSION(TABLE V PARTITION BY (geo, lang), DESCRIPTOR(time), INTERVAL '5' MINUTES))"
    query = parse(f"SELECT lang, geo, COUNT(*) FROM {session} GROUP BY lang, geo")
    assert query.window == SessionWindow(300_000) and len(query.groups) == 2
    assert not parse("SELECT COUNT(*) FROM SESSION(V, time, INTERVAL '5 minutes')").groups


@pytest.mark.parametrize(
    ("from_", "reason", "token"),
    [
        ("^TABLE(V)", "UNSUPPORTED_FUNCTION", "TABLE"),
        ("TABLE(^TUMBLE(TABLE V, DESCRIPTOR(time)))", "INVALID_WINDOW", "TUMBLE"),
        ("TABLE(^TUMBLE(TABLE V, time + 1, INTERVAL '1' MINUTE))", "INVALID_WINDOW", "TUMBLE"),
        ("TABLE(^HOP(TABLE V, DESCRIPTOR(time), INTERVAL '1' MINUTE))", "INVALID_WINDOW", "HOP"),
        ("TABLE(^TUMBLE(DATA => TABLE V, TIMECOL => time, GAP => INTERVAL '1 s'))", "INVALID_WINDOW", "TUMBLE"),
        ("TABLE(^TUMBLE(TABLE V, TIMECOL => time, SIZE => INTERVAL '1 s'))", "INVALID_WINDOW", "TUMBLE"),
        ("TABLE(TUMBLE(DATA =>^, TIMECOL => time, SIZE => INTERVAL '1 s'))", "SQL_SYNTAX", ","),
        ("TABLE(TUMBLE(TABLE V, DESCRIPTOR(^lang), INTERVAL '1' MINUTE))", "INVALID_WINDOW", "lang"),
        ("TABLE(TUMBLE(TABLE ^X, DESCRIPTOR(time), INTERVAL '1' MINUTE))", "UNKNOWN_STREAM", "X"),
        ("TABLE(TUMBLE(TABLE^, DESCRIPTOR(time), INTERVAL '1' MINUTE))", "SQL_SYNTAX", ","),
        ("TABLE(TUMBLE(TABLE V, DESCRIPTOR(^), INTERVAL '1' MINUTE))", "SQL_SYNTAX", ")"),
        ("TABLE(TUMBLE(TABLE V, DESCRIPTOR(time), INTERVAL '1' MINUTE^)", "SQL_SYNTAX", ")"),
        (
            "TABLE(TUMBLE(TABLE V PARTITION BY ^geo, DESCRIPTOR(time), INTERVAL '1' MINUTE))",
            "INVALID_WINDOW",
            "geo",
        ),
        (
            "TABLE(SESSION(TABLE V PARTITION BY ^lang, DESCRIPTOR(time), INTERVAL '1' MINUTE)) GROUP BY geo",
            "INVALID_WINDOW",
            "lang",
        ),
        ("TABLE(^SESSION(TABLE V, DESCRIPTOR(time), INTERVAL '1' MINUTE)) GROUP BY geo", "INVALID_WINDOW", "SESSION"),
        (
            "TABLE(SESSION(TABLE V PARTITION BY ^geo, DESCRIPTOR(time), INTERVAL '1' MINUTE)) GROUP BY window_end",
            "INVALID_WINDOW",
            "geo",
        ),
        (
            "TABLE(^TUMBLE(TABLE V, DESCRIPTOR(time), INTERVAL '1' MINUTE)) WINDOW TUMBLING (SIZE 1 MINUTE)",
            "CONFLICTING_WINDOWS",
            "TUMBLE",
        ),
        (
            "^SESSION(V, time, INTERVAL '1 minute') a, SESSION(W, time, INTERVAL '1 minute') b",
            "UNSUPPORTED_WINDOW",
            "SESSION",
        ),
    ],
)
def test_refused_table_function(from_: str, reason: str, token: str) -> None:
    refused(f"SELECT COUNT(*) FROM {from_}", reason, token)


@pytest.mark.parametrize(
    ("length", "ms"), [("1.5 SECONDS", 1500), ("0.25 MINUTES", 15_000), ("0.001 SECONDS", 1), ("2.000 SECONDS", 2000)]
)
def test_lengths_may_be_fractions_that_are_whole_milliseconds(length, ms):
    query = parse(f"SELECT COUNT(*) FROM V WINDOW TUMBLING (SIZE {length})")
    assert query.window == PeriodicWindow(ms, ms)
    amount, unit = length.split()
    table = f"TABLE(TUMBLE(TABLE V, DESCRIPTOR(time), INTERVAL '{amount}' {unit}))"
    assert parse(f"SELECT COUNT(*) FROM {table} GROUP BY window_start, window_end").window == query.window
