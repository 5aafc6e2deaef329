"""Bad input over gRPC: every case gets a clear error with its reason, and a query that runs beside it does
not notice.

A case is a name, a call, the exception class and the reason. Most go through the client; what the client
would not send (unknown enum numbers, broken tokens) goes through the stubs. After each case the query beside
it must deliver its next window, completely and only that.
"""

# ruff: noqa: E501  (one case a line reads better)
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from ajoin import errors as e
from ajoin.client.client import Client
from ajoin.client.results import Cursor
from ajoin.platform.catalog import Limits
from ajoin.v1 import admin_pb2, plan_pb2, queries_pb2, results_pb2, streams_pb2
from ajoin.v1.admin_pb2_grpc import AdminServiceStub
from ajoin.v1.plan_pb2_grpc import PlanServiceStub
from ajoin.v1.queries_pb2_grpc import QueryServiceStub
from ajoin.v1.results_pb2_grpc import ResultServiceStub
from ajoin.v1.streams_pb2_grpc import StreamServiceStub
from ajoin.wire import status
from tests.ajoin.world import JOIN, WAIT, W, World, with_streams

WINDOW = "WINDOW TUMBLING (SIZE 1 SECOND)"
ON = "FROM V JOIN W ON V.vID = W.vID"


class Beside:
    """The query that must not notice, fed one window a step."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.windows = 0
        self.cursor: Cursor | None = None
        world.client.create_query(JOIN, id="beside")

    def delivers_its_next_window(self) -> None:
        self.windows += 1
        start, id = 1000 * self.windows, self.windows
        rows = {
            "V": [{"ts": start, "vID": id, "geo": "x"}],
            "W": [{"ts": start + 999, "vID": id, "usrID": 2 * id}],
        }
        self.world.feed(rows, watermark=start + 1000)
        results = self.world.client.results("beside", cursor=self.cursor, until=start + 1000, timeout=WAIT)
        self.cursor = results.cursor
        table = results.to_arrow()
        assert table["window_start"].cast("int64").to_pylist() == [start]
        assert (table["vID"].to_pylist(), table["usrID"].to_pylist()) == ([id], [2 * id])


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    with with_streams(tmp_path_factory.mktemp("state"), limits=Limits(queries=20, columns=600)) as world:
        world.client.create_query(JOIN, id="gone")
        world.client.delete_query("gone")
        yield Beside(world)


class Raw:
    """The stubs, with errors turned back into exceptions."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.streams = StreamServiceStub(channel)
        self.queries = QueryServiceStub(channel)
        self.results = ResultServiceStub(channel)
        self.plan = PlanServiceStub(channel)
        self.admin = AdminServiceStub(channel)


def sql(text: str) -> Callable[[Client, Raw], Any]:
    return lambda client, raw: client.create_query(text)


def stream(**changed: Any) -> Callable[[Client, Raw], Any]:
    given = {"name": "S", "columns": {"ts": "TIMESTAMP", "a": "INT"}, "time": "ts", "source": "push", **changed}
    name = given.pop("name")
    return lambda client, raw: client.create_stream(name, **given)


def columns(*pairs: tuple[str, int]) -> Callable[[Client, Raw], Any]:
    """A stream as a message, so that columns can be anything."""
    spec = streams_pb2.StreamSpec(
        name="S",
        columns=[streams_pb2.Column(name=n, type=t) for n, t in pairs],
        time_column="ts",
        source=streams_pb2.Connector(kind="push"),
    )
    return lambda client, raw: raw.streams.CreateStream(streams_pb2.CreateStreamRequest(spec=spec))


def cursor(epoch: int, sequence: int, offset: int = 0) -> Callable[[Client, Raw], Any]:
    return lambda client, raw: list(
        client.subscribe("beside", cursor=Cursor(epoch, sequence, offset), follow=False, timeout=WAIT)
    )


