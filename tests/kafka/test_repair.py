"""Damaged buckets of Kafka streams are read again from the topic, as long as it reaches back so far."""

from __future__ import annotations

import pytest
from kafka import TopicPartition

from optimizer.errors import InternalError, Unavailable
from tests.kafka.support import arrow_message, message, spec
from tests.kafka.test_engine import LONG, SQL, drain, keys, rig
from tests.runtime.damage_world import kinds, remove, repairs
from tests.runtime.rig import Rig


@pytest.fixture
def half(broker, topic, tmp_path):
    """A join with all of V read and W still to come; V has two partitions, two reads an epoch and a dead letter."""
    v, w = topic("v", partitions=2), topic("w")
    for p in range(2):
        broker.send(v, *(message(k) for k in range(p, 6_000, 2)), b"broken", partition=p)
    limits = {"max_messages": 5_000, "parallelism": 2}
    r = rig(tmp_path, V=spec(broker, v, **limits), W=spec(broker, w, format="arrow"))
    r.create("q", SQL)
    drain(r)
    assert len(kinds(r.engine.state)["base"]) >= 3, "several reads in more than one epoch"
    broker.send(w, arrow_message(*range(6_000)))
    return r, v


def seen(r: Rig) -> tuple[int, int, int]:
    info = r.engine.stream("V")
    return info.tuples, info.dead_letter, info.late_dropped


@pytest.mark.parametrize("restart", [False, True])
def test_the_topic_brings_the_same_tuples_again(half, restart):
    r, _ = half
    before = seen(r)
    remove(r, kinds(r.engine.state)["base"])
    if restart:
        r.reopen(kill=True)
    drain(r)
    assert keys(r) == list(range(6_000)), "each pair once"
    assert repairs(r.engine) == 1 and seen(r) == before == (6_000, 2, 0)


def test_messages_that_expired_are_a_loss_and_nothing_is_delivered(broker, half):
    r, v = half
    remove(r, kinds(r.engine.state)["base"][:1])
    with broker.admin() as admin:
        admin.delete_records({TopicPartition(v, 0): 10})
    with pytest.raises(InternalError, match=r"is lost: .*offsets 0 to 9 are lost") as caught:
        r.epoch()
    assert caught.value.reason == "BUCKET_LOST" and keys(r) == []


def test_a_broker_that_is_away_is_waited_for(broker, topic, tmp_path):
    v = topic("v")
    broker.send(v, *(message(k) for k in range(20)))
    r = rig(tmp_path, V=spec(broker, v, timeout_ms=500))
    r.stream("W", k="BIGINT", delay=LONG)
    r.create("q", SQL)
    drain(r)
    (name,) = kinds(r.engine.state)["base"]
    path = r.directory / "buckets" / name
    path.write_bytes(path.read_bytes()[:-1])
    broker.stop(kill=True)
    try:
        with pytest.raises(Unavailable, match="does not answer"):
            r.epoch({"W": [(k, 0) for k in range(20)]})
    finally:
        broker.start()
    drain(r)
    assert keys(r) == list(range(20)) and repairs(r.engine) == 1
