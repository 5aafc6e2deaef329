"""Two tenants on one platform: every RPC is tried by one of them, and nothing of the other's is in any answer.

The rival's queries are full of texts that occur nowhere else: ids, constants, conditions, aliases, sink paths, brokers
and the options of its stream's source. Whatever the other tenant gets back, messages, errors and trailing metadata, is
searched for them. The RPCs are taken from the services' descriptors, so one that is added needs a case here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory

from ajoin import errors
from ajoin.client.client import Client
from ajoin.platform.tenancy import Quota, Scope
from ajoin.service import Security
from ajoin.service.quotas import TokenBucket
from ajoin.service.server import SERVICES
from ajoin.service.tokens import Role, TokenFile, create_token
from ajoin.v1 import admin_pb2, plan_pb2, queries_pb2, results_pb2, streams_pb2
from optimizer.errors import AJoinError, InternalError, ResourceExhausted
from runtime.connectors import registry
from tests.ajoin.world import JOIN, WAIT, V, W, World, with_streams
from tests.faults.processes import until

FILES = (streams_pb2, queries_pb2, results_pb2, plan_pb2, admin_pb2)
METHODS = {
    f"{service.name}/{method.name}": method
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
RIVAL = "rival"
SECRETS = ("SECRET", "secret", RIVAL, "987654")
SECRET_SQL = """SELECT V.vID AS secret_output, SECRETALIAS.usrID FROM V JOIN W AS SECRETALIAS ON V.vID = SECRETALIAS.vID
WHERE V.geo <> 'SECRETCONSTANT' AND SECRETALIAS.usrID < 987654321 WINDOW TUMBLING (SIZE 987654 MILLISECONDS)"""
SHARING_SQL = JOIN.replace("WINDOW", "WHERE V.geo <> 'SECRETCONSTANT' WINDOW")

queries, streams, plan, res, admin = queries_pb2, streams_pb2, plan_pb2, results_pb2, admin_pb2


def _guesses(make: Callable[[str], Any]) -> list[Any]:
    """A request of one's own query, and of the rival's under every name one could try."""
    return [make(id) for id in ("mine", "guessable", f"{RIVAL}/guessable", "never-used", "../guessable")]


def _stream(name: str) -> Any:
    columns = [streams.Column(name="ts", type=streams.COLUMN_TYPE_TIMESTAMP)]
    source = streams.Connector(kind="push")
    spec = streams.StreamSpec(name=name, columns=columns, time_column="ts", source=source)
    return streams.CreateStreamRequest(spec=spec, request_id="r")


def _spec(id: str, sql: str = JOIN, **rest: Any) -> Any:
    return queries.QuerySpec(sql=sql, query_id=id, **rest)


CASES: Mapping[str, Callable[[], list[Any]]] = {
    "StreamService/CreateStream": lambda: [_stream("mine"), _stream("V"), _stream("hers"), _stream("")],
    "StreamService/ListStreams": lambda: [streams.ListStreamsRequest()],
    "StreamService/GetStream": lambda: [streams.GetStreamRequest(name=n) for n in ("V", "hers", "none")],
    "StreamService/DeleteStream": lambda: [streams.DeleteStreamRequest(name=n) for n in ("V", "hers", "none")],
    "StreamService/ResetWatermark": lambda: [
        streams.ResetWatermarkRequest(name=n, watermark_ms=5) for n in ("V", "mine", "hers", "none")
    ],
    "StreamService/RestartStream": lambda: [
        streams.RestartStreamRequest(name=n, offset="earliest") for n in ("V", "mine", "hers", "none")
    ],
    "StreamService/ListDeadLetters": lambda: [streams.ListDeadLettersRequest(name=n) for n in ("V", "hers", "none")],
    "QueryService/CreateQuery": lambda: [
        queries.CreateQueryRequest(spec=_spec("guessable"), request_id="r"),
        queries.CreateQueryRequest(spec=_spec("guessable")),
        queries.CreateQueryRequest(spec=_spec("")),
        queries.CreateQueryRequest(spec=_spec("x", "SELECT nonsense")),
        queries.CreateQueryRequest(spec=_spec(f"{RIVAL}/guessable")),
    ],
    "QueryService/CreateQueries": lambda: [
        queries.CreateQueriesRequest(specs=[_spec("a1"), _spec("a1"), _spec(""), _spec("guessable")], request_id="r")
    ],
    "QueryService/DeleteQuery": lambda: [
        queries.DeleteQueryRequest(query_id=id) for id in ("a1", "a1", f"{RIVAL}/guessable", "only-rival", "never-used")
    ],
    "QueryService/SuspendQuery": lambda: _guesses(lambda id: queries.SuspendQueryRequest(query_id=id, reason="mine")),
    "QueryService/ResumeQuery": lambda: _guesses(lambda id: queries.ResumeQueryRequest(query_id=id)),
    "QueryService/GetQuery": lambda: [
        *_guesses(lambda id: queries.GetQueryRequest(query_id=id)),
        *(queries.GetQueryRequest(query_id="mine", uid=f"guessable#{n}") for n in range(5)),
        *(queries.GetQueryRequest(query_id="only-rival", uid=f"only-rival#{n}") for n in range(5)),
    ],
    "QueryService/ListQueries": lambda: [
        queries.ListQueriesRequest(),
        queries.ListQueriesRequest(page_size=1, state=queries.QUERY_STATE_RUNNING),
        queries.ListQueriesRequest(page_token="WyJ4Il0="),
    ],
    "ResultService/Subscribe": lambda: [
        *_guesses(lambda id: res.SubscribeRequest(query_id=id, stop_when_caught_up=True)),
        res.SubscribeRequest(query_id="mine", after=res.Cursor(epoch=10**9)),
        res.SubscribeRequest(query_id="only-rival", stop_when_caught_up=True),
    ],
    "PlanService/Explain": lambda: [
        plan.ExplainRequest(format=format, **subject)
        for format in plan.PlanFormat.values()
        for subject in ({}, {"query_id": "mine"}, {"query_id": "only-rival"}, {"sql": JOIN}, {"sql": SECRET_SHAPE})
    ],
    "PlanService/WatchPlan": lambda: [plan.WatchPlanRequest(after_version=0), plan.WatchPlanRequest()],
    "PlanService/Optimize": lambda: [plan.OptimizeRequest(dry_run=dry) for dry in (True, False)],
    "PlanService/ForceOrder": lambda: [plan.ForceOrderRequest(query_id=id) for id in ("mine", "only-rival")],
    "PlanService/ForceGroups": lambda: [plan.ForceGroupsRequest(groups={"mine": 1, f"{RIVAL}/only-rival": 1})],
    "PlanService/Scale": lambda: [plan.ScaleRequest(partitions=2)],
    "PlanService/SplitPartition": lambda: [plan.SplitPartitionRequest(partition=0, ways=2)],
    "AdminService/GetStatus": lambda: [admin.GetStatusRequest()],
    "AdminService/GetStatistics": lambda: [admin.GetStatisticsRequest(), admin.GetStatisticsRequest(epochs=1)],
}

SECRET_SHAPE = "SELECT V.vID FROM V JOIN W ON V.vID = W.vID WINDOW TUMBLING (SIZE 7 SECONDS)"
"""A query of the rival's shape, with nothing of its text."""


