"""The Kafka sink against a real broker: an epoch is in the topic once, whoever wrote it how often."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from optimizer.errors import FailedPrecondition, InvalidRequest, ResourceExhausted
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.connectors.base import ConnectorSpec, Sink
from runtime.connectors.kafka.source import KafkaSource, parse_config
from runtime.connectors.registry import make_sink
from tests.kafka.broker import Broker
from tests.kafka.support import message, options, spec
from tests.runtime.rig import Rig

ROWS = StreamSchema(
    "R",
    (
        Column("window_start", ColumnType.TIMESTAMP),
        Column("window_end", ColumnType.TIMESTAMP),
        Column("a.n", ColumnType.BIGINT),
        Column("x", ColumnType.DOUBLE),
    ),
    "window_start",
)


def rows(*values: int, x: float = 0.5) -> pa.Table:
    n = len(values)
    return pa.table(
        {
            "window_start": pa.array([1000] * n, pa.timestamp("ms")),
            "window_end": pa.array([2000] * n, pa.timestamp("ms")),
            "a.n": pa.array(values, pa.int64()),
            "x": pa.array([x] * n, pa.float64()),
        }
    )


def sink(broker: Broker, **more: object) -> Sink:
    return make_sink(ConnectorSpec("kafka", tuple({"bootstrap": broker.address, **_texts(more)}.items())))


def _texts(more: dict[str, object]) -> dict[str, str]:
    return {k: str(v) for k, v in more.items()}


def numbers(broker: Broker, topic: str) -> list[int]:
    return [json.loads(m.value)["a.n"] for m in broker.messages(topic)]


@pytest.mark.parametrize("format", ["json", "arrow"])
def test_what_the_sink_writes_a_source_reads_back(broker, names, format):
    id = names("query")
    out = sink(broker, format=format)
    out.write(id, 1, rows(1, 2))
    out.write(id, 2, rows())
    out.write(id, 3, rows(3))
    out.close()
    t = f"ajoin.{id}"
    source = KafkaSource(parse_config(options(broker, t, format=format, start="earliest")))
    start = source.initial()
    (read,) = source.reads(start, source.latest(start, 0))
    loaded = read.load(ROWS)
    assert loaded.dead == []
    assert loaded.table.equals(rows(1, 2, 3))
    headers = [dict(m.headers) for m in broker.messages(t)]
    places = [(h["ajoin.query"].decode(), int(h["ajoin.epoch"]), int(h["ajoin.sequence"])) for h in headers]
    per_epoch = [(1, 0), (1, 1), (3, 0)] if format == "json" else [(1, 0), (3, 0)]
    assert places == [(id, *p) for p in per_epoch]


def test_a_repeated_epoch_is_written_once_also_by_another_process(broker, names):
    id = names("query")
    first = sink(broker)
    for epoch in (5, 6):
        first.write(id, epoch, rows(epoch, 10 * epoch))
    first.write(id, 6, rows(6, 60))
    first.close()
    second = sink(broker)
    for epoch in (5, 6, 7):
        second.write(id, epoch, rows(epoch, 10 * epoch))
    second.close()
    assert numbers(broker, f"ajoin.{id}") == [5, 50, 6, 60, 7, 70]


def test_what_a_dead_writer_left_open_is_never_seen(broker, names):
    id = names("query")
    t = f"ajoin.{id}"
    done = sink(broker)
    done.write(id, 1, rows(1))
    done.close()
    dead = broker.producer(transactional_id=f"ajoin.{t}.{id}")
    dead.init_transactions()
    dead.begin_transaction()
    dead.send(t, b"half an epoch", partition=0)
    dead.flush()
    out = sink(broker)
    out.write(id, 2, rows(2))
    assert numbers(broker, t) == [1, 2]
    with pytest.raises(Exception, match=r"[Ff]enced|ProducerEpoch"):
        dead.commit_transaction()
    dead.close(timeout=0)
    out.close()


def test_a_platform_that_starts_over_does_not_mistake_old_epochs_for_its_own(broker, names):
    id = names("query")
    for life in (100, 200):
        out = sink(broker)
        for epoch in (1, 2, 3):
            out.write(id, epoch, rows(life + epoch))
        out.close()
    assert numbers(broker, f"ajoin.{id}") == [101, 102, 103, 201, 202, 203]


def test_two_writers_of_one_query_fence_each_other(broker, names):
    id = names("query")
    first, second = sink(broker), sink(broker)
    first.write(id, 1, rows(1))
    second.write(id, 2, rows(2))
    with pytest.raises(FailedPrecondition) as refused:
        first.write(id, 3, rows(3))
    assert refused.value.reason == "KAFKA_FENCED"
    assert numbers(broker, f"ajoin.{id}") == [1, 2]
    first.close()
    second.close()


def test_queries_may_share_a_topic(broker, topic):
    t = topic("shared", partitions=2)
    one, two = sink(broker, topic=t, key="a.n"), sink(broker, topic=t)
    for epoch in (1, 2):
        one.write("q1", epoch, rows(*range(10 * epoch, 10 * epoch + 5)))
        two.write("q2", epoch, rows(epoch))
    one.close()
    again = sink(broker, topic=t, key="a.n")
    again.write("q1", 2, rows(*range(20, 25)))
    again.close()
    two.close()
    messages = broker.messages(t)
    assert sorted(json.loads(m.value)["a.n"] for m in messages) == [1, 2, *range(10, 15), *range(20, 25)]
    keyed = [m for m in messages if m.key is not None]
    assert {m.partition for m in keyed} == {0, 1}
    assert all(m.key.decode() == str(json.loads(m.value)["a.n"]) for m in keyed)


def test_at_least_once_needs_no_transactions_and_keeps_the_headers(broker, names):
    id = names("query")
    for _ in range(2):
        out = sink(broker, guarantee="at-least-once", topic="plain.{query}")
        out.write(id, 4, rows(1, 2))
        out.close()
    messages = broker.messages(f"plain.{id}")
    places = [tuple(int(dict(m.headers)[h]) for h in ("ajoin.epoch", "ajoin.sequence")) for m in messages]
    assert places == [(4, 0), (4, 1)] * 2, "a reader can tell which ones are repeated"


def test_large_results_are_cut_and_rows_that_never_fit_refused(broker, names):
    id = names("query")
    out = sink(broker, format="arrow", max_message_bytes=5_000)
    out.write(id, 1, rows(*range(1_000)))
    messages = broker.messages(f"ajoin.{id}")
    assert len(messages) > 4
    assert all(len(m.value) <= 5_000 for m in messages)
    tables = [pa.ipc.open_stream(m.value).read_all() for m in messages]
    assert pa.concat_tables(tables)["a.n"].to_pylist() == list(range(1_000))
    out.close()
    wide = pa.table({"text": ["x" * 2_000]})
    with pytest.raises(ResourceExhausted, match="max_message_bytes is 1000"):
        sink(broker, max_message_bytes=1_000).write(id, 2, wide)


def test_odd_values_and_names(broker, names):
    id = names("ü q/1")
    out = sink(broker)
    out.write(id, 1, rows(1, x=float("nan")))
    out.close()
    (t,) = (t for t in broker.admin().list_topics() if t.startswith(f"ajoin.__q_1-{id.rpartition('-')[2]}-"))
    (m,) = broker.messages(t)
    assert json.loads(m.value) == {"window_start": 1000, "window_end": 2000, "a.n": 1, "x": None}
    with pytest.raises(InvalidRequest, match="'nope', which is no output"):
        sink(broker, key="nope").write(id, 1, rows(1))
    with pytest.raises(InvalidRequest, match="needs format=json"):
        sink(broker, key="x", format="arrow")


def test_a_query_from_topics_into_a_topic(broker, topic, names, tmp_path):
    from ajoin.sql import parse_query
    from runtime.api import CreateQuery

    v, w, id = topic("v"), topic("w"), names("query")
    r = Rig(tmp_path)
    r.stream("V", spec(broker, v), k="BIGINT")
    r.stream("W", spec(broker, w), k="BIGINT")
    query = parse_query("SELECT V.k FROM V JOIN W ON V.k = W.k WINDOW TUMBLING (SIZE 1 SECOND)", r.engine.schemas())
    r.control(CreateQuery(id, query, (ConnectorSpec("kafka", (("bootstrap", broker.address),)),)))
    expected: list[dict[str, Any]] = []
    for k in range(3):
        broker.send(v, message(k, ts=k * 1000))
        broker.send(w, message(k, ts=k * 1000))
        r.epoch()
        r.reopen()
        expected.append({"window_start": k * 1000, "window_end": k * 1000 + 1000, "k": k})
    assert [json.loads(m.value) for m in broker.messages(f"ajoin.{id}")] == expected
    r.engine.abandon()
