"""Clients that know several addresses: they find the one that serves, and stay with their call or subscription."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from typer.testing import CliRunner

from ajoin import AsyncClient, Client, errors
from ajoin.cli import app
from ajoin.client import addresses
from ajoin.client.addresses import RETRY_AFTER, Addresses, Search
from ajoin.platform.platform import Platform
from ajoin.service import Security, ServerThread
from ajoin.service.standby import StandbyServer
from ajoin.service.tokens import Role, TokenFile, create_token
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from tests.ajoin.world import JOIN, QUICK, WAIT, V, W, World, running, wall_clock
from tests.tools.ports import free_port

BOTH = pytest.mark.parametrize("asynchronous", [False, True])


class Failure(Exception):
    """A failed call without any message of ours."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return ""


GONE = Failure(grpc.StatusCode.UNAVAILABLE)


@contextmanager
def platform(directory: Path, store: Path, address: str) -> Iterator[World]:
    """A platform on the store that is cut off at the end like a killed one; calls that are open are cut off, too."""
    engine = Engine.open(directory, LocalExecutor(), EngineConfig(store=str(store)), wall_clock)
    opened = Platform(engine, clock=wall_clock, pace=QUICK).start()
    server = ServerThread(opened, address).start()
    with Client(server.address, timeout=WAIT) as client:
        yield World(opened, client, server.address)
    opened.stop(graceful=False)
    server.stop(0.0)


def rows(n: int) -> dict[str, list[dict[str, object]]]:
    return {"V": [{"ts": n, "vID": n, "geo": "x"}], "W": [{"ts": n, "vID": n, "usrID": n}]}


# -- the search ---------------------------------------------------------------------------------------------


def search(count: int, patience: float | None, repeats: bool = True) -> tuple[Search, Addresses, list[float]]:
    now = [0.0]
    known = Addresses(tuple(f"h{i}:1" for i in range(count)), [None] * count)
    return Search(known, patience, patience, repeats=repeats, clock=lambda: now[0]), known, now


def test_all_addresses_are_tried_before_a_pause_and_again_until_the_time_is_over():
    looking, known, now = search(3, 60.0)
    tried, pauses = [], []
    with pytest.raises(errors.Unavailable) as gone:
        for _ in range(1000):
            assert looking.begin() == 60.0 - now[0]
            tried.append(known.current)
            pauses.append(looking.pause(GONE))
            now[0] += pauses[-1]
    assert gone.value.reason == "UNREACHABLE"
    assert tried[:7] == [0, 1, 2, 0, 1, 2, 0]
    assert pauses[:9] == [0, 0, RETRY_AFTER[0], 0, 0, RETRY_AFTER[1], 0, 0, RETRY_AFTER[2]]
    assert set(pauses[9:]) == {0, RETRY_AFTER[2]}
    assert 58 < now[0] <= 60


def test_a_single_address_is_tried_a_few_times_and_a_subscription_once():
    looking, _, _ = search(1, 60.0)
    pauses = []
    with pytest.raises(errors.Unavailable):
        for _ in range(10):
            pauses.append(looking.pause(GONE))
    assert tuple(pauses) == RETRY_AFTER
    with pytest.raises(errors.Unavailable):
        search(1, 60.0, repeats=False)[0].pause(GONE)


def test_time_begins_anew_when_the_platform_was_found():
    looking, _, now = search(2, None)
    looking = Search(looking._addresses, 5.0, None, repeats=False, clock=lambda: now[0])
    for _ in range(10):
        assert looking.begin() is None
        assert (looking.pause(GONE), looking.pause(GONE)) == (0, RETRY_AFTER[0])
        now[0] += 4.0
        looking.found()


def test_an_answer_is_an_answer_and_threads_do_not_push_each_other_on():
    looking, known, _ = search(2, 60.0)
    with pytest.raises(errors.NotFound):
        looking.pause(Failure(grpc.StatusCode.NOT_FOUND))
    assert known.current == 0
    known.leave(0)
    known.leave(0)
    assert known.current == 1
    with pytest.raises(errors.Unavailable):
        looking.begin()
        looking.pause(Failure(grpc.StatusCode.DEADLINE_EXCEEDED))
    assert known.current == 0, "who did not answer in time is not asked first again"


@pytest.mark.parametrize("target", ["", "a:1,", [], ["a:1", ""]])
def test_no_address_is_an_error(target):
    with pytest.raises(errors.InvalidRequest) as refused:
        Client(target)
    assert refused.value.reason == "BAD_ADDRESS"


def test_addresses_as_people_write_them():
    assert addresses.parse("a:1, b:2,a:1") == addresses.parse(["a:1", "b:2"]) == ("a:1", "b:2")


# -- with servers -------------------------------------------------------------------------------------------


def test_a_standby_says_that_it_is_one_and_where_the_platform_is():
    with StandbyServer("127.0.0.1:0", lambda: "there:7411") as standby:
        with Client(standby.address) as client:
            for call in (client.status, lambda: client.create_query("SELECT"), lambda: next(client.subscribe("q"))):
                with pytest.raises(errors.Unavailable) as refused:
                    call()
                assert refused.value.reason == "STANDBY" and "there:7411" in refused.value.message
        with grpc.insecure_channel(standby.address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for name in ("", "ajoin.v1.QueryService"):
                answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=WAIT)
                assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING


