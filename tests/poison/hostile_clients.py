"""What arrives at the port: bytes that are no gRPC, calls that are too large or too many, clients that say nothing."""

# ruff: noqa: E501  (one kind a line reads better)
from __future__ import annotations

import socket
from collections.abc import Callable, Generator
from contextlib import ExitStack
from typing import Any

import grpc

from ajoin.v1 import admin_pb2, queries_pb2
from ajoin.v1.admin_pb2_grpc import AdminServiceStub
from ajoin.v1.queries_pb2_grpc import QueryServiceStub
from ajoin.wire import status
from optimizer.errors import AJoinError
from tests.ajoin.test_wire import HOSTILE, PREFACE, closed
from tests.poison.kinds import SERVED, Ending, How, Kind, ending_of, invalid, one_call, refused
from tests.poison.scene import Scene
from tests.poison.service import MAILBOX, SQL_BYTES

Steps = Generator[None, None, Ending]
LOCAL = [("grpc.use_local_subchannel_pool", 1)]
"""A connection of its own, shared with no other channel."""


def _raw(name: str, does: str, ends: Ending, call: Callable[[Scene, grpc.Channel, Any], Any]) -> Kind:
    """A call on a connection of its own, below our client. The third argument: what says who calls."""

    def made(scene: Scene) -> None:
        with grpc.insecure_channel(scene.address, LOCAL) as channel:
            try:
                call(scene, channel, {"metadata": scene.service.metadata("hostile"), "timeout": scene.service.patience})
            except grpc.RpcError as failure:
                raise status.from_rpc(failure, scene.address) from None

    return one_call(name, does, ends, made)


def _bytes(method: str, sent: bytes) -> Callable[[Scene, grpc.Channel, Any], Any]:
    return lambda scene, channel, given: channel.unary_unary(f"/ajoin.v1.{method}")(sent, **given)


def _large_metadata(scene: Scene, channel: grpc.Channel, given: Any) -> Any:
    more = tuple((f"x-{n}", "y" * 1_000) for n in range(30))
    return AdminServiceStub(channel).GetStatus(
        admin_pb2.GetStatusRequest(), timeout=given["timeout"], metadata=(*given["metadata"], *more)
    )


def _impatient(scene: Scene, channel: grpc.Channel, given: Any) -> None:
    """Gives up at once, fifty times; nothing is left of what it asked for."""
    spec = queries_pb2.QuerySpec(sql=scene.join(), query_id=scene.name)
    for _ in range(50):
        call = QueryServiceStub(channel).CreateQuery.future(
            queries_pb2.CreateQueryRequest(spec=spec), metadata=given["metadata"]
        )
        call.cancel()
    known = [q.id for q in scene.hostile.queries() if q.id == scene.name]
    if known:  # one of them was faster
        scene.hostile.delete_query(scene.name)
    QueryServiceStub(channel).CreateQuery(
        queries_pb2.CreateQueryRequest(spec=spec), metadata=given["metadata"], timeout=1e-6
    )


def _garbage(scene: Scene) -> Steps:
    """Other protocols, broken frames, random bytes: each ends its own connection."""
    with ExitStack() as open:
        sent = [data for data in HOSTILE if len(data) > len(PREFACE) or data[:3] == b"GET"]
        sent += [scene.rng.randbytes(scene.rng.randint(50, 5_000)) for _ in range(20)]
        connections = [open.enter_context(_connected(scene, data)) for data in sent]
        yield
        scene.until(lambda: all(map(closed, connections)), "a connection with garbage stays open")
    return Ending(How.DISCONNECTED)


def _slow(scene: Scene) -> Steps:
    """A byte now and then, or none."""
    with ExitStack() as open:
        connections = [open.enter_context(_connected(scene, b"")) for _ in range(30)]
        for count, connection in enumerate(connections):
            connection.sendall(PREFACE[: count % 10])
        yield
        scene.until(lambda: all(map(closed, connections)), "a connection that says nothing stays open")
    return Ending(How.DISCONNECTED)


def _many_connections(scene: Scene) -> Steps:
    """150 clients that greet and then do nothing."""
    with ExitStack() as open:
        connections = [open.enter_context(_connected(scene, PREFACE + b"\0\0\0\4\0\0\0\0\0")) for _ in range(150)]
        yield
        assert not any(map(closed, connections))
    return SERVED


def _connected(scene: Scene, data: bytes) -> socket.socket:
    host, _, port = scene.address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=scene.service.patience)
    if data:
        connection.sendall(data)
    return connection


def _page(token: str) -> Callable[[Scene, grpc.Channel, Any], Any]:
    request = queries_pb2.ListQueriesRequest(page_token=token)
    return lambda scene, channel, given: QueryServiceStub(channel).ListQueries(request, **given)


def _too_much_sql(scene: Scene) -> Steps:
    """More SQL than all queries may have together, as comments."""
    sql = f"/* {'x' * 60_000} */ {scene.join()}"
    made, refusals = [], set()
    for n in range(SQL_BYTES // 60_000 + 2):
        try:
            made.append(scene.hostile.create_query(sql, id=f"{scene.name}-{n}").id)
        except AJoinError as error:
            refusals.add(ending_of(How.REFUSED, error))
    for id in made:
        scene.hostile.delete_query(id)
    yield
    assert made and len(refusals) == 1, refusals
    return refusals.pop()


CLIENTS = (
    one_call("mailbox-full", "more queries in one call than may wait", refused("RESOURCE_EXHAUSTED", "MAILBOX_FULL"),
             lambda s: s.hostile.create_queries([s.join()] * (MAILBOX + 1))),
    Kind("too-much-sql", "more SQL than all queries may have", refused("RESOURCE_EXHAUSTED", "TOO_MUCH_SQL"), _too_much_sql),
    _raw("malformed-bytes", "bytes that are no message", invalid("BAD_MESSAGE"),
         _bytes("QueryService/CreateQuery", b"\xff" * 100)),
    _raw("malformed-utf8", "a text that is no UTF-8", invalid("BAD_MESSAGE"),
         _bytes("QueryService/DeleteQuery", b"\x0a\x02\xff\xfe")),
    _raw("nested-message", "a message of 100,000 unknown groups", invalid("BAD_MESSAGE"),
         _bytes("QueryService/CreateQuery", b"\x7b" * 100_000)),
    _raw("wrong-method", "a method that is not there", refused("FAILED_PRECONDITION", "UNIMPLEMENTED"),
         _bytes("QueryService/DropEverything", b"")),
    _raw("empty-request", "a creation that asks for nothing", invalid("SQL_EMPTY"), _bytes("QueryService/CreateQuery", b"")),
    _raw("large-metadata", "30 KB of headers", refused("RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"), _large_metadata),
    _raw("impatient", "gives up before it is answered, 50 times", refused("UNAVAILABLE", "DEADLINE_EXCEEDED"), _impatient),
    _raw("forged-page", "a page token of its own making", invalid("BAD_PAGE_TOKEN"), _page("WzEsMl0=")),
    one_call("request-id-too-long", "a request id of 10,000 characters", invalid("BAD_REQUEST_ID"),
             lambda s: s.hostile.create_query(s.join(), request_id="x" * 10_000)),
    one_call("no-queries", "many queries, of which there are none", invalid("MISSING_FIELD"),
             lambda s: s.hostile.create_queries([])),

    Kind("garbage", "random bytes and other protocols", Ending(How.DISCONNECTED), _garbage),
    Kind("slow-loris", "30 connections that never finish their greeting", Ending(How.DISCONNECTED), _slow),
    Kind("many-connections", "150 connections that do nothing", SERVED, _many_connections),
)  # fmt: skip
