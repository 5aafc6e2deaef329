"""Whole batches out of the library's fetcher, against what it gives record by record, from a real broker."""

from __future__ import annotations

import random
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import Fetcher

from runtime.connectors.kafka.connection import Connection, close_idle
from runtime.connectors.kafka.packed import join_messages
from runtime.connectors.kafka.read import Piece, fetch
from runtime.connectors.kafka.whole_batches import Batch, batch_consumer, by_batch
from tests.kafka.broker import Broker


def one_by_one(broker: Broker, topic: str) -> list[tuple[int, bytes | None]]:
    return [(m.offset, m.value) for m in broker.messages(topic)]


def by_batches(broker: Broker, topic: str, start: int, end: int) -> list[tuple[int, bytes | None]]:
    whole = join_messages(fetch(Connection((broker.address,)), topic, Piece(0, start, end), 20_000).parts)
    return list(zip(whole.offsets.tolist(), whole, strict=True))


def write(broker: Broker, topic: str, draw: random.Random, count: int, **settings: Any) -> None:
    """Values of any size, also none; keys and headers that must be skipped."""
    sizes = (0, 1, 63, 64, 127, 128, 5_000, 20_000)
    with broker.producer(
        linger_ms=draw.choice((0, 5, 50)), batch_size=1 << draw.randint(9, 16), **settings
    ) as producer:
        for _ in range(count):
            value = draw.choice((None, *(draw.randbytes(draw.choice(sizes)) for _ in range(4))))
            key = draw.choice((None, b"", draw.randbytes(draw.choice((3, 70, 300)))))
            headers = [
                ("h" * draw.choice((0, 1, 200)), draw.choice((b"", b"v" * 130))) for _ in range(draw.randint(0, 3))
            ]
            producer.send(topic, value, key=key if value is not None else b"k", partition=0, headers=headers)
        producer.flush()


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_the_same_messages_whatever_they_look_like(broker, topic, compression):
    draw = random.Random(compression or "plain")
    t = topic("batches")
    for _ in range(3):
        write(broker, t, draw, 150, compression_type=compression)
    expected = one_by_one(broker, t)
    assert len(expected) == 450
    assert by_batches(broker, t, 0, 450) == expected
    for _ in range(8):  # pieces begin and end inside batches
        start = draw.randint(0, 449)
        end = draw.randint(start + 1, 450)
        assert by_batches(broker, t, start, end) == expected[start:end]


def test_transactions_and_their_markers(broker, topic):
    """Aborted messages and markers take up offsets and bring nothing."""
    t = topic("transactions")
    with broker.producer(transactional_id="batches-test", linger_ms=0) as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            for i in range(20):
                producer.send(t, f"{number}.{i}".encode(), partition=0)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    broker.send(t, b"plain")
    expected = one_by_one(broker, t)
    assert [v for _, v in expected] == [*(f"{n}.{i}".encode() for n in (0, 2, 4) for i in range(20)), b"plain"]
    assert by_batches(broker, t, 0, expected[-1][0] + 1) == expected
    middle = [m for m in expected if 10 <= m[0] < 50]
    assert by_batches(broker, t, 10, 50) == middle


def test_batches_really_come_as_batches(broker, topic):
    """Else the library has changed, and reading is slow again without anybody noticing."""
    t = topic("whole")
    with broker.producer(linger_ms=200) as producer:
        for i in range(100):
            producer.send(t, b"%d" % i, partition=0)
    place = TopicPartition(t, 0)
    with batch_consumer(Connection((broker.address,)), 5_000) as client:
        client.assign([place])
        client.seek(place, 0)
        records: list[Any] = []
        while not records:
            records = client.poll(500).get(place, [])
    assert all(isinstance(r.value, Batch) for r in records), (
        "kafka-python has changed: see runtime/connectors/kafka/whole_batches.py"
    )
    assert len(records) < 100


def test_another_library_is_read_record_by_record(broker, topic, monkeypatch):
    """Where the inner class looks different, nothing is touched."""
    t = topic("other")
    write(broker, t, random.Random(1), 50)
    own = Fetcher.PartitionRecords
    real = own._unpack_records
    monkeypatch.setattr(own, "_unpack_records", lambda self, tp, records, *more: real(self, tp, records, *more))
    close_idle()
    with by_batch(KafkaConsumer(bootstrap_servers=broker.address)) as client:
        assert client._fetcher.PartitionRecords is own
    assert by_batches(broker, t, 0, 50) == one_by_one(broker, t)
    close_idle()