def test_every_rpc_has_a_case() -> None:
    assert set(CASES) == set(METHODS) and len(SERVICES) == len(FILES)


@dataclass(frozen=True)
class Tenants:
    """`mine` is a channel with a token of tenant a; the world's own client is an operator's."""

    world: World
    mine: grpc.Channel
    token: str
    rival: Client

    def call(self, name: str, request: Any, timeout: float = WAIT) -> tuple[list[Any], grpc.RpcError | None]:
        """What came back: messages and, if it failed, how."""
        method = METHODS[name]
        shape = self.mine.unary_stream if method.server_streaming else self.mine.unary_unary
        rpc = shape(
            f"/ajoin.v1.{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=message_factory.GetMessageClass(method.output_type).FromString,
        )
        metadata = (("authorization", f"Bearer {self.token}"),)
        got: list[Any] = []
        try:
            answer = rpc(request, metadata=metadata, timeout=timeout)
            got += answer if method.server_streaming else [answer]
        except grpc.RpcError as failure:
            return got, failure
        return got, None


@pytest.fixture
def tenants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tenants]:
    kafka = registry.SINKS["kafka"]
    monkeypatch.setitem(registry.SINKS, "kafka", replace(kafka, reach=lambda sink: None))  # it was there once
    file = tmp_path / "tokens.toml"
    operator = create_token(file, "operator", Role.admin)
    mine, rival = create_token(file, "mine", Role.write, "a"), create_token(file, "hers", Role.write, RIVAL)
    security = Security(tokens=TokenFile(file))
    with (
        with_streams(tmp_path / "s", security=security, token=operator) as world,
        Client(world.address, token=rival, timeout=WAIT) as hers,
        grpc.insecure_channel(world.address) as channel,
    ):
        folder = tmp_path / "SECRETFOLDER"
        folder.mkdir()
        hers.create_stream("hers", columns=V, time="ts", source="files", options={"path": str(folder)})
        sinks = [("parquet", {"path": str(tmp_path / "SECRETSINK")})]
        dead = [("kafka", {"bootstrap": "127.0.0.1:1", "topic": "SECRETTOPIC", "timeout_ms": 1000})]
        hers.create_query(SECRET_SQL, id="SECRETID", sinks=sinks, request_id="r")
        hers.create_query(SECRET_SQL, id="guessable", sinks=dead)
        hers.create_query(SHARING_SQL, id="only-rival")
        hers.create_query(SECRET_SQL, id="SECRETGONE")
        hers.delete_query("SECRETGONE")
        made = Tenants(world, channel, mine, hers)
        created, failure = made.call("QueryService/CreateQuery", queries.CreateQueryRequest(spec=_spec("mine")))
        assert failure is None and created[0].query.query_id == "mine"
        rows = {"V": [{"ts": 1000, "vID": n, "geo": "x"} for n in range(7)]}
        world.feed(rows | {"W": [{"ts": 1001, "vID": n, "usrID": n} for n in range(7)]}, watermark=3_000_000)
        until(lambda: any(s.error for s in world.client.status().sinks_behind), "no sink of the rival's fails")
        yield made


