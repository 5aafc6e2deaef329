"""The Kafka source against a real broker: where it starts, what it reads, and what it says of what it cannot."""

from __future__ import annotations

import pickle
import threading

import pytest
from kafka import TopicPartition

from optimizer.errors import AJoinError, InvalidRequest, NotFound, Unavailable
from runtime.connectors.kafka.connection import close_idle
from runtime.connectors.kafka.source import KafkaSource, parse_config
from tests.kafka.broker import PASSWORD, USER
from tests.kafka.support import SCHEMA, arrow_message, load, message, options, source, take


def test_start_positions(broker, topic):
    t = topic(partitions=2)
    broker.send(t, message(1), message(2), timestamp_ms=1_000)
    broker.send(t, message(3), timestamp_ms=2_000)
    broker.send(t, message(4), partition=1, timestamp_ms=1_500)

    def start(text: str) -> dict[str, int]:
        return source(broker, t, start=text).initial()["next"]

    assert start("earliest") == {"0": 0, "1": 0}
    assert start("latest") == {"0": 3, "1": 1}
    assert start("2000") == {"0": 2, "1": 1}
    assert start("1970-01-01T00:00:01.200Z") == {"0": 2, "1": 0}
    assert start("0:1,1:1") == {"0": 1, "1": 1}
    assert start("1:1") == {"0": 0, "1": 1}, "a partition that is not named starts at its first message"
    for wrong, why in (("0:9", "cannot start at 9: it holds 0 to 3"), ("7:0", "there is no such partition")):
        with pytest.raises(InvalidRequest, match=why):
            start(wrong)


def test_a_read_is_as_small_for_many_messages_as_for_few(broker, topic):
    """What is sent to tasks of other sources: test_exchange."""
    sizes = []
    for n in (20, 2_000):
        t = topic()
        broker.send(t, *(message(k) for k in range(n)))
        reader = source(broker, t, parallelism=1)
        start = reader.initial()
        keys: list[int] = []
        while len(keys) < n:  # the driver may learn of the last ones late
            end = reader.latest(start, 0)
            keys, dead = load(reader, start, end)
        assert sorted(keys) == list(range(n)) and not dead
        sizes.append(len(pickle.dumps(reader.reads(start, end))))
    assert sizes[1] < sizes[0] + 20


def test_a_stream_over_a_topic_that_does_not_exist_is_refused(broker):
    with pytest.raises(NotFound, match="has no topic 'nowhere'") as refused:
        source(broker, "nowhere").initial()
    assert refused.value.reason == "KAFKA_TOPIC_NOT_FOUND"


def test_a_stream_can_be_read_from_another_place_on(broker, topic):
    t = topic(partitions=2)
    broker.send(t, *(message(k) for k in range(3)))
    s = source(broker, t, start="latest")
    stands = s.initial()
    assert stands["next"] == {"0": 3, "1": 0}
    assert s.seek("earliest", stands, 0) == {**stands, "next": {"0": 0, "1": 0}}
    assert s.seek("0:2", stands, 0)["next"] == {"0": 2, "1": 0} and s.seek("latest", stands, 0) == stands
    for wrong, why in (("0:9", "cannot start at 9: it holds 0 to 3"), ("soon", "a time like")):
        with pytest.raises(InvalidRequest, match=why) as refused:
            s.seek(wrong, stands, 0)
        assert refused.value.reason == "BAD_OFFSET"


def test_messages_come_once_and_in_the_order_of_their_partitions(broker, topic):
    t = topic(partitions=2)
    broker.send(t, *(message(k) for k in range(5)))
    broker.send(t, *(message(k) for k in range(10, 13)), partition=1)
    s = source(broker, t)
    keys, dead, end = take(s)
    assert (keys, dead) == ([0, 1, 2, 3, 4, 10, 11, 12], [])
    assert s.latest(end, 0) == end, "nothing new"
    broker.send(t, message(5))
    keys, _, end2 = take(s, end)
    assert keys == [5]
    assert load(s, s.initial(), end2)[0] == [0, 1, 2, 3, 4, 5, 10, 11, 12], "a range means the same for ever"