def test_a_stranger_does_not_learn_where_the_platform_is(tmp_path):
    token = create_token(tmp_path / "tokens.toml", "operator", Role.read)
    security = Security(tokens=TokenFile(tmp_path / "tokens.toml"))
    with StandbyServer("127.0.0.1:0", lambda: "there:7411", security) as standby:
        with Client(standby.address) as stranger, pytest.raises(errors.Unauthenticated):
            stranger.status()
        with Client(standby.address, token=token) as known, pytest.raises(errors.Unavailable, match="there"):
            known.status()


@BOTH
def test_the_one_that_serves_is_found(tmp_path, asynchronous):
    nobody = f"127.0.0.1:{free_port()}"
    with running(tmp_path / "state") as world, StandbyServer("127.0.0.1:0", lambda: "") as standby:
        known = f"{nobody},{standby.address},{world.address}"

        async def ask() -> str:
            async with AsyncClient(known.split(","), timeout=WAIT) as client:
                await client.create_stream("V", columns=V, time="ts", source="push")
                return (await client.stream("V")).schema.name

        if asynchronous:
            assert asyncio.run(ask()) == "V"
        else:
            with Client(known, timeout=WAIT) as client:
                assert client.status().state == "RUNNING"
        done = CliRunner().invoke(app, ["status", "--json", "--server", known])
        assert done.exit_code == 0 and '"RUNNING"' in done.stdout
        assert CliRunner().invoke(app, ["status", "--server", f"{world.address},"]).exit_code == 2


def test_nobody_serves():
    with StandbyServer("127.0.0.1:0", lambda: "") as standby:
        known = [standby.address, f"127.0.0.1:{free_port()}"]
        with Client(known, timeout=1.0) as client:
            with pytest.raises(errors.Unavailable) as refused:
                client.status()
            assert refused.value.reason in ("STANDBY", "UNREACHABLE")
            with pytest.raises(errors.Unavailable):
                next(client.subscribe("q", uid="q"))


@BOTH
def test_calls_and_subscriptions_go_on_at_the_next_platform(tmp_path, asynchronous):
    """A platform is cut off while it is followed, and one at the other address takes over, three times to and fro."""
    here, there = (f"127.0.0.1:{free_port()}" for _ in range(2))
    lives = [here, there, here, there]
    seen: list[int] = []
    versions: list[int] = []
    failed: list[BaseException] = []

    async def follow() -> None:
        async with AsyncClient([here, there], timeout=WAIT) as client:
            async for batch in client.subscribe("q"):
                seen.extend(batch.table["vID"].to_pylist())
                if len(seen) >= len(lives):
                    return

    def follow_blocking() -> None:
        with Client(f"{here},{there}", timeout=WAIT) as client:
            for batch in client.subscribe("q"):
                seen.extend(batch.table["vID"].to_pylist())
                if len(seen) >= len(lives):
                    return

    def watch() -> None:
        with Client([here, there], timeout=WAIT) as client:
            for event in client.watch_plan(after_version=first):
                versions.append(event.version)
                if len(versions) >= len(lives):
                    return

    def guarded(run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as failure:
            failed.append(failure)

    runs = ((lambda: asyncio.run(follow())) if asynchronous else follow_blocking, watch)
    readers = [threading.Thread(target=guarded, args=(run,), daemon=True) for run in runs]
    with Client([here, there], timeout=WAIT) as client:
        for n, address in enumerate(lives):
            other = there if address == here else here
            with (
                StandbyServer(other, lambda address=address: address),
                platform(tmp_path / f"s{n}", tmp_path / "store", address) as world,
            ):
                if n == 0:
                    for name, columns in (("V", V), ("W", W)):
                        client.create_stream(name, columns=columns, time="ts", source="push")
                    client.create_query(JOIN, id="q")
                    first = client.status().plan_version
                    for reader in readers:
                        reader.start()
                client.create_query(JOIN, id=f"q{n}")
                world.feed(rows(10 + n))
                until(lambda n=n: failed or (len(seen) > n and len(versions) > n))
                assert not failed
        for reader in readers:
            reader.join(WAIT)
    assert seen == [10, 11, 12, 13]
    assert versions == [first + 1, first + 2, first + 3, first + 4]


def test_a_create_whose_answer_got_lost_with_the_platform_is_not_done_twice(tmp_path):
    address = f"127.0.0.1:{free_port()}"
    with platform(tmp_path / "a", tmp_path / "store", address) as world:
        for name, columns in (("V", V), ("W", W)):
            world.client.create_stream(name, columns=columns, time="ts", source="push")
        named = world.client.create_query(JOIN, id="q", request_id="r1")
        chosen = world.client.create_query(JOIN, request_id="r2")
        many = world.client.create_queries([JOIN, JOIN], request_id="r3")
        other = world.client.create_query(JOIN, request_id="r4")
        world.client.delete_query(other.id)
    with platform(tmp_path / "b", tmp_path / "store", address) as world:
        assert world.client.create_query(JOIN, id="q", request_id="r1").uid == named.uid
        assert world.client.create_query(JOIN, request_id="r2").uid == chosen.uid
        assert [q.uid for q in world.client.create_queries([JOIN, JOIN], request_id="r3")] == [q.uid for q in many]
        assert world.client.create_query(JOIN, request_id="r4").state == "DELETED"
        assert len([q for q in world.client.queries() if q.state == "RUNNING"]) == 4
        with pytest.raises(errors.InvalidRequest) as reused:
            world.client.create_query(JOIN.replace("V.geo, ", ""), request_id="r2")
        assert reused.value.reason == "REQUEST_ID_REUSED"
        with pytest.raises(errors.AlreadyExists):
            world.client.create_query(JOIN, id="q", request_id="r5")


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
