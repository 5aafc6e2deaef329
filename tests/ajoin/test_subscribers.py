"""Many subscribers at once, slow and stuck ones among them: everybody who reads gets everything, and nobody waits for
those who do not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest

from ajoin import errors
from ajoin.client.client import Client
from ajoin.service import results
from ajoin.service.in_flight import PLACE, InFlight
from ajoin.service.limits import ServiceLimits
from ajoin.v1 import results_pb2, results_pb2_grpc
from ajoin.wire import status
from runtime.engine.config import EngineConfig
from tests.ajoin.world import JOIN, WAIT, World, with_streams
from tests.faults.processes import until

KEPT = 4
NARROW = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 16)]
"""A client that takes no more ahead than it must; else what it holds for the server hides what the server holds."""
ALONE = ("grpc.use_local_subchannel_pool", 1)
"""A connection of its own."""
WIDE = "x" * 40_000
"""Some of these fill what a stream may have under way."""


def feed(world: World, epoch: int, keys: int, repeats: int = 1) -> None:
    """Every key gets rows, in one window a call."""
    at = 1000 * epoch
    world.feed(
        {
            "V": [{"ts": at, "vID": key, "geo": WIDE} for key in range(keys)],
            "W": [{"ts": at + 1, "vID": key, "usrID": n} for key in range(keys) for n in range(repeats)],
        }
    )


def selecting(key: int) -> str:
    return JOIN.replace("WINDOW", f"WHERE V.vID = {key} WINDOW")


class Subscriber:
    """`epochs`: windows whose row has come, as often as it came."""

    def __init__(self, stub: results_pb2_grpc.ResultServiceStub, key: int) -> None:
        self.call = stub.Subscribe(results_pb2.SubscribeRequest(query_id=f"q{key}"))
        self.rows = 0
        self.refused: errors.AJoinError | None = None

    async def read(self, rows: int) -> None:
        """Until it has so many rows."""
        while self.rows < rows:
            item = await self.call.read()
            self.rows += item.batch.rows

    async def read_to_the_end(self) -> None:
        try:
            while (item := await self.call.read()) is not grpc.aio.EOF:
                self.rows += item.batch.rows
        except grpc.RpcError as failure:
            self.refused = status.from_rpc(failure, "")


async def live(world: World, queries: int, subscribers: int, rounds: int) -> None:
    """A tenth never reads, a tenth reads every third round, the others always."""
    channels = [grpc.aio.insecure_channel(world.address, [*NARROW, ("grpc.channel_id", n)]) for n in range(4)]
    stubs = [results_pb2_grpc.ResultServiceStub(channel) for channel in channels]
    everybody = [Subscriber(stubs[n % 4], n % queries) for n in range(subscribers)]
    stuck, slow, quick = everybody[::10], everybody[1::10], [s for n, s in enumerate(everybody) if n % 10 > 1]
    for epoch in range(1, rounds + 1):
        await asyncio.to_thread(feed, world, epoch, queries)
        await asyncio.wait_for(asyncio.gather(*(s.read(epoch) for s in quick)), WAIT)
        if epoch % 3 == 0 or epoch == rounds:
            await asyncio.wait_for(asyncio.gather(*(s.read(epoch) for s in slow)), WAIT)
    assert {s.rows for s in quick + slow} == {rounds}, "each row once"
    await asyncio.wait_for(asyncio.gather(*(s.read_to_the_end() for s in stuck)), WAIT)
    assert {s.refused.reason for s in stuck if s.refused} == {"CURSOR_EXPIRED"} and all(s.refused for s in stuck)
    assert all(s.rows < rounds for s in stuck)
    for channel in channels:
        await channel.close()


@contextmanager
def subscribed(directory: Path, queries: int) -> Iterator[World]:
    with with_streams(directory, engine=EngineConfig(retention_epochs=KEPT)) as world:
        outcomes = world.client.create_queries({f"q{key}": selecting(key) for key in range(queries)})
        assert not [o for o in outcomes if isinstance(o, errors.AJoinError)]
        yield world


@pytest.mark.parametrize(
    ("queries", "subscribers"), [(10, 100), pytest.param(200, 2000, marks=pytest.mark.long)], ids=["some", "2000"]
)
def test_stuck_and_slow_subscribers_hold_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queries: int, subscribers: int
) -> None:
    monkeypatch.setattr(results, "PATIENCE", 0.2)
    with subscribed(tmp_path / "state", queries) as world:
        asyncio.run(live(world, queries, subscribers, rounds=4 * KEPT))
        assert world.platform.state == "RUNNING"


def own_memory() -> int:
    """Bytes of this process that are no mapped files."""
    (line,) = [x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("RssAnon")]
    return int(line.split()[1]) << 10


def test_stuck_subscribers_hold_a_small_part_of_what_they_have_not_read(tmp_path: Path) -> None:
    """Both ends of the calls and all that other tests have left are in this process, so the bound is a wide one."""
    stuck, rows = 40, 1000
    with with_streams(tmp_path / "state") as world, grpc.insecure_channel(world.address, NARROW) as channel:
        world.client.create_query(JOIN, id="q")
        feed(world, 1, rows)
        assert len(list(world.client.results("q", limit=rows))) == rows
        before = own_memory()
        calls = [
            results_pb2_grpc.ResultServiceStub(channel).Subscribe(results_pb2.SubscribeRequest(query_id="q"))
            for _ in range(stuck)
        ]
        for call in calls:
            assert next(call).batch.rows
        until(lambda: len(list(world.client.results("q"))) == rows, "one who reads gets nothing")
        grown = own_memory() - before
        unread = stuck * rows * len(WIDE)
        assert grown < unread / 4, f"{grown / stuck / 2**20:.1f} MiB each"
        for call in calls:
            call.cancel()


def test_whoever_falls_behind_retention_is_told_so_once_it_reads(tmp_path: Path) -> None:
    with subscribed(tmp_path / "state", 1) as world, Client(world.address, timeout=WAIT) as client:
        feed(world, 1, 1)
        first = next(iter(client.subscribe("q0")))
        for epoch in range(2, 3 * KEPT):
            feed(world, epoch, 1)
        with pytest.raises(errors.FailedPrecondition) as gone:
            next(iter(client.subscribe("q0", cursor=first.cursor)))
        assert gone.value.reason == "CURSOR_EXPIRED"


def test_who_is_ended_in_the_middle_of_a_large_message_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC takes no status while a message is under way, and these do not fit into what may be under way."""
    monkeypatch.setattr(results, "PATIENCE", 0.2)
    rows, room = 100, ServiceLimits(subscriber_bytes=2 << 20)
    with with_streams(tmp_path / "state", wire=room) as world, ExitStack() as open:
        world.client.create_query(JOIN, id="q")
        feed(world, 1, 1, rows)
        channels = [open.enter_context(grpc.insecure_channel(world.address, [*NARROW, ALONE])) for _ in range(8)]
        request = results_pb2.SubscribeRequest(query_id="q")
        calls = [results_pb2_grpc.ResultServiceStub(c).Subscribe(request, timeout=WAIT) for c in channels]
        assert len(list(world.client.results("q", limit=rows, timeout=WAIT))) == rows
        reasons = []
        for call in calls:
            read = 0
            try:
                while read < rows:
                    read += next(call).batch.rows
            except grpc.RpcError as failure:
                reasons.append(status.from_rpc(failure).reason)
            call.cancel()
        assert reasons and set(reasons) == {"SUBSCRIBER_TOO_SLOW"}


