"""What arrives at the port: bytes that are no gRPC, clients that say nothing, and calls that are too large or too many.
The service goes on answering everybody else."""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from ajoin import errors
from ajoin.client.client import Client
from ajoin.config import load
from ajoin.service.limits import ServiceLimits, from_settings
from ajoin.v1 import admin_pb2, admin_pb2_grpc, results_pb2, results_pb2_grpc
from ajoin.wire import status
from tests.ajoin.sockets import is_local, listening, tree
from tests.ajoin.test_cli_serve import serving
from tests.ajoin.world import JOIN, WAIT, World, with_streams
from tests.faults.processes import until

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
HOSTILE = (
    b"",
    b"\x00",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    PREFACE[:10],
    PREFACE,
    PREFACE + b"\xff" * 64,
    PREFACE + SETTINGS + b"\x00\xff\xff\x01\x04\x00\x00\x00\x01" + b"\xff" * 1000,
    PREFACE + SETTINGS + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
)
"""Nothing, other protocols, half a greeting, a greeting and then frames that are none."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    limits = ServiceLimits(message_bytes=1 << 16, metadata_bytes=1 << 13, connection_streams=3, handshake_timeout=1.0)
    with with_streams(tmp_path / "state", wire=limits) as made:
        yield made


def connected(world: World, data: bytes) -> socket.socket:
    host, _, port = world.address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=WAIT)
    if data:
        connection.sendall(data)
    return connection


def closed(connection: socket.socket) -> bool:
    """Has the other side ended it? What it says before is thrown away."""
    connection.setblocking(False)
    try:
        while connection.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


def test_garbage_and_silence_cost_nothing(world: World) -> None:
    rng = random.Random(7)
    world.client.create_query(JOIN, id="q")
    with ExitStack() as open:
        hostile = [*HOSTILE * 10, *(rng.randbytes(rng.randint(1, 5000)) for _ in range(60))]
        connections = [open.enter_context(connected(world, data)) for data in hostile]
        world.feed(
            {"V": [{"ts": 1000, "vID": 1, "geo": "x"}], "W": [{"ts": 1001, "vID": 1, "usrID": 5}]}, watermark=2000
        )
        with Client(world.address, timeout=WAIT) as newcomer:
            assert [r["usrID"] for r in newcomer.results("q", until=2000)] == [5]
            assert newcomer.status().state == "RUNNING"
        silent = [c for c, data in zip(connections, hostile, strict=True) if data in (b"", PREFACE[:10])]
        until(lambda: all(closed(c) for c in silent), "connections that say nothing stay open")
    assert world.client.status().state == "RUNNING"


def test_what_is_too_large_is_refused(world: World) -> None:
    with pytest.raises(errors.ResourceExhausted):
        world.client.create_query(JOIN + " " * (1 << 16))
    with grpc.insecure_channel(world.address) as channel:
        status = admin_pb2_grpc.AdminServiceStub(channel).GetStatus
        with pytest.raises(grpc.RpcError) as refused:
            status(admin_pb2.GetStatusRequest(), metadata=(("x", "y" * (1 << 14)),), timeout=WAIT)
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert status(admin_pb2.GetStatusRequest(), timeout=WAIT).version
    assert world.client.status().queries == 0


@pytest.mark.parametrize(
    "sent", [b"\xff" * 100, b"\x0a\x02\xff\xfe", b"\x7b" * 10_000], ids=["no fields", "no UTF-8", "deep"]
)
@pytest.mark.parametrize("method", ["QueryService/CreateQuery", "ResultService/Subscribe"])
def test_bytes_that_are_no_message_are_refused_in_our_words(world: World, method: str, sent: bytes) -> None:
    with grpc.insecure_channel(world.address) as channel, pytest.raises(grpc.RpcError) as refused:
        list(channel.unary_stream(f"/ajoin.v1.{method}")(sent, timeout=WAIT))
    error = status.from_rpc(refused.value)
    assert (type(error), error.reason) == (errors.InvalidRequest, "BAD_MESSAGE") and method in error.message


def test_no_thread_of_the_service_is_left(tmp_path: Path) -> None:
    with with_streams(tmp_path / "state") as world:
        world.client.create_query(JOIN, id="q", sinks=["blackhole"])
        assert any(thread.name.startswith("ajoin-sinks") for thread in threading.enumerate())
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("ajoin-sinks")], "a thread is left")


def test_one_connection_has_so_many_calls_and_others_are_free(world: World) -> None:
    world.client.create_query(JOIN, id="q")
    with grpc.insecure_channel(world.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = results_pb2_grpc.ResultServiceStub(channel)
        calls = [stub.Subscribe(results_pb2.SubscribeRequest(query_id="q")) for _ in range(3)]
        for call in calls:
            assert next(call).progress.epoch >= 0
        with pytest.raises(grpc.RpcError) as waiting:
            admin_pb2_grpc.AdminServiceStub(channel).GetStatus(admin_pb2.GetStatusRequest(), timeout=0.5)
        assert waiting.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert world.client.status().state == "RUNNING"
        calls.pop().cancel()
        assert admin_pb2_grpc.AdminServiceStub(channel).GetStatus(admin_pb2.GetStatusRequest(), timeout=WAIT).version
        for call in calls:
            call.cancel()


def test_too_many_subscribers_are_refused(tmp_path: Path) -> None:
    with with_streams(tmp_path / "state", wire=ServiceLimits(subscribers=2)) as world:
        world.client.create_query(JOIN, id="q")
        held = [iter(world.client.subscribe("q", progress=True)) for _ in range(2)]
        assert [next(h).state for h in held] == ["RUNNING", "RUNNING"]
        with pytest.raises(errors.ResourceExhausted) as refused:
            next(iter(world.client.subscribe("q", progress=True)))
        assert refused.value.reason == "TOO_MANY_SUBSCRIBERS" and "max_subscribers" in refused.value.hint
        assert world.client.status().queries == 1
        for subscription in held:
            subscription.close()


def test_an_idle_connection_is_closed(tmp_path: Path) -> None:
    with with_streams(tmp_path / "state", wire=ServiceLimits(connection_idle=0.5)) as world:
        with connected(world, PREFACE + SETTINGS) as connection:
            until(lambda: closed(connection), "a connection without calls stays open")
        assert world.client.status().state == "RUNNING"


def test_settings_become_limits() -> None:
    assert from_settings(load({}).settings) == ServiceLimits(), "defaults are said twice, alike"
    given = from_settings(load({"max_subscribers": 7, "connection_age": 60, "keepalive_interval": 5}).settings)
    assert given.subscribers == 7
    assert {("grpc.max_connection_age_ms", 60_000), ("grpc.keepalive_time_ms", 5000)} <= set(given.options)
    assert "grpc.max_connection_age_ms" not in dict(ServiceLimits().options)


# -- who can reach the ports --------------------------------------------------------------------------------


def test_a_platform_of_this_machine_listens_on_loopback_only(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        metrics = free.getsockname()[1]
    with serving(tmp_path, "--demo-streams", "--set", f"metrics_port={metrics}") as (process, address):
        ports = listening(tree(process.pid))
        assert set(ports) == {metrics, int(address.rpartition(":")[2])}
        assert all(map(is_local, ports.values()))


@pytest.mark.spark
def test_all_ports_on_spark_of_this_machine_are_loopback(spark: object) -> None:
    """The driver's JVM with its block manager, the gateway between it and this process, and the Python workers."""
    ports = listening(tree(os.getpid()))
    assert len(ports) >= 2 and all(map(is_local, ports.values())), ports