CASES: list[tuple[str, Callable[[Client, Raw], Any], type[e.AJoinError], str]] = [
    # -- SQL text
    ("empty SQL", sql(""), e.SqlError, "SQL_EMPTY"),
    ("blank SQL", sql("  \n\t"), e.SqlError, "SQL_EMPTY"),
    ("not SQL", sql("hello world"), e.SqlError, "NOT_A_SELECT"),
    ("misspelt keyword", sql(f"SELECT V.vID FORM V {WINDOW}"), e.SqlError, "SQL_SYNTAX"),
    ("unbalanced parenthesis", sql(f"SELECT V.vID {ON} WHERE (V.vID = 1 {WINDOW}"), e.SqlError, "SQL_SYNTAX"),
    ("unclosed string", sql(f"SELECT V.vID {ON} WHERE V.geo = 'x {WINDOW}"), e.SqlError, "SQL_SYNTAX"),
    ("1 MB of SQL", sql(f"SELECT V.vID {ON} WHERE V.geo = '{'x' * 1_000_000}' {WINDOW}"), e.SqlError, "SQL_TOO_LONG"),
    ("nested too deep", sql(f"SELECT V.vID {ON} WHERE {'(' * 5000}V.vID = 1{')' * 5000} {WINDOW}"), e.SqlError, "SQL_TOO_COMPLEX"),
    ("two statements", sql(f"{JOIN}; {JOIN}"), e.SqlError, "MULTIPLE_STATEMENTS"),
    ("not a query", sql("DROP TABLE V"), e.SqlError, "NOT_A_SELECT"),
    ("no window", sql(f"SELECT V.vID {ON}"), e.SqlError, "MISSING_WINDOW"),
    ("window of nothing", sql(f"SELECT V.vID {ON} WINDOW TUMBLING (SIZE 0 SECONDS)"), e.SqlError, "INVALID_WINDOW"),
    ("unknown stream", sql(f"SELECT * FROM V JOIN Nope ON V.vID = Nope.vID {WINDOW}"), e.SqlError, "UNKNOWN_STREAM"),
    ("unknown column", sql(f"SELECT V.vid2 {ON} {WINDOW}"), e.SqlError, "UNKNOWN_COLUMN"),
    ("unknown alias", sql(f"SELECT X.vID {ON} {WINDOW}"), e.SqlError, "UNKNOWN_SOURCE"),
    ("ambiguous column", sql(f"SELECT vID {ON} {WINDOW}"), e.SqlError, "AMBIGUOUS_NAME"),
    ("same alias twice", sql(f"SELECT a.vID FROM V a JOIN W a ON a.vID = a.vID {WINDOW}"), e.SqlError, "DUPLICATE_ALIAS"),
    ("text against number", sql(f"SELECT V.vID {ON} WHERE V.geo = 1 {WINDOW}"), e.SqlError, "TYPE_MISMATCH"),
    ("join of text and number", sql(f"SELECT V.vID FROM V JOIN W ON V.geo = W.vID {WINDOW}"), e.SqlError, "TYPE_MISMATCH"),
    ("cross product", sql(f"SELECT V.vID FROM V, W {WINDOW}"), e.SqlError, "CROSS_PRODUCT"),
    ("nine streams", sql(f"SELECT V.vID {ON} {' '.join(f'JOIN V v{i} ON v{i}.vID = V.vID' for i in range(7))} {WINDOW}"), e.SqlError, "SOURCE_COUNT"),
    ("a window in the past", sql("SELECT COUNT(*) FROM V WINDOW BETWEEN -2000 AND -1000"), e.SqlError, "WINDOW_IN_PAST"),
    ("a session over a join", sql(f"SELECT COUNT(*) {ON} WINDOW SESSION (5 SECONDS)"), e.SqlError, "UNSUPPORTED_WINDOW"),
    ("a column that is not grouped", sql(f"SELECT vID, COUNT(*) FROM V {WINDOW}"), e.SqlError, "NOT_GROUPED"),
    ("a quantile beyond the last", sql(f"SELECT QUANTILE(vID, 1.5) FROM V {WINDOW}"), e.SqlError, "INVALID_LITERAL"),
    ("same output twice", sql(f"SELECT V.vID, W.vID {ON} {WINDOW}"), e.SqlError, "DUPLICATE_OUTPUT"),
    ("an aggregate in WHERE", sql(f"SELECT COUNT(*) AS n {ON} WHERE COUNT(*) > 1 {WINDOW}"), e.SqlError, "MISPLACED_AGGREGATE"),
    ("an aggregate in another", sql(f"SELECT SUM(COUNT(*)) AS n {ON} {WINDOW}"), e.SqlError, "MISPLACED_AGGREGATE"),
    ("outer join", sql(f"SELECT V.vID FROM V LEFT JOIN W ON V.vID = W.vID {WINDOW}"), e.SqlError, "UNSUPPORTED_JOIN"),
    ("a number too large", sql(f"SELECT V.vID {ON} WHERE V.vID = 99999999999999999999 {WINDOW}"), e.SqlError, "LITERAL_OUT_OF_RANGE"),
    # -- query ids
    ("id with a slash", lambda c, r: c.create_query(JOIN, id="a/b"), e.InvalidRequest, "INVALID_NAME"),
    ("id with a control character", lambda c, r: c.create_query(JOIN, id="a\x07b"), e.InvalidRequest, "INVALID_NAME"),
    ("id too long", lambda c, r: c.create_query(JOIN, id="x" * 129), e.InvalidRequest, "INVALID_NAME"),
    ("id taken", lambda c, r: c.create_query(JOIN, id="beside"), e.AlreadyExists, "QUERY_EXISTS"),
    ("deleting nothing", lambda c, r: c.delete_query("never"), e.NotFound, "QUERY_NOT_FOUND"),
    ("deleting twice", lambda c, r: c.delete_query("gone"), e.FailedPrecondition, "QUERY_DELETED"),
    ("deleting without an id", lambda c, r: c.delete_query(""), e.InvalidRequest, "MISSING_FIELD"),
    ("showing nothing", lambda c, r: c.query("never"), e.NotFound, "QUERY_NOT_FOUND"),
    ("no queries at all", lambda c, r: c.create_queries([]), e.InvalidRequest, "MISSING_FIELD"),
    ("unknown sink", lambda c, r: c.create_query(JOIN, sinks=["carrier-pigeon"]), e.InvalidRequest, "UNKNOWN_CONNECTOR"),
    ("unknown sink option", lambda c, r: c.create_query(JOIN, sinks=[("console", {"colour": "red"})]), e.InvalidRequest, "BAD_CONNECTOR_OPTION"),
    ("request id too long", lambda c, r: c.create_query(JOIN, request_id="x" * 129), e.InvalidRequest, "BAD_REQUEST_ID"),
    # -- streams
    ("stream without a name", stream(name=""), e.InvalidRequest, "INVALID_NAME"),
    ("stream with a slash", stream(name="../etc"), e.InvalidRequest, "INVALID_NAME"),
    ("stream name taken", stream(name="V"), e.AlreadyExists, "STREAM_EXISTS"),
    ("no columns", stream(columns={}), e.InvalidRequest, "NO_COLUMNS"),
    ("601 columns", stream(columns={"ts": "TIMESTAMP", **{f"c{i}": "INT" for i in range(600)}}), e.InvalidRequest, "TOO_MANY_COLUMNS"),
    ("same column twice", columns(("ts", 6), ("a", 1), ("a", 2)), e.InvalidRequest, "DUPLICATE_COLUMN"),
    ("column without a type", columns(("ts", 6), ("a", 0)), e.InvalidRequest, "UNKNOWN_COLUMN_TYPE"),
    ("column of type 99", columns(("ts", 6), ("a", 99)), e.InvalidRequest, "UNKNOWN_COLUMN_TYPE"),
    ("column type by a wrong name", stream(columns={"ts": "TIMESTAMP", "a": "DECIMAL"}), e.InvalidRequest, "UNKNOWN_COLUMN_TYPE"),
    ("column without a name", columns(("ts", 6), ("", 1)), e.InvalidRequest, "INVALID_NAME"),
    ("no event time", stream(time="nothing"), e.InvalidRequest, "TIME_COLUMN_MISSING"),
    ("event time as text", stream(columns={"ts": "STRING"}), e.InvalidRequest, "TIME_COLUMN_TYPE"),
    ("negative delay", stream(watermark_delay_ms=-1), e.InvalidRequest, "NEGATIVE_DELAY"),
    ("negative lateness", stream(allowed_lateness_ms=-1), e.InvalidRequest, "NEGATIVE_DELAY"),
    ("unknown source", stream(source="telepathy"), e.InvalidRequest, "UNKNOWN_CONNECTOR"),
    ("unknown source option", stream(options={"speed": "1"}), e.InvalidRequest, "BAD_CONNECTOR_OPTION"),
    ("source option of a wrong type", stream(source="generator", options={"rate": "fast"}), e.InvalidRequest, "BAD_CONNECTOR_OPTION"),
    ("files without a path", stream(source="files"), e.InvalidRequest, "BAD_CONNECTOR_OPTION"),
    ("an empty request", lambda c, r: r.streams.CreateStream(streams_pb2.CreateStreamRequest()), e.InvalidRequest, "INVALID_NAME"),
    ("showing no stream", lambda c, r: c.stream("never"), e.NotFound, "STREAM_NOT_FOUND"),
    ("deleting no stream", lambda c, r: c.delete_stream("never"), e.NotFound, "STREAM_NOT_FOUND"),
    ("deleting a stream in use", lambda c, r: c.delete_stream("V"), e.FailedPrecondition, "STREAM_IN_USE"),
    ("dead letters of nothing", lambda c, r: c.dead_letters("never"), e.NotFound, "STREAM_NOT_FOUND"),
    ("less than no dead letters", lambda c, r: c.dead_letters("V", limit=-1), e.InvalidRequest, "NEGATIVE_NUMBER"),
    # -- listing and subscribing
    ("negative page size", lambda c, r: list(c.queries(page_size=-1)), e.InvalidRequest, "NEGATIVE_NUMBER"),
    ("page token that is no base64", lambda c, r: r.queries.ListQueries(queries_pb2.ListQueriesRequest(page_token="%%%")), e.InvalidRequest, "BAD_PAGE_TOKEN"),
    ("page token in Unicode", lambda c, r: r.queries.ListQueries(queries_pb2.ListQueriesRequest(page_token="ünï")), e.InvalidRequest, "BAD_PAGE_TOKEN"),
    ("page token of something else", lambda c, r: r.queries.ListQueries(queries_pb2.ListQueriesRequest(page_token="WzEsMl0=")), e.InvalidRequest, "BAD_PAGE_TOKEN"),
    ("query state 42", lambda c, r: r.queries.ListQueries(queries_pb2.ListQueriesRequest(state=42)), e.InvalidRequest, "UNKNOWN_ENUM_VALUE"),
    ("subscribing to nothing", lambda c, r: list(c.subscribe("never")), e.NotFound, "QUERY_NOT_FOUND"),
    ("subscribing without an id", lambda c, r: list(c.subscribe("")), e.InvalidRequest, "MISSING_FIELD"),
    ("start position 9", lambda c, r: list(r.results.Subscribe(results_pb2.SubscribeRequest(query_id="beside", start=9))), e.InvalidRequest, "UNKNOWN_ENUM_VALUE"),
    ("start by a wrong name", lambda c, r: list(c.subscribe("beside", start="middle")), e.InvalidRequest, "UNKNOWN_NAME"),
    ("negative cursor", cursor(-1, 0), e.InvalidRequest, "BAD_CURSOR"),
    ("cursor from the future", cursor(10**9, 0), e.InvalidRequest, "BAD_CURSOR"),
    ("cursor beyond its batch", cursor(0, 0, 10**9), e.InvalidRequest, "BAD_CURSOR"),
    # -- plan and status
    ("explaining nothing", lambda c, r: c.explain("never"), e.NotFound, "QUERY_NOT_FOUND"),
    ("explaining a deleted query", lambda c, r: c.explain("gone"), e.FailedPrecondition, "QUERY_DELETED"),
    ("explaining bad SQL", lambda c, r: c.explain(sql="SELECT 1 +"), e.SqlError, "SQL_SYNTAX"),
    ("explaining two things", lambda c, r: c.explain("beside", sql=JOIN), e.InvalidRequest, "AMBIGUOUS_REQUEST"),
    ("plan format 7", lambda c, r: r.plan.Explain(plan_pb2.ExplainRequest(format=7)), e.InvalidRequest, "UNKNOWN_ENUM_VALUE"),
    ("watching from the future", lambda c, r: list(c.watch_plan(after_version=10**6)), e.InvalidRequest, "BAD_PLAN_VERSION"),
    ("optimize mode 5", lambda c, r: r.plan.Optimize(plan_pb2.OptimizeRequest(mode=5)), e.InvalidRequest, "UNKNOWN_ENUM_VALUE"),
    ("order of nothing", lambda c, r: c.force_order("never", ["V", "W"]), e.NotFound, "QUERY_NOT_FOUND"),
    ("order of one", lambda c, r: c.force_order("beside", ["V"]), e.InvalidRequest, "INVALID_JOIN_ORDER"),
    ("order with strangers", lambda c, r: c.force_order("beside", ["V", "X"]), e.InvalidRequest, "INVALID_JOIN_ORDER"),
    ("no groups", lambda c, r: c.force_groups({}), e.InvalidRequest, "MISSING_FIELD"),
    ("group of nothing", lambda c, r: c.force_groups({"never": 0}), e.NotFound, "QUERY_NOT_FOUND"),
    ("negative group", lambda c, r: c.force_groups({"beside": -1}), e.InvalidRequest, "OUT_OF_RANGE"),
    ("no partitions", lambda c, r: c.scale(0), e.InvalidRequest, "OUT_OF_RANGE"),
    ("too many partitions", lambda c, r: c.scale(10**6), e.InvalidRequest, "OUT_OF_RANGE"),
    ("splitting what is not there", lambda c, r: c.split(99, 2), e.InvalidRequest, "OUT_OF_RANGE"),
    ("splitting no ways", lambda c, r: c.split(0, 0), e.InvalidRequest, "OUT_OF_RANGE"),
    ("less than no epochs", lambda c, r: r.admin.GetStatistics(admin_pb2.GetStatisticsRequest(epochs=-1)), e.InvalidRequest, "NEGATIVE_NUMBER"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "expected", "reason"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_refused(beside, call, expected, reason):
    with grpc.insecure_channel(beside.world.address) as channel, pytest.raises(e.AJoinError) as refused:
        try:
            call(beside.world.client, Raw(channel))
        except grpc.RpcError as failure:
            raise status.from_rpc(failure) from None
    assert (type(refused.value), refused.value.reason) == (expected, reason)
    assert len(refused.value.message) > 5 and not isinstance(refused.value, e.InternalError)
    beside.delivers_its_next_window()


def test_sql_errors_name_the_place(beside):
    with pytest.raises(e.SqlError) as refused:
        beside.world.client.create_query(f"SELECT V.vID,\n       V.geoo\n{ON}\n{WINDOW}")
    assert (refused.value.line, refused.value.reason) == (2, "UNKNOWN_COLUMN")
    assert "geoo" in refused.value.token and "geo" in refused.value.hint


def test_a_window_in_the_past_is_pointed_at(beside):
    with pytest.raises(e.SqlError) as refused:
        beside.world.client.create_query("SELECT COUNT(*) AS n\nFROM V\nWINDOW BETWEEN -2000 AND -1000")
    assert (refused.value.line, refused.value.column, refused.value.token) == (3, 8, "BETWEEN")
    assert "let it begin after" in refused.value.hint


@pytest.mark.parametrize(
    "rows",
    [
        [{"ts": None, "vID": 1, "geo": "x"}],
        [{"vID": 1, "geo": "x"}],
        [{"ts": "yesterday", "vID": 1, "geo": "x"}],
        [{"ts": 1, "vID": "seven", "geo": "x"}],
        [{"ts": 1, "vID": 1 << 70, "geo": "x"}],
        [{"ts": 1, "vID": 1.5, "geo": "x"}],
        ["not an object"],
    ],
    ids=["NULL time", "no time", "time as text", "text for a number", "too large", "a fraction", "no object"],
)
def test_broken_tuples_become_dead_letters(beside, rows):
    before = beside.world.client.stream("V").dead_letter
    beside.world.feed({"V": rows})
    assert beside.world.client.stream("V").dead_letter == before + 1
    letter = beside.world.client.dead_letters("V")[-1]
    assert letter.reason and letter.stream == "V"
    beside.delivers_its_next_window()


@pytest.mark.parametrize("name", ['with "quotes"', "it's", "名前", "Straße", "select", "🎬 films"])
def test_names_in_quotes_and_unicode_are_fine(beside, name):
    client = beside.world.client
    quoted = '"' + name.replace('"', '""') + '"'
    client.create_stream(name, columns={"ts": "TIMESTAMP", name: "BIGINT"}, time="ts", source="push")
    text = f"SELECT a.{quoted} FROM {quoted} a JOIN V ON a.{quoted} = V.vID {WINDOW}"
    info = client.create_query(text, id=name)
    assert (info.id, info.outputs) == (name, (name,))
    beside.delivers_its_next_window()
    beside.world.feed({name: [{"ts": 1000 * beside.windows, name: beside.windows}]})
    assert [r[name] for r in client.results(name, limit=1, timeout=WAIT)] == [beside.windows]
    client.delete_query(name)
    client.delete_stream(name)


def test_500_columns_are_fine(beside):
    client = beside.world.client
    wide = {"ts": "TIMESTAMP", **{f"c{i}": "BIGINT" for i in range(499)}}
    assert len(client.create_stream("wide", columns=wide, time="ts", source="push").schema.columns) == 500
    info = client.create_query(f"SELECT wide.* FROM wide JOIN W ON wide.c0 = W.vID {WINDOW}", id="wide")
    assert len(info.outputs) == 500
    client.delete_query("wide")
    client.delete_stream("wide")
    beside.delivers_its_next_window()


def test_too_many_queries(beside):
    client = beside.world.client
    outcomes = client.create_queries([JOIN] * 25)
    refused = [o for o in outcomes if isinstance(o, e.AJoinError)]
    assert {(type(o), o.reason) for o in refused} == {(e.ResourceExhausted, "TOO_MANY_QUERIES")}
    assert len(outcomes) - len(refused) == 19
    for outcome in outcomes[:19]:
        client.delete_query(outcome.id)
    beside.delivers_its_next_window()


def test_nothing_of_it_is_left(beside):
    client = beside.world.client
    assert [s.schema.name for s in client.streams()] == ["V", "W"]
    running = [q for q in client.queries() if q.state == "RUNNING"]
    assert [(q.id, q.rows) for q in running] == [("beside", beside.windows)]
    assert client.status().state == "RUNNING"
    assert {c.name for c in client.stream("W").schema.columns} == set(W)