async def read_all(stub: results_pb2_grpc.ResultServiceStub, rows: int) -> int:
    """As a client does that comes back with its cursor when it is told that it was too slow."""
    request, read = results_pb2.SubscribeRequest(query_id="q0"), 0
    while read < rows:
        call = stub.Subscribe(request)
        try:
            while read < rows:
                item = await call.read()
                read += item.batch.rows
                cursor = item.batch.cursor if item.HasField("batch") else item.progress.cursor
                request = results_pb2.SubscribeRequest(query_id="q0", after=cursor)
        except grpc.RpcError as failure:
            assert status.from_rpc(failure, "").reason == "SUBSCRIBER_TOO_SLOW"
        call.cancel()
    return read


async def crowd(world: World, stuck: int, readers: int, rows: int) -> int:
    """How many of those who did not read were ended for that."""
    async with grpc.aio.insecure_channel(world.address) as channel:
        stub = results_pb2_grpc.ResultServiceStub(channel)
        idle = [Subscriber(stub, 0) for _ in range(stuck)]
        for s in idle:
            await s.call.wait_for_connection()
        read = await asyncio.wait_for(asyncio.gather(*(read_all(stub, rows) for _ in range(readers))), WAIT)
        assert set(read) == {rows}, "each row once"
        ended = 0
        for s in idle:
            while s.rows < rows and s.refused is None:
                try:
                    await asyncio.wait_for(s.read(s.rows + 1), WAIT)
                except grpc.RpcError as failure:
                    s.refused = status.from_rpc(failure, "")
                    assert s.refused.reason == "SUBSCRIBER_TOO_SLOW"
                    ended += 1
            s.call.cancel()
        return ended


def test_when_the_room_of_all_is_used_up_those_who_do_not_read_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room for four or five at a time, and six that do not read."""
    monkeypatch.setattr(results, "PATIENCE", 0.5)
    wire = ServiceLimits(subscriber_bytes=4 * PLACE)
    with with_streams(tmp_path / "state", wire=wire) as world:
        world.client.create_query(selecting(0), id="q0")
        feed(world, 1, 1, repeats=400)
        assert asyncio.run(crowd(world, stuck=6, readers=12, rows=400)) >= 2
        assert world.platform.state == "RUNNING"


def test_places_are_given_in_order_and_taken_from_the_slowest() -> None:
    async def run() -> None:
        now = 0.0
        room = InFlight(2 * PLACE, lambda: now)
        order: list[str] = []
        taken = [asyncio.Event() for _ in range(4)]
        leave = [asyncio.Event() for _ in range(4)]

        async def hold(n: int) -> None:
            async with room.place(0.02) as place:
                order.append(f"in {n}")
                taken[n].set()
                if n == 1:
                    with room.message(place, 2):
                        await place.wanted
                    return
                await leave[n].wait()

        tasks = [asyncio.create_task(hold(n)) for n in range(4)]
        await taken[0].wait()
        await taken[1].wait()
        assert room.held == 2 * PLACE and len(order) == 2
        now = 1.0  # the write of 1 has lasted long enough
        await taken[2].wait()
        assert tasks[1].done() and not taken[3].is_set()
        leave[0].set()
        await taken[3].wait()
        leave[2].set()
        leave[3].set()
        await asyncio.gather(*tasks)
        assert order == ["in 0", "in 1", "in 2", "in 3"] and room.held == 0

    asyncio.run(run())
