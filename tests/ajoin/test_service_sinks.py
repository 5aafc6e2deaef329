"""Sinks that cannot work are refused with their query, at once and without a trace; of one that dies later the service
says which and why, and nobody else notices."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ajoin.cli import app
from ajoin.client.client import Client
from ajoin.client.requests import Sink
from ajoin.errors import AJoinError
from ajoin.platform.sink_checks import SinkChecks
from ajoin.platform.tenancy import Scope
from runtime.api import QueryState, SinkStatus
from runtime.connectors import registry
from runtime.connectors.base import ConnectorSpec
from tests.ajoin.world import JOIN, World, running, with_streams
from tests.faults.processes import until


@pytest.fixture
def dead_broker() -> Iterator[str]:
    """An address where nobody listens, and nobody can begin to."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def feed(world: World, key: int) -> None:
    ts = 1000 * key
    world.feed({"V": [{"ts": ts, "vID": key, "geo": "x"}], "W": [{"ts": ts + 1, "vID": key, "usrID": 5}]})


def written(folder: Path) -> list[int]:
    return sorted(k for f in folder.rglob("*.parquet") for k in pq.read_table(f).column("vID").to_pylist())


def failing(client: Client) -> list[SinkStatus]:
    return [s for s in client.status().sinks_behind if s.error]


def ajoin(world: World, *arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), env={"AJOIN_SERVER": world.address, "COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the broker had answered when the query was created, and died then."""
    kafka = registry.SINKS["kafka"]
    monkeypatch.setitem(registry.SINKS, "kafka", replace(kafka, reach=lambda sink: None))


@pytest.mark.usefixtures("was_there")
def test_a_dead_broker_is_named_and_holds_up_nothing(tmp_path: Path, dead_broker: str) -> None:
    out = tmp_path / "out"
    with with_streams(tmp_path / "state") as world:
        client = world.client
        kafka = ("kafka", {"bootstrap": dead_broker, "timeout_ms": 1000})
        client.create_query(JOIN, id="bad", sinks=[kafka, ("parquet", {"path": tmp_path / "beside"})])
        client.create_query(JOIN, id="good", sinks=[("parquet", {"path": out})])
        for key in (1, 2, 3):
            feed(world, key)
        until(lambda: written(out) == written(tmp_path / "beside") == [1, 2, 3], "the sinks that work lack rows")
        until(lambda: failing(client) != [], "nobody says that the broker is dead")
        (bad,) = failing(client)
        assert (bad.query_id, bad.number, bad.kind, bad.rows_behind) == ("bad", 0, "kafka", 3)
        assert bad.epochs_behind >= 3 and bad.failing_since_ms is not None and bad.attempts >= 1
        assert dead_broker in bad.error

        status = ajoin(world, "status")
        assert "3, 1 of them behind" in status and "bad: kafka" in status and dead_broker in status
        assert "fails since" in ajoin(world, "query", "show", "bad")
        assert "has everything" in ajoin(world, "query", "show", "good")
        assert "2 (1 failing" in ajoin(world, "query", "list")
        assert json.loads(ajoin(world, "query", "show", "bad", "--json"))["deliveries"][0]["kind"] == "kafka"

        client.delete_query("bad")
        feed(world, 4)
        until(lambda: written(out) == [1, 2, 3, 4], "the deletion did not help")
    with running(tmp_path / "state") as world:
        assert world.client.query("bad").state == QueryState.DELETED
        feed(world, 5)
        until(lambda: written(out) == [1, 2, 3, 4, 5], "the restart did not help")
        until(lambda: [s.query_id for s in failing(world.client)] == ["bad"], "it is not tried again")
        assert written(tmp_path / "beside") == [1, 2, 3]


@pytest.fixture
def silent_broker() -> Iterator[str]:
    """Somebody who takes connections and says nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def refused(world: World, *sinks: Sink) -> AJoinError:
    with pytest.raises(AJoinError) as failure:
        world.client.create_query(JOIN, id="q", sinks=sinks)
    assert list(world.client.queries()) == [] and world.client.status().sinks == 0, "nothing is left behind"
    return failure.value


def test_a_key_that_is_no_output_is_refused(tmp_path: Path, dead_broker: str) -> None:
    with with_streams(tmp_path / "state") as world:
        said = refused(world, ("kafka", {"bootstrap": dead_broker, "key": "nope"}))
        assert said.reason == "BAD_CONNECTOR_OPTION" and "'nope', which is no output of the query" in said.message
        assert "usrID" in said.hint


def test_a_broker_that_does_not_answer_is_refused_while_epochs_go_on(
    tmp_path: Path, dead_broker: str, silent_broker: str
) -> None:
    with with_streams(tmp_path / "state") as world, ThreadPoolExecutor() as asking:
        for broker in (dead_broker, silent_broker):
            answer = asking.submit(refused, world, ("blackhole", {}), ("kafka", {"bootstrap": broker}))
            key, before = 0, world.platform.epoch
            while not answer.done():
                feed(world, key := key + 1)
            assert world.platform.epoch > before
            said = answer.result()
            assert said.reason == "KAFKA_UNAVAILABLE" and broker in said.message
        world.client.create_query(JOIN, id="q")


def test_a_dead_broker_leaves_no_thread_behind(tmp_path: Path, dead_broker: str) -> None:
    """The library's clients have threads of their own, and one that finds no brokers is never handed out. (Clients
    that other tests of this process keep idle have theirs too.)"""
    before = set(threading.enumerate())
    with with_streams(tmp_path / "state") as world:
        assert refused(world, ("kafka", {"bootstrap": dead_broker})).reason == "KAFKA_UNAVAILABLE"
    until(lambda: not [t for t in set(threading.enumerate()) - before if "kafka" in t.name], "a thread is left")


def test_many_queries_with_dead_brokers_take_seconds_together(tmp_path: Path, dead_broker: str) -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        return (now := now + 4.0)

    checks = SinkChecks((), clock)
    reasons = []
    for n in range(5):
        spec = ConnectorSpec("kafka", (("bootstrap", dead_broker), ("topic", f"t{min(n, 3)}")))
        with pytest.raises(AJoinError) as failure:
            checks.check([spec], ["usrID"])
        reasons.append(failure.value.reason)
    assert reasons == ["KAFKA_UNAVAILABLE"] * 2 + ["SINKS_TOO_SLOW"] * 3


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with with_streams(tmp_path / "state") as world:
        said = refused(world, ("parquet", {"path": tmp_path / "file" / "out"}))
        assert said.reason == "BAD_CONNECTOR_OPTION" and "is no directory" in said.message
        world.client.create_query(JOIN, id="ok", sinks=[("parquet", {"path": tmp_path / "made" / "later"})])
    assert not (tmp_path / "made").exists()


def test_a_tenant_sees_its_own_sinks_only() -> None:
    sinks = (SinkStatus("a/q", "a/q#1", 0, "kafka"), SinkStatus("b/q", "b/q#2", 0, "kafka"))
    assert Scope("a").sinks(sinks) == (SinkStatus("q", "q#1", 0, "kafka"),)
    assert Scope().sinks(sinks) == sinks