def test_the_rate_limit_is_shared_in_proportion_to_what_waits(broker, topic):
    t = topic(partitions=2)
    broker.send(t, *(message(k) for k in range(30)))
    broker.send(t, *(message(k) for k in range(100, 110)), partition=1)
    s = source(broker, t, max_messages=8)
    end = s.latest(s.initial(), 0)
    assert end["next"] == {"0": 6, "1": 2}
    seen: list[int] = []
    at = s.initial()
    while (end := s.latest(at, 0)) != at:
        keys, _ = load(s, at, end)
        assert len(keys) <= 8
        seen += keys
        at = end
    assert sorted(seen) == [*range(30), *range(100, 110)]


def test_one_large_partition_is_read_by_several_tasks(broker, topic):
    t = topic()
    broker.send(t, *(message(k) for k in range(6_000)))
    s = source(broker, t, parallelism=3)
    start = s.initial()
    reads = s.reads(start, s.latest(start, 0))
    assert [[(p.start, p.end) for p in r.pieces] for r in reads] == [[(0, 2000)], [(2000, 4000)], [(4000, 6000)]]
    assert load(s, start, s.latest(start, 0))[0] == list(range(6_000))


def test_partitions_that_appear_later_are_read_from_their_first_message(broker, topic):
    t = topic()
    s = source(broker, t, start="latest")
    start = s.initial()
    broker.send(t, message(1))
    _, _, end = take(s, start)
    with broker.admin() as admin:
        admin.create_partitions({t: 3})
        admin.wait_for_topics([t])
    assert s.latest(end, 0) == end, "empty partitions are no news"
    broker.send(t, message(2), partition=2)
    keys, dead, end = take(s, end)
    assert (keys, dead, end["next"]) == ([2], [], {"0": 1, "2": 1})


def test_broken_messages_name_topic_partition_and_offset(broker, topic):
    t = topic()
    values = [message(1), b"{", b'{"k":"x","ts":0}', None, b"[1]", b'{"k":2}\n{"k":3}', message(4), b"\xff{}"]
    broker.send(t, *values)
    keys, dead, _ = take(source(broker, t))
    assert keys == [1, 4]
    places = [letter.place for letter in dead]
    assert places == [f"{t} partition 0 offset {n}" for n in (1, 2, 3, 4, 5, 7)]
    reasons = " | ".join(letter.reason for letter in dead)
    for said in ("not a JSON object", "column k: expected BIGINT", "tombstone", "got a list"):
        assert said in reasons


