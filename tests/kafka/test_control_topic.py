"""Queries created and deleted by Kafka messages, against a real broker and a real platform."""

from __future__ import annotations

import json
from typing import Any

from ajoin.control_topic import ControlTopic
from runtime.api import QueryState
from tests.ajoin.world import JOIN, WAIT, with_streams
from tests.kafka.broker import Broker


def ask(broker: Broker, topic: str, *requests: Any) -> None:
    broker.send(topic, *(r if isinstance(r, bytes) else json.dumps(r).encode() for r in requests))


def replies(broker: Broker, topic: str, count: int) -> list[dict[str, Any]]:
    found = broker.wait_for(topic, count)
    assert all(m.key.decode() == json.loads(m.value)["request_id"] for m in found)
    return [json.loads(m.value) for m in found]


def test_create_and_delete_by_message(broker, topic, tmp_path):
    t = topic("control")
    with with_streams(tmp_path) as world:
        platform = world.platform
        options = {"bootstrap": broker.address, "topic": t}
        with ControlTopic.from_options(platform, options):
            ask(
                broker,
                t,
                {"request_id": "1", "create": "a", "sql": JOIN},
                {"request_id": "2", "create": "b", "sql": "SELECT nonsense"},
                {"request_id": "3", "create": "c", "sql": JOIN, "sinks": [{"kind": "blackhole"}]},
                {"request_id": "4", "delete": "c"},
                {"request_id": "5", "delete": "nobody"},
                {"request_id": "6", "do": "something"},
                b"not json",
            )
            got = replies(broker, f"{t}.replies", 7)
        assert [r["request_id"] for r in got] == ["1", "2", "3", "4", "5", "6", ""]
        states = [(r.get("query") or {}).get("state") for r in got]
        assert states == ["RUNNING", None, "RUNNING", "DELETED", None, None, None]
        assert got[1]["error"]["reason"] == "SOURCE_COUNT"
        assert [r["error"]["reason"] for r in got[4:]] == [
            "QUERY_NOT_FOUND",
            "BAD_CONTROL_MESSAGE",
            "BAD_CONTROL_MESSAGE",
        ]
        assert {q.id: q.state for q in platform.queries()} == {"a": QueryState.RUNNING, "c": QueryState.DELETED}
        world.feed({"V": [{"ts": 1, "vID": 7, "geo": "DE"}], "W": [{"ts": 1, "vID": 7, "usrID": 1}]})
        assert platform.wait_until(lambda: platform.query("a").rows == 1, WAIT)


def test_requests_that_were_not_committed_are_answered_again_and_change_nothing(broker, topic, tmp_path):
    t = topic("control")
    requests = [
        {"request_id": "1", "create": "a", "sql": JOIN},
        {"request_id": "2", "create": "b", "sql": JOIN},
        {"request_id": "3", "delete": "b"},
    ]
    with with_streams(tmp_path) as world:
        with ControlTopic.from_options(world.platform, {"bootstrap": broker.address, "topic": t}):
            ask(broker, t, *requests)
            first = replies(broker, f"{t}.replies", 3)
        with broker.admin() as admin:
            admin.delete_groups([f"ajoin.{t}"])
        with ControlTopic.from_options(world.platform, {"bootstrap": broker.address, "topic": t}):
            again = replies(broker, f"{t}.replies", 6)[3:]
        assert [r["request_id"] for r in again] == ["1", "2", "3"]
        assert all("query" in r for r in again)
        assert again[0]["query"] == first[0]["query"]
        states = {q.id: q.state for q in world.platform.queries()}
        assert states == {"a": QueryState.RUNNING, "b": QueryState.DELETED}


def test_requests_that_came_while_no_platform_ran_are_carried_out(broker, topic, tmp_path):
    t = topic("control")
    ask(broker, t, {"request_id": "1", "create": "early", "sql": JOIN})
    with (
        with_streams(tmp_path) as world,
        ControlTopic.from_options(world.platform, {"bootstrap": broker.address, "topic": t, "reply_topic": f"{t}.out"}),
    ):
        (answer,) = replies(broker, f"{t}.out", 1)
        assert answer["query"]["id"] == "early"