def strings(message: Any) -> set[str]:
    """Every text in a request: what a caller says itself may come back to it."""
    found = set()
    for field, value in message.ListFields():
        for part in value if isinstance(value, list) or hasattr(value, "__iter__") else [value]:
            if isinstance(part, str):
                found.add(part)
            elif hasattr(part, "ListFields"):
                found |= strings(part)
        del field
    return found


def told(messages: list[Any], failure: grpc.RpcError | None, request: Any) -> str:
    text = "\n".join(f"{m}\n{m.SerializeToString()!r}" for m in messages)
    if failure is not None:
        text += f"\n{failure.details()}\n{failure.trailing_metadata()!r}"
    for own in sorted(strings(request), key=len, reverse=True):
        text = text.replace(own, "")
    return text


def search(tenants: Tenants, name: str) -> list[str]:
    """Try every request of one RPC; the secrets that were in an answer."""
    found = []
    for request in CASES[name]():
        timeout = 5.0 if name == "PlanService/WatchPlan" else WAIT
        text = told(*tenants.call(name, request, timeout), request)
        found += [f"{secret} in the answer to {request}: {text}" for secret in SECRETS if secret in text]
    return found


def test_no_rpc_tells_anything_of_another_tenant(tenants: Tenants) -> None:
    seen = [f"{SECRETS}" for q in tenants.rival.queries() if "SECRET" in q.sql]
    assert len(seen) == 4, "there is something to find"
    for name in sorted(CASES):
        assert search(tenants, name) == []