def test_arrow_messages_and_broken_ones_among_them(broker, topic):
    t = topic()
    whole = arrow_message(1, 2, 3)
    broker.send(t, whole, whole[: len(whole) // 2], arrow_message(), arrow_message(4), b"", None)
    keys, dead, _ = take(source(broker, t, format="arrow"))
    assert keys == [1, 2, 3, 4]
    assert [letter.place for letter in dead] == [f"{t} partition 0 offset {n}" for n in (1, 4, 5)]


def test_only_committed_transactions_are_read_and_open_ones_are_waited_for(broker, topic, names):
    t = topic()
    with broker.producer(transactional_id=names("tx")) as producer:
        producer.init_transactions()
        s = source(broker, t)
        at = s.initial()
        for k, commit in ((1, True), (2, False), (3, True), (4, False), (5, False)):
            producer.begin_transaction()
            producer.send(t, message(k), partition=0)
            producer.send(t, message(10 * k), partition=0)
            producer.flush()
            if k == 3:
                open_end = s.latest(at, 0)
                keys, dead = load(s, at, open_end)
                assert (keys, dead) == ([1, 10], []), "transaction 3 is not decided yet"
            producer.commit_transaction() if commit else producer.abort_transaction()
    keys, dead, end = take(s, open_end)
    assert (keys, dead) == ([3, 30], [])
    assert s.latest(end, 0) == end, "aborted messages at the end are behind us, too"


def test_expired_messages_are_a_dead_letter_and_the_rest_is_read(broker, topic):
    t = topic()
    broker.send(t, *(message(k) for k in range(10)))
    s = source(broker, t)
    start = s.initial()
    end = s.latest(start, 0)
    with broker.admin() as admin:
        admin.delete_records({TopicPartition(t, 0): 6})
    keys, (letter,) = load(s, start, end)
    assert keys == [6, 7, 8, 9]
    assert letter.place == f"{t} partition 0 offset 0"
    assert "offsets 0 to 5 are lost: the topic holds 6 to 10 now" in letter.reason


def test_a_topic_created_again_is_read_from_its_beginning_and_says_so(broker, topic):
    t = topic()
    broker.send(t, *(message(k) for k in range(5)))
    s = source(broker, t, timeout_ms=5_000)
    _, _, end = take(s)
    broker.send(t, message(5))
    planned = s.latest(end, 0)
    with broker.admin() as admin:
        admin.delete_topics([t])
    assert s.latest(end, 0) == end, "no topic, no news"
    broker.create_topic(t)
    close_idle()
    keys, (lost,) = load(s, end, planned)
    assert (keys, "offsets 5 to 5 are lost" in lost.reason) == ([], True)
    broker.send(t, message(100), message(101))
    keys, (letter,), last = take(s, end, now_ms=60_000)
    assert keys == [100, 101]
    assert letter.place == f"topic {t}"
    assert "deleted and created again" in letter.reason and '{"0": 5}' in letter.reason
    assert last["topic"] != end["topic"]


def test_tls_and_login(broker, topic, monkeypatch):
    t = topic()
    broker.send(t, message(1))
    monkeypatch.setenv("AJOIN_SECRET_KAFKA", PASSWORD)
    login = {
        "bootstrap": broker.secure_address,
        "topic": t,
        "start": "earliest",
        "security.protocol": "SASL_SSL",
        "ssl.cafile": str(broker.certificate),
        "sasl.mechanism": "PLAIN",
        "sasl.plain_username": USER,
        "sasl.plain_password": "env:AJOIN_SECRET_KAFKA",
    }
    keys, dead, _ = take(KafkaSource(parse_config(login)))
    assert (keys, dead) == ([1], [])
    for wrong in ({"sasl.plain_password": "wrong"}, {"ssl.cafile": str(broker.certificate) + ".gone"}):
        with pytest.raises(AJoinError, match=r"ssl\. and sasl\. options"):
            KafkaSource(parse_config({**login, **wrong})).initial()


def test_brokers_that_nobody_answers_for(caplog):
    nowhere = {"bootstrap": "127.0.0.1:9", "topic": "t", "timeout_ms": "300"}
    s = KafkaSource(parse_config(nowhere))
    with pytest.raises(Unavailable, match="does not answer") as refused:
        s.initial()
    assert refused.value.reason == "KAFKA_UNAVAILABLE"
    start = {"topic": "x", "next": {"0": 3}}
    assert s.latest(start, 0) == start
    assert "next try in 0.5 s" in caplog.text
    caplog.clear()
    assert s.latest(start, 499) == start
    assert caplog.text == "", "it waits before it asks again"
    assert s.latest(start, 500) == start
    assert "next try in 1.0 s" in caplog.text
    (read,) = s.reads(start, {"topic": "x", "next": {"0": 4}})
    with pytest.raises(Unavailable):
        read.load(SCHEMA)


def test_a_read_waits_for_brokers_that_come_back(broker, topic):
    t = topic()
    broker.send(t, *(message(k) for k in range(100)))
    s = KafkaSource(parse_config(options(broker, t, start="earliest", timeout_ms=60_000)))
    start = s.initial()
    end = s.latest(start, 0)
    broker.stop(kill=True)
    try:
        assert s.latest(start, 0) == start
        got: list[object] = []
        reader = threading.Thread(target=lambda: got.append(load(s, start, end)))
        reader.start()
    finally:
        broker.start()
    reader.join()
    assert got == [(list(range(100)), [])]
    assert s.latest(start, 60_000) == end
