"""The server's life: health, reflection, idempotency, failure, stopping, recovery."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from ajoin import errors
from ajoin.client.client import Client
from ajoin.platform.platform import Pace, Platform, PlatformState, Wanted
from ajoin.service import ServerThread
from ajoin.service.idempotency import IdempotencyCache
from ajoin.v1 import queries_pb2, queries_pb2_grpc
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from tests.ajoin.world import JOIN, QUICK, WAIT, W, running, wall_clock, with_streams

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class FailingExecutor(LocalExecutor):
    """Runs stages until it is told to break, as a lost cluster would."""

    broken = False

    def run(self, name, stage, shared, tasks):
        if self.broken:
            raise RuntimeError("executor lost")
        return super().run(name, stage, shared, tasks)


@pytest.fixture
def world(tmp_path):
    with with_streams(tmp_path / "state") as running_world:
        yield running_world


def health_of(address: str, service: str = "") -> int:
    with grpc.insecure_channel(address) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        return health_pb2_grpc.HealthStub(channel).Check(request, timeout=WAIT).status


def test_health_and_reflection(world):
    with grpc.insecure_channel(world.address) as channel:
        services = set(ProtoReflectionDescriptorDatabase(channel).get_services())
    ours = {f"ajoin.v1.{name}Service" for name in ("Stream", "Query", "Result", "Plan", "Admin")}
    assert services == ours | {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    assert {health_of(world.address, name) for name in ("", *ours)} == {SERVING}


# -- repeated calls -----------------------------------------------------------------------------------------


def test_a_repeated_create_gets_the_first_answer(world):
    first = world.client.create_query(JOIN, id="q1", request_id="r1")
    assert world.client.create_query(JOIN, id="q1", request_id="r1") == first
    chosen = world.client.create_query(JOIN, request_id="r2")
    assert world.client.create_query(JOIN, request_id="r2") == chosen
    assert len(list(world.client.queries())) == 2


def test_repeated_calls_at_the_same_time_do_the_work_once(world):
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(world.client.create_query(JOIN, request_id="same")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8 and len({a.uid for a in answers}) == 1
    assert len(list(world.client.queries())) == 1


def test_a_repeated_delete_and_a_repeated_refusal(world):
    world.client.create_query(JOIN, id="q1")
    deleted = world.client.delete_query("q1", request_id="d1")
    assert world.client.delete_query("q1", request_id="d1") == deleted
    with pytest.raises(errors.FailedPrecondition):
        world.client.delete_query("q1", request_id="d2")
    world.client.create_query(JOIN, id="q1")
    with pytest.raises(errors.FailedPrecondition):
        world.client.delete_query("q1", request_id="d2")


def test_streams_are_repeatable_too(world):
    first = world.client.create_stream("S", columns=W, time="ts", source="push", request_id="s1")
    assert world.client.create_stream("S", columns=W, time="ts", source="push", request_id="s1") == first
    world.client.delete_stream("S", request_id="s2")
    world.client.delete_stream("S", request_id="s2")


def test_an_id_of_another_request_is_refused(world):
    world.client.create_query(JOIN, id="q1", request_id="r1")
    with pytest.raises(errors.InvalidRequest) as refused:
        world.client.create_query(JOIN, id="q2", request_id="r1")
    assert refused.value.reason == "REQUEST_ID_REUSED"


def test_a_caller_that_gives_up_finds_its_answer_later(tmp_path):
    with with_streams(tmp_path / "state", pace=Pace(0.2, 0.005, 0.02)) as world:
        with grpc.insecure_channel(world.address) as channel:
            request = queries_pb2.CreateQueryRequest(
                spec=queries_pb2.QuerySpec(sql=JOIN, query_id="q1"), request_id="r1"
            )
            call = queries_pb2_grpc.QueryServiceStub(channel).CreateQuery.future(request)
            # The server has the request when it answers a later one on the same connection.
            world.client.status()
            call.cancel()
        again = world.client.create_query(JOIN, id="q1", request_id="r1")
        assert world.client.query("q1").uid == again.uid


def test_transient_failures_are_not_remembered_and_old_answers_are_forgotten():
    async def run() -> None:
        now, calls = [0.0], []
        cache = IdempotencyCache(kept=2, seconds=10, clock=lambda: now[0])

        async def fail() -> None:
            calls.append("fail")
            raise errors.Unavailable("stopping")

        async def work() -> int:
            calls.append("work")
            return len(calls)

        def request(id: str) -> queries_pb2.DeleteQueryRequest:
            return queries_pb2.DeleteQueryRequest(query_id="q", request_id=id)

        with pytest.raises(errors.Unavailable):
            await cache.once(request("a"), fail)
        assert await cache.once(request("a"), work) == 2
        assert await cache.once(request("a"), work) == 2
        await cache.once(request("b"), work)
        await cache.once(request("c"), work)
        assert await cache.once(request("a"), work) == 5
        now[0] = 9.9
        assert await cache.once(request("a"), work) == 5
        now[0] = 10.0
        assert await cache.once(request("a"), work) == 6

    asyncio.run(run())


def test_answers_are_kept_up_to_so_many_bytes():
    async def run() -> None:
        calls: list[str] = []
        cache = IdempotencyCache(bytes=2500)

        async def work() -> queries_pb2.QuerySpec:
            calls.append("work")
            return queries_pb2.QuerySpec(sql="x" * 1000)

        for id in ("a", "b", "b"):
            await cache.once(queries_pb2.DeleteQueryRequest(request_id=id), work)
        assert len(calls) == 2
        await cache.once(queries_pb2.DeleteQueryRequest(request_id="c"), work)
        await cache.once(queries_pb2.DeleteQueryRequest(request_id="b"), work)
        assert len(calls) == 3, "the second is still known"
        await cache.once(queries_pb2.DeleteQueryRequest(request_id="a"), work)
        assert len(calls) == 4, "the first is not"

    asyncio.run(run())


def test_refusals_are_repeated_and_running_calls_are_waited_for_once():
    async def run() -> None:
        cache, calls, go = IdempotencyCache(), [], asyncio.Event()

        async def refuse() -> None:
            calls.append("refuse")
            raise errors.InvalidRequest("no", reason="NO")

        async def work() -> int:
            calls.append("work")
            await go.wait()
            return 7

        def request(id: str) -> queries_pb2.DeleteQueryRequest:
            return queries_pb2.DeleteQueryRequest(query_id="q", request_id=id)

        depths = []
        for _ in range(3):
            with pytest.raises(errors.InvalidRequest) as refused:
                await cache.once(request("a"), refuse)
            depths.append(len(refused.traceback))
        (kept,) = cache._calls.values()
        assert kept.refusal is not None and kept.refusal.__traceback__ is None and kept.task is None
        assert calls == ["refuse"] and depths[1] == depths[2]
        both = [asyncio.ensure_future(cache.once(request("b"), work)) for _ in range(2)]
        while len(calls) < 2:
            await asyncio.sleep(0)
        go.set()
        assert await asyncio.gather(*both) == [7, 7] and await cache.once(request("b"), work) == 7
        assert calls == ["refuse", "work"]

    asyncio.run(run())


# -- failure and the end --------------------------------------------------------------------------------------


def test_a_failed_epoch_is_said_aloud(tmp_path):
    executor = FailingExecutor()
    engine = Engine.open(tmp_path / "state", executor, None, wall_clock)
    platform = Platform(engine, clock=wall_clock, pace=QUICK)
    with platform, ServerThread(platform) as server, Client(server.address) as client:
        for name in ("V", "W"):
            client.create_stream(name, columns=W, time="ts", source="push")
        client.create_query(JOIN.replace("V.geo", "V.usrID AS other"), id="q1")
        items = client.subscribe("q1", progress=True, timeout=WAIT)
        next(items)
        executor.broken = True
        platform.push("V", [{"ts": 1, "vID": 1, "usrID": 2}]).result(WAIT)
        assert platform.wait_until(lambda: platform.state == PlatformState.FAILED, WAIT)
        status = client.status()
        assert status.state == "FAILED" and "executor lost" in status.message
        with pytest.raises(errors.InternalError) as refused:
            client.create_query(JOIN.replace("V.geo", "V.usrID AS other"))
        assert refused.value.reason == "PLATFORM_FAILED" and "executor lost" in refused.value.message
        with pytest.raises(errors.InternalError):
            list(items)
        assert client.query("q1").id == "q1"
        assert health_of(server.address) == NOT_SERVING
    assert platform.state == PlatformState.FAILED
    executor.broken = False
    Engine.open(tmp_path / "state", executor, None, wall_clock).close()


def test_an_unexpected_error_is_internal_with_an_id_in_the_log(world, monkeypatch, caplog):
    def broken(id: str, uid: str | None = None) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(world.platform, "query", broken)
    with pytest.raises(errors.InternalError) as refused:
        world.client.query("q1")
    assert "secret" not in str(refused.value)
    id = refused.value.message.split("(id ")[1].rstrip(")")
    assert id in caplog.text and "ZeroDivisionError" in caplog.text


def test_stopping_ends_subscriptions_and_answers_what_waits(tmp_path):
    slow = Pace(batch_interval=3600, epoch_interval=3600, idle_interval=3600)
    with running(tmp_path / "state", pace=slow) as world:
        world.client.create_stream("V", columns=W, time="ts", source="push")
        world.client.create_stream("W", columns=W, time="ts", source="push")
        waiting = world.platform.create_queries([Wanted("q1", JOIN.replace("V.geo", "V.usrID AS other"))])
        events = world.client.watch_plan(after_version=0, timeout=WAIT)
        next(events)
        stopper = threading.Thread(target=world.platform.stop)
        stopper.start()
        with pytest.raises(errors.Unavailable):
            list(events)
        stopper.join()
        assert isinstance(waiting.exception(WAIT), errors.Unavailable)
        assert world.platform.state == PlatformState.STOPPED


def test_a_restart_goes_on(tmp_path):
    with with_streams(tmp_path / "state") as world:
        world.client.create_query(JOIN, id="q1")
        world.feed({"V": [{"ts": 1, "vID": 1, "geo": "x"}], "W": [{"ts": 2, "vID": 1, "usrID": 5}]})
        before = world.client.results("q1", limit=1, timeout=WAIT)
    with running(tmp_path / "state") as world:
        assert world.client.query("q1").rows == 1
        assert len(world.client.results("q1", cursor=before.cursor)) == 0
        world.feed({"V": [{"ts": 3, "vID": 1, "geo": "y"}]})
        after = world.client.results("q1", cursor=before.cursor, limit=1, timeout=WAIT)
        assert [r["geo"] for r in after] == ["y"]


def test_an_address_is_owned_by_one_server(world, tmp_path):
    engine = Engine.open(tmp_path / "other", LocalExecutor(), None, wall_clock)
    with (
        Platform(engine, clock=wall_clock) as other,
        pytest.raises(errors.FailedPrecondition) as refused,
    ):
        ServerThread(other, world.address).start()
    assert refused.value.reason == "ADDRESS_IN_USE"


def test_nobody_listens():
    with Client("127.0.0.1:1", timeout=WAIT) as client, pytest.raises(errors.Unavailable) as refused:
        client.status()
    assert refused.value.reason == "UNREACHABLE" and "127.0.0.1:1" in refused.value.message


SERVE = """
import sys, time
from pathlib import Path
from ajoin.platform.platform import Platform
from ajoin.service import serve
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
clock = lambda: time.time_ns() // 1_000_000
engine = Engine.open(Path(sys.argv[1]), LocalExecutor(), None, clock)
serve(Platform(engine, clock=clock).start(), "127.0.0.1:0", lambda address: print(address, flush=True))
print("ended", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_gracefully(tmp_path, number):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, "-c", SERVE, str(tmp_path / "state")]
    # With these arguments Python spawns instead of forking: a fork disturbs the gRPC threads of this process.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, close_fds=False, env=environment) as process:
        address = process.stdout.readline().strip()
        with Client(address) as client:
            client.create_stream("V", columns=W, time="ts", source="push")
            events = client.watch_plan(timeout=WAIT)
            threading.Timer(0, lambda: process.send_signal(number)).start()
            with pytest.raises(errors.Unavailable):
                list(events)
        assert process.stdout.read().strip() == "ended"
        assert process.wait(WAIT) == 0
    with running(tmp_path / "state") as world:
        assert [s.schema.name for s in world.client.streams()] == ["V"]