def test_a_failed_platform_does_not_tell_either(tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("SECRETFAILURE in rival/SECRETID")

    platform = tenants.world.platform
    monkeypatch.setattr(platform._engine, "run_epoch", fail)
    platform.push("V", [{"ts": 3_000_001, "vID": 1, "geo": "x"}]).result(WAIT)
    assert platform.wait_until(lambda: platform.state == "FAILED", WAIT)
    assert "SECRETFAILURE" in tenants.world.client.status().message, "an operator is told"
    for name in sorted(CASES):
        assert search(tenants, name) == []
    _, failure = tenants.call("ResultService/Subscribe", res.SubscribeRequest(query_id="mine"))
    assert failure is not None and failure.code() == grpc.StatusCode.INTERNAL
    assert "PLATFORM_FAILED" in repr(failure.trailing_metadata())


def test_numbers_are_the_tenant_s_own(tenants: Tenants) -> None:
    everybody = tenants.world.client.status()
    (((status,), _), ((statistics,), _)) = (
        tenants.call("AdminService/GetStatus", admin.GetStatusRequest()),
        tenants.call("AdminService/GetStatistics", admin.GetStatisticsRequest()),
    )
    assert everybody.rows == 28 and everybody.queries == 4 and everybody.sinks == 2 and everybody.plan_version > 4
    assert (status.rows, status.queries, status.sinks, status.plan_version) == (7, 1, 0, 0)
    assert not status.buckets and not status.bucket_bytes and not status.stage_seconds and not status.sinks_behind
    assert status.epoch == everybody.epoch and status.tuples == everybody.tuples == 14
    assert [q.query_id for q in statistics.queries] == ["mine"]
    assert statistics.epochs and not any(e.rows or e.stage_seconds or e.latency_seconds for e in statistics.epochs)
    ((got,), _) = tenants.call("QueryService/GetQuery", queries.GetQueryRequest(query_id="mine"))
    assert got.query.plan_version == 0 and got.query.rows == 7


def test_shared_nodes_count_the_others(tenants: Tenants) -> None:
    ((explained,), _) = tenants.call("PlanService/Explain", plan.ExplainRequest(query_id="mine"))
    assert "[mine and 3 of others" in explained.text and explained.plan_version == 0
    assert "plan version" not in explained.text and "observed" not in explained.text


def test_an_id_is_free_for_everybody_and_answers_do_not_tell_which_are_taken(tenants: Tenants) -> None:
    def ask(id: str) -> tuple[Any, str]:
        _, failure = tenants.call("QueryService/GetQuery", queries.GetQueryRequest(query_id=id))
        assert failure is not None
        return failure.code(), failure.details().replace(id, "")

    assert ask("only-rival") == ask("SECRETID") == ask("never-used")
    for id in ("only-rival", "SECRETID"):
        (created,), failure = tenants.call("QueryService/CreateQuery", queries.CreateQueryRequest(spec=_spec(id)))
        assert failure is None and created.query.query_id == id
    chosen = [tenants.call("QueryService/CreateQuery", queries.CreateQueryRequest(spec=_spec(""))) for _ in range(2)]
    assert [got[0].query.query_id for got, _ in chosen] == ["q-1", "q-2"]
    assert tenants.rival.create_query(JOIN).id == "q-1", "nobody can count another's"


def test_the_options_of_a_source_are_shown_to_its_owner(tenants: Tenants) -> None:
    ((stream,), _) = tenants.call("StreamService/GetStream", streams.GetStreamRequest(name="hers"))
    assert stream.stream.spec.source.kind == "files" and not stream.stream.spec.source.options
    assert "SECRETFOLDER" in tenants.rival.stream("hers").source.settings["path"]
    assert "SECRETFOLDER" in tenants.world.client.stream("hers").source.settings["path"]


def test_a_full_platform_does_not_count_others() -> None:
    full = ResourceExhausted("4,096 queries exist", reason="TOO_MANY_QUERIES")
    shown = Scope("a").error(full, "x")
    assert shown.reason == full.reason and "4,096" not in str(shown) and "max_queries" in shown.hint
    inside = InternalError("rival/q died", reason="BATCH_FAILED")
    assert "rival" not in str(Scope("a").error(inside, "x7")) and "x7" in str(Scope("a").error(inside, "x7"))
    assert Scope().error(inside, "x") is inside and Scope().error(full, "x") is full


# -- quotas -------------------------------------------------------------------------------------------------


@pytest.fixture
def bounded(tmp_path: Path) -> Iterator[tuple[World, Client, Client, Path]]:
    file = tmp_path / "tokens.toml"
    operator = create_token(file, "operator", Role.admin)
    mine, other = (create_token(file, name, Role.write, name) for name in "ab")
    security = Security(tokens=TokenFile(file, Quota(streams=2, subscribers=2)))
    with (
        with_streams(tmp_path / "s", security=security, token=operator) as world,
        Client(world.address, token=mine, timeout=WAIT) as a,
        Client(world.address, token=other, timeout=WAIT) as b,
    ):
        yield world, a, b, file


def exhausted(call: Callable[..., Any], *arguments: Any, **options: Any) -> AJoinError:
    with pytest.raises(errors.ResourceExhausted) as failure:
        call(*arguments, **options)
    return failure.value


def test_a_tenant_may_declare_so_many_streams(bounded: tuple[World, Client, Client, Path]) -> None:
    world, a, b, _ = bounded
    for name in ("a1", "a2"):
        a.create_stream(name, columns=W, time="ts", source="push")
    refused = exhausted(a.create_stream, "a3", columns=W, time="ts", source="push")
    assert refused.reason == "TENANT_QUOTA" and "max_tenant_streams" in refused.hint
    b.create_stream("b1", columns=W, time="ts", source="push")
    world.client.delete_stream("a1")
    assert a.create_stream("a3", columns=W, time="ts", source="push").schema.name == "a3"


def test_a_tenant_may_have_so_many_subscribers(bounded: tuple[World, Client, Client, Path]) -> None:
    _, a, b, _ = bounded
    a.create_query(JOIN, id="q")
    b.create_query(JOIN, id="q")
    open = [iter(a.subscribe("q", start="now", progress=True)) for _ in range(2)]
    for subscription in open:
        next(subscription)
    refused = exhausted(lambda: next(iter(a.subscribe("q", progress=True))))
    assert refused.reason == "TENANT_QUOTA" and "max_tenant_subscribers" in refused.hint
    next(iter(b.subscribe("q", progress=True)))
    open.pop().close()

    def again() -> bool:
        try:
            next(iter(a.subscribe("q", start="now", progress=True)))
        except errors.ResourceExhausted:
            return False
        return True

    until(again, "the place of a subscription that ended is not free")


def test_a_flood_of_calls_is_refused_and_others_are_not(bounded: tuple[World, Client, Client, Path]) -> None:
    world, a, b, file = bounded
    file.write_text(file.read_text() + "\n[tenant.a]\nmax_requests = 3\n")
    refusals = []
    for _ in range(50):
        try:
            a.status()
        except errors.ResourceExhausted as refused:
            refusals.append(refused)
        b.status()
    assert refusals and {r.reason for r in refusals} == {"TENANT_RATE"}
    assert "max_tenant_requests" in refusals[0].hint and world.client.status().state == "RUNNING"


def test_a_bucket_gives_out_its_rate() -> None:
    bucket, given = TokenBucket(10, 0.0), 0
    for tick in range(1000):
        given += bucket.take(10, tick / 100)
    assert 10 + 99 - 1 <= given <= 10 + 100, "a burst of one second, then ten a second for ten seconds"
    assert [TokenBucket(0, 0.0).take(0, t) for t in (0.0, 100.0)] == [False, False]
    idle = TokenBucket(2, 0.0)
    assert [idle.take(2, 1000.0) for _ in range(3)] == [True, True, False], "what was not used is not saved up"
