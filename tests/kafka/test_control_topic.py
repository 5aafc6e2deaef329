"""Queries created and deleted by Kafka messages, against a real broker and a real platform."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from typing import Any

import pytest
from kafka.admin import NewPartitions

from ajoin.client.client import Client
from ajoin.config import load
from ajoin.platform import control_topic
from ajoin.platform.control_topic import ControlStatus, ControlTopic, from_settings, parse_options
from ajoin.platform.platform import Platform
from optimizer.errors import InvalidRequest, Unavailable
from runtime.api import QueryState
from tests.ajoin.test_cli_serve import serving
from tests.ajoin.world import JOIN, WAIT, with_streams
from tests.kafka.broker import PASSWORD, USER, Broker, free_port

JOIN_DEMO = "SELECT V.vID FROM V JOIN W ON V.vID = W.vID WINDOW TUMBLING (SIZE 1 SECOND)"


def ask(broker: Broker, topic: str, *requests: Any) -> None:
    broker.send(topic, *(r if isinstance(r, bytes) else json.dumps(r).encode() for r in requests))


def replies(broker: Broker, topic: str, count: int) -> list[dict[str, Any]]:
    answers = broker.wait_for(topic, count)
    assert all(m.key.decode() == json.loads(m.value)["request_id"] for m in answers)
    return [json.loads(m.value) for m in answers]


def test_create_and_delete_by_message(broker, topic, tmp_path):
    t = topic("control")
    with with_streams(tmp_path) as world:
        platform = world.platform
        options = {"bootstrap": broker.address, "topic": t}
        with ControlTopic(platform, parse_options(options)):
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
        with ControlTopic(world.platform, parse_options({"bootstrap": broker.address, "topic": t})):
            ask(broker, t, *requests)
            first = replies(broker, f"{t}.replies", 3)
        with broker.admin() as admin:
            admin.delete_groups([f"ajoin.{t}"])
        with ControlTopic(world.platform, parse_options({"bootstrap": broker.address, "topic": t})):
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
        ControlTopic(
            world.platform, parse_options({"bootstrap": broker.address, "topic": t, "reply_topic": f"{t}.out"})
        ),
    ):
        (answer,) = replies(broker, f"{t}.out", 1)
        assert answer["query"]["id"] == "early"


@pytest.mark.parametrize("failure", [Unavailable("the store does not answer"), ValueError("a bug")])
def test_a_request_that_meets_an_outage_is_carried_out_later(broker, topic, tmp_path, monkeypatch, failure):
    t = topic("control")
    create, failures = Platform.create_queries, iter([failure])

    def flaky(platform: Platform, wanted: Any) -> Any:
        if (now := next(failures, None)) is not None:
            raise now
        return create(platform, wanted)

    monkeypatch.setattr(Platform, "create_queries", flaky)
    options = parse_options({"bootstrap": broker.address, "topic": t})
    with with_streams(tmp_path) as world, ControlTopic(world.platform, options) as control:
        ask(broker, t, {"request_id": "1", "create": "a", "sql": JOIN}, {"request_id": "2", "delete": "a"})
        assert [r["query"]["state"] for r in replies(broker, f"{t}.replies", 2)] == ["RUNNING", "DELETED"]
    assert control.status.failures == 0, "the brokers were there all the time"


# -- as part of `ajoin serve` -------------------------------------------------------------------------------------


def scrape(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = [line for line in answer.read().decode().splitlines() if line.startswith("ajoin_control_")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_the_service_reads_a_control_topic_and_goes_on_after_a_kill(broker, topic, tmp_path):
    """The second process must neither lose the requests of the pause nor do the earlier ones again."""
    t, port = topic("control"), free_port()
    flags = [
        "--demo-streams", "--control-topic", t, "--control-brokers", broker.address,
        "--set", f"control_replies={t}.out", "--set", f"metrics_port={port}", "--set", "log_format=json",
    ]  # fmt: skip
    with serving(tmp_path, *flags) as (process, address), Client(address) as client:
        ask(
            broker,
            t,
            {"request_id": "1", "create": "a", "sql": JOIN_DEMO},
            {"request_id": "2", "create": "b", "sql": JOIN_DEMO},
            {"request_id": "3", "delete": "b"},
            {"request_id": "4", "delete": "nobody"},
        )
        first = replies(broker, f"{t}.out", 4)
        assert [(r.get("query") or r["error"]).get("state") for r in first] == ["RUNNING", "RUNNING", "DELETED", None]
        assert len(client.results("a", limit=2, timeout=WAIT)) == 2
        uids = {q.id: q.uid for q in client.queries()}
        process.kill()
        process.wait()
    ask(broker, t, {"request_id": "5", "create": "c", "sql": JOIN_DEMO})
    with serving(tmp_path, *flags) as (process, address):
        later: list[dict[str, Any]] = []
        while not later or later[-1]["request_id"] != "5":  # the last row may be answered again
            later = replies(broker, f"{t}.out", 5 + len(later[4:]))
        assert "query" in later[-1]
        with Client(address) as client:
            running = {q.id: q.uid for q in client.queries()}
            assert running == {**uids, "c": running["c"]}, "nothing was created or deleted a second time"
        while scrape(port)['ajoin_control_requests_total{outcome="done"}'] < 1:  # counted after the reply is written
            time.sleep(0.05)
        assert scrape(port)["ajoin_control_up"] == 1
        process.terminate()
        assert process.wait(WAIT) == 0
        assert process.stderr is not None and "Traceback" not in process.stderr.read()


def test_a_topic_that_is_missing_at_first_and_grows_later_is_read(broker, names, tmp_path, caplog):
    t = names("control")
    options = parse_options({"bootstrap": broker.address, "topic": t})
    with with_streams(tmp_path) as world, ControlTopic(world.platform, options) as control:
        while "has no such topic" not in caplog.text:
            assert not control.status.up
            time.sleep(0.05)
        broker.create_topic(t)
        ask(broker, t, {"request_id": "1", "create": "a", "sql": JOIN})
        assert replies(broker, f"{t}.replies", 1)[0]["query"]["id"] == "a"
        with broker.admin() as admin:
            admin.create_partitions({t: NewPartitions(total_count=2)})
        broker.send(t, json.dumps({"request_id": "2", "delete": "a"}).encode(), partition=1)
        assert replies(broker, f"{t}.replies", 2)[1]["query"]["state"] == "DELETED"
    assert control.status == ControlStatus(False, 2, 0, control.status.failures)


def test_a_broker_that_goes_away_is_noticed_and_waited_for(broker, topic, tmp_path, monkeypatch):
    t = topic("control")
    monkeypatch.setattr(control_topic, "_SILENCE_S", 0.2)
    options = parse_options({"bootstrap": broker.address, "topic": t})
    with with_streams(tmp_path) as world, ControlTopic(world.platform, options) as control:
        while not control.status.up:
            time.sleep(0.02)
        broker.stop(kill=True)
        try:
            while control.status.up:
                time.sleep(0.02)
            assert control.status.failures >= 1, "counted; on a busy machine a slow answer may have been one, too"
        finally:
            broker.start()
        ask(broker, t, {"request_id": "1", "create": "a", "sql": JOIN})
        assert replies(broker, f"{t}.replies", 1)[0]["query"]["id"] == "a"
        while not control.status.up:
            time.sleep(0.02)


def test_missing_brokers_are_told_and_hold_nobody_up(tmp_path):
    port, nobody = free_port(), f"127.0.0.1:{free_port()}"
    flags = ["--control-topic", "t", "--control-brokers", nobody, "--set", f"metrics_port={port}"]
    with serving(tmp_path, *flags) as (process, address):
        with Client(address) as client:
            assert client.status().state == "RUNNING", "the platform does not wait for the topic"
        assert process.stderr is not None
        warned = next(line for line in process.stderr if "control topic t" in line)
        assert "next try in" in warned and nobody in warned
        told = scrape(port)
        assert told["ajoin_control_up"] == 0 and told["ajoin_control_failures_total"] >= 1
        process.terminate()
        assert process.wait(WAIT) == 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"control_topic": "t"}, "bootstrap"),
        ({"control_brokers": "h:1"}, "topic"),
        ({"control_topic": "t", "control_brokers": "h:1", "control_options": "sasl.nothing=1"}, "sasl.nothing"),
        ({"control_topic": "t", "control_brokers": "h:1", "control_options": "ssl.password=env:HOME"}, "ssl.password"),
    ],
)
def test_wrong_settings_are_refused_before_anything_starts(flags, words):
    with pytest.raises(InvalidRequest, match=re.escape(words)) as refused:
        from_settings(load(flags).settings)
    assert refused.value.reason == "CONFIG_CONTROL_TOPIC"


def test_without_settings_there_is_none_and_passwords_are_not_shown():
    assert from_settings(load({}).settings) is None
    options = "sasl.plain_password=geheim,ssl.password=env:AJOIN_SECRET_P,security.protocol=SASL_SSL"
    config = load({"control_topic": "t", "control_brokers": "h:1", "control_options": options})
    assert "geheim" not in config.to_toml() and "env:AJOIN_SECRET_P" in config.to_toml()


def test_the_login_reaches_the_brokers(broker, topic, tmp_path, monkeypatch):
    t = topic("control")
    monkeypatch.setenv("AJOIN_SECRET_CONTROL", PASSWORD)
    settings = load(
        {
            "control_topic": t,
            "control_brokers": broker.secure_address,
            "control_options": f"security.protocol=SASL_SSL,ssl.cafile={broker.certificate},sasl.mechanism=PLAIN,"
            f"sasl.plain_username={USER},sasl.plain_password=env:AJOIN_SECRET_CONTROL",
        }
    ).settings
    options = from_settings(settings)
    assert options is not None
    with with_streams(tmp_path) as world, ControlTopic(world.platform, options):
        ask(broker, t, {"request_id": "1", "create": "a", "sql": JOIN}, b'{"request_id": "\\ud800", "delete": "a"}')
        first, second = replies(broker, f"{t}.replies", 2)
    assert first["query"]["id"] == "a" and "surrogate" in second["error"]["message"]
