"""How results are delivered: rows, one row per group and window, EMIT FACTORIZED."""

import pytest

from optimizer.model.expressions import Aggregate, WindowBound
from optimizer.model.query import FACTORIZED, FOLD, ROWS, Output, Source
from optimizer.model.types import ColumnType
from tests.ajoin.sql_support import WINDOW, parse, refused, select
from tests.builders import PAPER, stream

JOIN = "FROM V JOIN W ON V.vID = W.vID"
TUMBLE = "TUMBLE({}, time, INTERVAL '1 second') {}"


def test_rows_are_the_default() -> None:
    assert select("*").emit == ROWS
    assert select("*").sink_mode == ROWS


@pytest.mark.parametrize(("item", "name"), [("COUNT(*)", "count"), ("count( * ) AS n", "n"), ("Count(*) n", "n")])
def test_count(item: str, name: str) -> None:
    query = select(item)
    assert query.folds
    assert (query.emit, query.sink_mode) == (ROWS, FOLD)
    assert query.outputs == (Output(name, Aggregate("COUNT", (), ColumnType.BIGINT)),)


def test_the_windows_bounds_may_stand_beside_a_count() -> None:
    outputs = select("window_start, COUNT(*) AS n, window_end AS until").outputs
    assert [o.expr for o in outputs] == [
        WindowBound("window_start"),
        Aggregate("COUNT", (), ColumnType.BIGINT),
        WindowBound("window_end"),
    ]
    assert [o.name for o in outputs] == ["window_start", "n", "until"]


def test_a_column_called_window_start_is_not_a_bound() -> None:
    schemas = {**PAPER, "X": stream("X", vID="BIGINT", window_start="BIGINT")}
    marked = f"SELECT COUNT(*), ^x.window_start AS s FROM V JOIN X x ON V.vID = x.vID {WINDOW}"
    refused(marked, "NOT_GROUPED", "x.window_start", schemas)


def test_revision_is_a_reserved_name_where_windows_are_folded_only() -> None:
    refused(f"SELECT COUNT(*) AS ^revision {JOIN} {WINDOW}", "RESERVED_OUTPUT", "revision")
    refused(f"SELECT COUNT(*), window_end AS ^revision {JOIN} {WINDOW}", "RESERVED_OUTPUT", "revision")
    refused(f"SELECT V.geo AS ^revision {JOIN} GROUP BY V.geo {WINDOW}", "RESERVED_OUTPUT", "revision")
    assert select("a.vID AS revision").outputs[0].name == "revision"


@pytest.mark.parametrize("clause", ["EMIT FACTORIZED", "emit factorized;", "Emit Factorized -- lists"])
def test_factorized(clause: str) -> None:
    assert parse(f"SELECT * {JOIN} {WINDOW} {clause}").emit == FACTORIZED


def test_emit_rows_says_the_default() -> None:
    assert parse(f"SELECT * {JOIN} {WINDOW} EMIT ROWS").emit == ROWS
    assert parse(f"SELECT COUNT(*) {JOIN} {WINDOW} EMIT ROWS").sink_mode == FOLD
    assert parse("SELECT vID FROM V EMIT ROWS").sources == (Source("V", "V"),)


def test_emit_follows_table_functions_too() -> None:
    sources = f"{TUMBLE.format('V', 'a')} JOIN {TUMBLE.format('W', 'b')} ON a.vID = b.vID"
    assert parse(f"SELECT a.vID FROM {sources} EMIT FACTORIZED").emit == FACTORIZED


def test_emit_is_an_ordinary_name_elsewhere() -> None:
    query = parse(f"SELECT emit.vID AS emit FROM V emit JOIN W ON emit.vID = W.vID {WINDOW} EMIT ROWS")
    assert query.sources[0].alias == query.outputs[0].name == "emit"


@pytest.mark.parametrize(
    ("marked", "reason", "token"),
    [
        (f"{WINDOW} ^EMIT", "SQL_SYNTAX", "EMIT"),
        (f"{WINDOW} EMIT ^CHANGES", "SQL_SYNTAX", "CHANGES"),
        (f"{WINDOW} EMIT ROWS ^EMIT", "SQL_SYNTAX", "EMIT"),
        (f"EMIT ROWS ^{WINDOW}", "SQL_SYNTAX", "WINDOW"),
        (f"{WINDOW} ^WHERE TRUE", "SQL_SYNTAX", "WHERE"),
    ],
)
def test_emit_is_the_last_clause(marked: str, reason: str, token: str) -> None:
    refused(f"SELECT V.geo {JOIN} {marked}", reason, token)


def test_what_cannot_be_factorized() -> None:
    refused(f"SELECT COUNT(*) {JOIN} {WINDOW} ^EMIT FACTORIZED", "UNSUPPORTED_CLAUSE", "EMIT")
    refused(f"SELECT V.geo {JOIN} GROUP BY V.geo {WINDOW} ^EMIT FACTORIZED", "UNSUPPORTED_CLAUSE", "EMIT")
    refused("SELECT vID FROM V ^EMIT FACTORIZED", "UNSUPPORTED_CLAUSE", "EMIT")
    named = "SELECT a.vID, window_end AS b FROM V a JOIN W ^b ON a.vID = b.vID"
    refused(f"{named} {WINDOW} EMIT FACTORIZED", "RESERVED_OUTPUT", "b")
