"""Subscribers that do not read, leave in the middle, come by the hundred, or ask for places that are none."""

# ruff: noqa: E501  (one kind a line reads better)
from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from typing import Any

import grpc

from ajoin.client.client import Client
from ajoin.client.results import Cursor
from ajoin.service.results import READ_AHEAD
from ajoin.v1 import plan_pb2, results_pb2
from ajoin.v1.plan_pb2_grpc import PlanServiceStub
from ajoin.v1.results_pb2_grpc import ResultServiceStub
from ajoin.wire import status
from optimizer.errors import AJoinError
from tests.ajoin.test_subscribers import NARROW
from tests.poison.kinds import SERVED, Ending, How, Kind, ending_of, invalid, one_call, refused
from tests.poison.scene import Scene
from tests.poison.service import KEPT

Steps = Generator[None, None, Ending]
OWN = [*NARROW, ("grpc.use_local_subchannel_pool", 1)]
WIDE, ROWS = "x" * 20_000, 100


def _wide_rows(scene: Scene) -> Generator[None, None, str]:
    """A query with more rows than fit into what may be under way to a client; its id."""
    left, right = scene.own("-l", judged=False), scene.own("-r", judged=False)
    scene.create(scene.over(left, right, select="a.s AS s, b.d AS d"))
    scene.push(left, [{"k": 1, "s": WIDE, "ts": 5}])
    scene.push(right, [{"k": 1, "d": n, "ts": 6} for n in range(ROWS)])
    yield
    return scene.name


def _subscribed(scene: Scene, channel: grpc.Channel, id: str) -> Any:
    request = results_pb2.SubscribeRequest(query_id=id)
    return ResultServiceStub(channel).Subscribe(
        request, metadata=scene.service.metadata("hostile"), timeout=scene.service.patience
    )


def _never_reads(scene: Scene) -> Steps:
    """Twenty of them, more than there is room for; whoever reads gets everything meanwhile, at their cost."""
    id = yield from _wide_rows(scene)
    ends: set[Ending] = set()
    with ExitStack() as open:
        channels = [open.enter_context(grpc.insecure_channel(scene.address, OWN)) for _ in range(20)]
        calls = [_subscribed(scene, channel, id) for channel in channels]
        assert len(list(scene.hostile.results(id, timeout=scene.service.patience))) == ROWS
        yield
        for call in calls:
            left = ROWS
            try:
                while left > 0:
                    left -= next(call).batch.rows
            except grpc.RpcError as failure:
                ends.add(ending_of(How.DISCONNECTED, status.from_rpc(failure)))
            call.cancel()
    if len(ends) > 1:
        ends -= {EXPIRED}  # somebody else has filled the retention meanwhile: those that were left lost their place
    return ends.pop() if len(ends) == 1 else Ending(How.SERVED, "", str(ends))


EXPIRED = Ending(How.DISCONNECTED, "FAILED_PRECONDITION", "CURSOR_EXPIRED")


def _stalls(scene: Scene) -> Steps:
    """Reads one message and no more, until what it has not read has left the retention."""
    id = yield from _wide_rows(scene)
    del scene.told.readers[id]  # it is the only one
    with grpc.insecure_channel(scene.address, OWN) as channel:
        call = _subscribed(scene, channel, id)
        assert next(call).batch.rows
        platform, right = scene.service.platform, f"{scene.name}-r"
        for n in range(2 * READ_AHEAD):  # more batches than the service holds for it
            platform.push(right, [{"k": 1, "d": n, "ts": 6}]).result(scene.service.patience)
            scene.until(lambda n=n: platform.stream(right).tuples == ROWS + n + 1, "more rows are not committed")  # type: ignore[misc]
        epoch = platform.epoch
        while platform.epoch <= epoch + KEPT:
            platform.raise_watermark(f"{scene.name}-l", platform.epoch).result(scene.service.patience)
        try:
            rows = sum(item.batch.rows for item in call)
        except grpc.RpcError as failure:
            return ending_of(How.DISCONNECTED, status.from_rpc(failure))
    return Ending(How.SERVED, "", f"{rows} rows")


