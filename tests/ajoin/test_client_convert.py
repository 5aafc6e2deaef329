"""Values survive the way through messages."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ajoin.client import requests
from ajoin.client.results import Batch, Collector, Cursor, Progress, Results
from ajoin.errors import InvalidRequest
from ajoin.platform.statistics import EpochSummary, QueryStatistics, Statistics, StreamStatistics
from ajoin.v1 import plan_pb2, queries_pb2, results_pb2, streams_pb2
from ajoin.wire import convert
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import DeadLetterInfo, PlanEvent, PlatformStatus, QueryInfo, QueryState, SinkStatus, StreamInfo
from runtime.connectors.base import ConnectorSpec

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
counts = st.integers(0, 1 << 62)
times = st.none() | st.integers(-(1 << 62), 1 << 62)
connectors = st.builds(
    ConnectorSpec, texts, st.dictionaries(texts, texts, max_size=3).map(lambda d: tuple(sorted(d.items())))
)
columns = st.lists(st.builds(Column, texts, st.sampled_from(ColumnType)), max_size=4).map(tuple)
schemas = st.builds(StreamSchema, texts, columns, texts, counts, counts, st.none() | counts)
ids = st.lists(texts, max_size=3).map(tuple)
small = st.integers(0, 1 << 30)
sink_statuses = st.builds(SinkStatus, texts, texts, small, texts, counts, counts, texts, times, counts, times, counts)


@given(
    st.builds(
        StreamInfo,
        schemas,
        connectors,
        counts,
        counts,
        counts,
        times,
        times,
        ids,
        counts,
        texts,
        st.booleans(),
        st.none() | counts,
    )
)
def test_stream(info):
    assert convert.stream_from_pb(convert.stream_to_pb(info)) == info


@given(
    st.builds(
        QueryInfo,
        id=texts,
        uid=texts,
        sql=texts,
        state=st.sampled_from(QueryState),
        active_from=times,
        active_until=times,
        watermark=times,
        rows=counts,
        plan_version=counts,
        epoch=counts,
        group=st.integers(0, 1 << 30),
        outputs=ids,
        sinks=st.lists(connectors, max_size=2).map(tuple),
        created_at_ms=counts,
        deployment_latency_ms=counts,
        deliveries=st.lists(sink_statuses, max_size=2).map(tuple),
        suspended=texts,
        lag_ms=st.none() | counts,
        epochs_behind=counts,
    )
)
def test_query(info):
    assert convert.query_from_pb(convert.query_to_pb(info)) == info


@given(st.builds(PlanEvent, counts, counts, ids, texts))
def test_plan_event(event):
    assert convert.plan_event_from_pb(convert.plan_event_to_pb(event)) == event


def test_status():
    for state, lag in zip(("STARTING", "RUNNING", "STOPPING", "STOPPED", "FAILED"), (None, 0, 1, 2, 3), strict=True):
        stages, backlog = {"join": 1.5}, {"V": 7}
        status = PlatformStatus(state, 1, 2, 3, 4, 5, 6, 7, 8, 0.5, 9.0, stages, "why", 0.25, backlog, ("V",), lag)
        failing = SinkStatus("q", "q#1", 1, "kafka", 3, 40, "no broker", 1_700, 5, None, 2)
        status = replace(status, sinks=2, sinks_behind=(failing,))
        assert convert.status_from_pb(convert.status_to_pb(status, "0.1.0")) == status


def test_statistics():
    statistics = Statistics(
        (EpochSummary(1, 2, 3, 4, {"sink": 0.25}, 0.5, ("V", "W")),),
        (StreamStatistics("V", 1, 2.0, 3, 4, 5, "tuples", True, 6), StreamStatistics("W", 0, 0.0, 0, 0)),
        (QueryStatistics("a", 1, 2.0, None), QueryStatistics("b", 1, 2.0, 0)),
    )
    assert convert.statistics_from_pb(convert.statistics_to_pb(statistics)) == statistics


def test_dead_letter():
    letter = DeadLetterInfo("V", 3, "a.csv:7", "not a number", "x,y")
    assert convert.dead_letter_from_pb("V", convert.dead_letter_to_pb(letter)) == letter


@pytest.mark.parametrize(
    ("order", "read"),
    [
        ([["V", "W"], "C"], (("V", "W"), "C")),
        (("V", ("W", "C")), ("V", ("W", "C"))),
        (["V", "W", "C", "R"], ((("V", "W"), "C"), "R")),
    ],
)
def test_join_order(order, read):
    assert convert.order_from_pb(convert.order_to_pb(order)) == read


@pytest.mark.parametrize(
    "message",
    [
        plan_pb2.JoinOrder(),
        plan_pb2.JoinOrder(inputs=[plan_pb2.JoinOrder(alias="V")]),
        plan_pb2.JoinOrder(alias="V", inputs=[plan_pb2.JoinOrder(alias="W")] * 2),
    ],
    ids=["empty", "one input", "leaf with inputs"],
)
def test_join_order_that_is_no_tree(message):
    with pytest.raises(InvalidRequest) as refused:
        convert.order_from_pb(message)
    assert refused.value.reason == "INVALID_JOIN_ORDER"


@pytest.mark.parametrize("number", [0, 99])
def test_unknown_column_type(number):
    spec = streams_pb2.StreamSpec(name="V", columns=[streams_pb2.Column(name="a", type=number)])
    with pytest.raises(InvalidRequest) as refused:
        convert.schema_from_pb(spec)
    assert refused.value.reason == "UNKNOWN_COLUMN_TYPE"


def test_unknown_enum_number():
    with pytest.raises(InvalidRequest) as refused:
        convert.query_state_from_pb(77)
    assert refused.value.reason == "UNKNOWN_ENUM_VALUE" and "RUNNING" in refused.value.hint


def test_options_are_texts():
    options = requests.option_texts({"rate": 1000, "zipf": 0.5, "loop": True, "path": "x"})
    assert dict(options) == {"rate": "1000", "zipf": "0.5", "loop": "true", "path": "x"}


def test_sinks_as_users_write_them():
    spec = ConnectorSpec("blackhole")
    assert requests.sink_specs(["console", ("parquet", {"path": "/x"}), spec]) == (
        ConnectorSpec("console"),
        ConnectorSpec("parquet", (("path", "/x"),)),
        spec,
    )


# -- results ----------------------------------------------------------------------------------------------


def batch(values: list[int], epoch: int) -> Batch:
    return Batch(pa.table({"x": values}), Cursor(epoch, 0))


def progress(watermark: int | None, epoch: int) -> Progress:
    return Progress(watermark, epoch, Cursor(epoch, 9), QueryState.RUNNING)


def gather(items, **conditions) -> Results:
    schema = pa.schema([("x", pa.int64())])
    collector = Collector(schema, conditions.pop("start", None), **{"limit": None, "until": None, **conditions})
    for item in items:
        if collector.take(item):
            break
    return collector.results


def test_collecting_ends_with_what_there_is():
    results = gather([batch([1, 2], 1), progress(10, 1), batch([3], 2)])
    assert results.to_arrow().to_pydict() == {"x": [1, 2]}
    assert (results.cursor, results.watermark) == (Cursor(1, 9), 10)


def test_collecting_a_number_of_rows_stops_inside_a_batch():
    results = gather([progress(None, 0), batch([1, 2], 1), progress(5, 1), batch([3, 4, 5], 2)], limit=4)
    assert [row["x"] for row in results] == [1, 2, 3, 4]
    assert results.cursor == Cursor(1, 9, 2)


def test_collecting_until_a_watermark():
    results = gather([batch([1], 1), progress(5, 1), batch([2], 2), progress(7, 2), batch([3], 3)], until=6)
    assert [row["x"] for row in results] == [1, 2] and results.watermark == 7


def test_results_without_rows_have_columns():
    schema = pa.schema([("window_start", pa.timestamp("ms")), ("a", pa.int32())])
    table = Results(schema).to_arrow()
    assert table.schema == schema and table.num_rows == 0


def test_results_become_frames():
    results = gather([batch([1], 1), batch([2], 2)])
    assert results.to_pandas()["x"].tolist() == [1, 2]
    assert results.to_polars()["x"].to_list() == [1, 2]
    assert len(results) == 2


@given(st.builds(Cursor, counts, counts, counts))
def test_cursor(cursor):
    assert Cursor.parse(str(cursor)) == cursor
    assert convert.cursor_from_pb(convert.cursor_to_pb(cursor)) == cursor


@pytest.mark.parametrize("text", ["", "1", "a:b", "1:2:3:4", "-1:2", "1: 2", "١:٢"])
def test_texts_that_are_no_cursor(text):
    with pytest.raises(InvalidRequest) as refused:
        Cursor.parse(text)
    assert refused.value.reason == "BAD_CURSOR"


def test_an_item_is_rows_or_progress():
    rows = pa.RecordBatch.from_pydict({"x": [1, None]})
    sent = results_pb2.ResultBatch(
        arrow_ipc=convert.table_to_ipc(rows), cursor=results_pb2.Cursor(epoch=3, sequence=1), rows=2
    )
    item = convert.item_from_pb(results_pb2.SubscribeResponse(batch=sent))
    assert item.cursor == Cursor(3, 1) and item.table.to_pydict() == {"x": [1, None]}
    marker = results_pb2.Progress(epoch=4, state=queries_pb2.QUERY_STATE_DELETED)
    item = convert.item_from_pb(results_pb2.SubscribeResponse(progress=marker))
    assert item == Progress(None, 4, Cursor(0, 0), QueryState.DELETED)