def _leaves(scene: Scene) -> Steps:
    """Hangs up in the middle of a message, more often than its tenant may subscribe at a time; its places are free again."""
    id = yield from _wide_rows(scene)
    for _ in range(10):
        with grpc.insecure_channel(scene.address, OWN) as channel:
            assert next(_subscribed(scene, channel, id)).batch.rows
    assert len(scene.rows(id)) == ROWS
    return SERVED


def _hundred(scene: Scene) -> Steps:
    """A tenant that may have five subscriptions asks for a hundred; then all of them go, and it may have five again."""
    greedy = scene.service.client("greedy")
    greedy.create_query(scene.join(), id=scene.name)
    refusals: list[Ending] = []
    with grpc.insecure_channel(scene.address, OWN) as channel, ExitStack() as open:
        request = results_pb2.SubscribeRequest(query_id=scene.name)
        for _ in range(25):
            call = ResultServiceStub(channel).Subscribe(
                request, metadata=scene.service.metadata("greedy"), timeout=scene.service.patience
            )
            open.callback(call.cancel)
            try:
                next(call)
            except grpc.RpcError as failure:
                refusals.append(ending_of(How.REFUSED, status.from_rpc(failure)))
        yield
    assert len(refusals) >= 20 and len(set(refusals)) == 1, refusals
    scene.until(lambda: _may_subscribe(greedy, scene.name), "its places are not free again")
    greedy.delete_query(scene.name)
    return refusals[0]


def _may_subscribe(client: Client, id: str) -> bool:
    try:
        return bool(list(client.subscribe(id, follow=False, progress=True, timeout=10)))
    except AJoinError as busy:
        assert busy.reason in ("TENANT_QUOTA", "TENANT_RATE"), busy
        return False


def _watches(scene: Scene) -> Steps:
    """An operator's page that was left open: it asks for all changes of the plan and reads none."""
    with grpc.insecure_channel(scene.address, OWN) as channel:
        calls = [
            PlanServiceStub(channel).WatchPlan(
                plan_pb2.WatchPlanRequest(after_version=0), metadata=scene.service.metadata("operator")
            )
            for _ in range(20)
        ]
        for n in range(5):
            scene.hostile.create_query(scene.join(), id=f"{scene.name}-{n}")
        yield
        for n in range(5):
            scene.hostile.delete_query(f"{scene.name}-{n}")
        for call in calls:
            call.cancel()
    return SERVED


def _at(cursor: Cursor) -> Any:
    def call(scene: Scene) -> None:
        scene.create(scene.join())
        list(scene.hostile.subscribe(scene.name, cursor=cursor, follow=False, timeout=scene.service.patience))

    return call


def _inside_no_batch(scene: Scene) -> Steps:
    id = yield from _wide_rows(scene)
    at = Cursor(0, 0, 10**9)
    return scene.refusal(
        lambda: list(scene.hostile.subscribe(id, cursor=at, follow=False, timeout=scene.service.patience))
    )


SUBSCRIBERS = (
    one_call("cursor-of-the-future", "a place that no epoch has reached", invalid("BAD_CURSOR"), _at(Cursor(10**9, 0))),
    one_call("cursor-negative", "a place before the beginning", invalid("BAD_CURSOR"), _at(Cursor(-5, -(1 << 63)))),
    Kind("cursor-inside-no-batch", "a place beyond the rows of a batch", invalid("BAD_CURSOR"), _inside_no_batch),
    one_call("subscribes-to-nothing", "the rows of a query that never was", refused("NOT_FOUND", "QUERY_NOT_FOUND"),
             lambda s: list(s.hostile.subscribe("never"))),
    Kind("never-reads", "20 subscribers of 2 MB each that read nothing",
         Ending(How.DISCONNECTED, "RESOURCE_EXHAUSTED", "SUBSCRIBER_TOO_SLOW"), _never_reads),
    Kind("stalls", "reads one message and stops", EXPIRED, _stalls, last=True),
    Kind("leaves", "hangs up in the middle of messages", SERVED, _leaves),
    Kind("subscribes-100-times", "five times as many subscriptions as it may have",
         refused("RESOURCE_EXHAUSTED", "TENANT_QUOTA"), _hundred),
    Kind("plan-watchers", "20 watchers of the plan that read nothing", SERVED, _watches),
)  # fmt: skip
