"""TLS, client certificates and tokens against a real server: who gets in, and what they may do there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import ajoin
from ajoin import errors
from ajoin.client.client import Client
from ajoin.platform.tenancy import Quota
from ajoin.service import Security, ServerThread, Tls
from ajoin.service.access import LEAST
from ajoin.service.security import OPEN, is_loopback
from ajoin.service.server import SERVICES
from ajoin.service.tokens import Role, TokenFile, create_token
from ajoin.v1 import admin_pb2, plan_pb2, queries_pb2, results_pb2, streams_pb2
from runtime.connectors.options import NOWHERE
from runtime.engine.config import EngineConfig
from tests.ajoin.certificates import Authority
from tests.ajoin.world import JOIN, WAIT, V, W, running, with_streams


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "theirs")


@pytest.fixture(scope="module")
def server_pair(authority):
    return authority.sign("server")


def tls(pair, client_ca: Path | None = None) -> Tls:
    return Tls(pair.cert.read_bytes(), pair.key.read_bytes(), client_ca and client_ca.read_bytes())


def refused(address: str, **connection) -> errors.AJoinError:
    with Client(address, timeout=WAIT, **connection) as client, pytest.raises(errors.AJoinError) as failure:
        client.status()
    return failure.value


# -- TLS ----------------------------------------------------------------------------------------------------


def test_tls_serves_those_who_trust_its_authority_and_nobody_in_the_clear(tmp_path, authority, stranger, server_pair):
    with running(tmp_path / "s", security=Security(tls(server_pair)), tls_ca=authority.cert) as world:
        assert world.client.status().state == "RUNNING"
        in_the_clear = refused(world.address)
        assert in_the_clear.reason == "UNREACHABLE" and "tls_ca" in in_the_clear.hint
        assert refused(world.address, tls_ca=stranger.cert).reason == "TLS_FAILED"

        async def also_asynchronously() -> str:
            async with ajoin.AsyncClient(world.address, tls_ca=authority.cert) as client:
                return (await client.status()).state

        assert asyncio.run(also_asynchronously()) == "RUNNING"


def test_mutual_tls_asks_clients_for_a_certificate(tmp_path, authority, stranger, server_pair):
    mine, theirs = authority.sign("client"), stranger.sign("client")
    security = Security(tls(server_pair, authority.cert))
    with running(tmp_path / "s", security=security, tls_ca=authority.cert, cert=mine.cert, key=mine.key) as world:
        assert world.client.status().state == "RUNNING"
        assert isinstance(refused(world.address, tls_ca=authority.cert), errors.Unavailable)
        with_theirs = refused(world.address, tls_ca=authority.cert, cert=theirs.cert, key=theirs.key)
        assert isinstance(with_theirs, errors.Unavailable)


def test_half_a_connection_is_refused(tmp_path, authority):
    pair = authority.sign("half")
    for wrong in (
        {"cert": pair.cert},
        {"cert": pair.cert, "key": pair.key},
        {"tls_ca": tmp_path / "none.pem"},
        {"tls_ca": authority.cert, "key": pair.key},
    ):
        with pytest.raises(errors.InvalidRequest) as failure:
            Client("127.0.0.1:1", **wrong)
        assert failure.value.reason == "CONFIG_TLS"


def test_listening_elsewhere_needs_protection(tmp_path, authority, server_pair):
    (tmp_path / "tokens.toml").write_text("")
    tokens = TokenFile(tmp_path / "tokens.toml")
    for allowed in (
        Security(tls(server_pair), tokens),
        Security(tls(server_pair, authority.cert)),
        Security(insecure=True),
    ):
        allowed.check("0.0.0.0:7411")
    for address in ("0.0.0.0:7411", "[::]:7411", "192.0.2.1:7411", "example.org:7411"):
        for security in (OPEN, Security(tls(server_pair)), Security(None, tokens)):
            with pytest.raises(errors.FailedPrecondition) as failure:
                security.check(address)
            assert failure.value.reason == "CONFIG_INSECURE"
    with running(tmp_path / "s") as world, pytest.raises(errors.FailedPrecondition):
        ServerThread(world.platform, "0.0.0.0:0")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "localhost:1"])
def test_loopback(address):
    assert is_loopback(address)
    OPEN.check(address)


# -- tokens and roles ---------------------------------------------------------------------------------------


class Door:
    """A platform that asks for tokens: `door("write", "a")` is a client with a token of that kind."""

    def __init__(self, world, file: Path) -> None:
        self.world, self.file = world, file
        self._clients: list[Client] = []

    def __call__(self, role: str, tenant: str = "") -> Client:
        name = f"t{len(self._clients)}"
        client = Client(self.world.address, timeout=WAIT, token=create_token(self.file, name, Role[role], tenant))
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()


@pytest.fixture
def door(tmp_path):
    file = tmp_path / "tokens.toml"
    operator = create_token(file, "operator", Role.admin)
    security = Security(tokens=TokenFile(file, Quota(queries=2)))
    with with_streams(tmp_path / "s", security=security, token=operator) as world:
        made = Door(world, file)
        yield made
        made.close()


def denied(call, *arguments, **options) -> errors.PermissionDenied:
    with pytest.raises(errors.PermissionDenied) as failure:
        call(*arguments, **options)
    assert failure.value.reason == "PERMISSION_DENIED"
    return failure.value


def test_every_method_has_a_least_role():
    described = (streams_pb2, queries_pb2, results_pb2, plan_pb2, admin_pb2)
    methods = {
        f"{service.name}/{method.name}"
        for file in described
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert set(LEAST) == methods and len(SERVICES) == len(described)


def test_without_a_known_token_nothing_is_answered(door):
    address = door.world.address
    for connection in ({}, {"token": "ajoin_wrong"}, {"token": "x y"}):
        failure = refused(address, **connection)
        assert isinstance(failure, errors.Unauthenticated) and failure.reason == "UNAUTHENTICATED"
    with Client(address) as nobody:
        with pytest.raises(errors.Unauthenticated):
            list(nobody.subscribe("q1"))
        with pytest.raises(errors.Unauthenticated):
            nobody.create_query(JOIN)
    assert list(door.world.client.queries()) == []


def test_a_reader_looks_and_a_writer_changes_and_an_admin_steers(door):
    reader, writer, admin = door("read"), door("write"), door("admin")
    assert reader.status().streams == 2 and len(reader.streams()) == 2
    denied(reader.create_query, JOIN)
    denied(reader.create_stream, "S", columns=W, time="ts", source="push")
    created = writer.create_query(JOIN, id="q1")
    assert reader.query("q1").uid == created.uid and "q1" in reader.explain()
    denied(reader.delete_query, "q1")
    for call, arguments in (
        (writer.optimize, ()),
        (writer.scale, (3,)),
        (writer.split, (0, 2)),
        (writer.force_groups, ({"q1": 1},)),
        (writer.force_order, ("q1", ["W", "V"])),
        (writer.unpin, ()),
        (writer.set, ("optimize_period", 1)),
        (writer.settings, ()),
    ):
        denied(call, *arguments)
    assert admin.scale(3) > created.plan_version
    writer.create_stream("S", columns=W, time="ts", source="push")
    writer.delete_stream("S")
    assert writer.delete_query("q1").id == "q1"


def test_a_token_that_is_taken_back_stops_working(door):
    client = door("read")
    assert client.status().state == "RUNNING"
    text = door.file.read_text()
    door.file.write_text("not = [toml")
    assert client.status().state == "RUNNING", "a broken file changes nothing"
    door.file.write_text(text.rsplit("[[token]]", 1)[0])
    with pytest.raises(errors.Unauthenticated):
        client.status()
    assert door.world.client.status().state == "RUNNING"


# -- tenants ------------------------------------------------------------------------------------------------


def feed(door) -> None:
    door.world.feed(
        {"V": [{"ts": 1000, "vID": 1, "geo": "x"}], "W": [{"ts": 1001, "vID": 1, "usrID": 5}]}, watermark=2000
    )


def test_tenants_do_not_see_each_other(door):
    a, b = door("write", "a"), door("write", "b")
    other = JOIN.replace("V.geo", "V.geo AS place").replace("WINDOW", "WHERE V.geo = 'secret' OR V.vID = 1 WINDOW")
    mine = a.create_query(JOIN, id="q1", request_id="r")
    theirs = b.create_query(other, id="q1", request_id="r")
    assert (mine.id, theirs.id) == ("q1", "q1") and mine.uid != theirs.uid
    feed(door)
    assert [r["geo"] for r in a.results("q1", until=2000, timeout=WAIT)] == ["x"]
    assert [r["place"] for r in b.results("q1", until=2000, timeout=WAIT)] == ["x"]
    for client in (a, b):
        (seen,) = client.queries()
        assert seen.id == "q1" and client.query("q1", uid=seen.uid).uid == seen.uid
        assert client.stream("V").queries == ("q1",)
        assert [q.id for q in client.statistics().queries] == ["q1"]
    for call in (a.query, a.delete_query, a.explain, lambda id: list(a.subscribe(id))):
        for id in ("b/q1", "q9"):
            with pytest.raises(errors.NotFound):
                call(id)
    with pytest.raises(errors.NotFound):
        a.query("q1", uid=theirs.uid)
    assert "secret" in door.world.client.explain("a/q1", format="json"), "there is something to hide"
    for format in ("text", "json", "dot"):
        for told in (a.explain("q1", format=format), a.explain(sql=JOIN, format=format)):
            assert "secret" not in told and "b/" not in told
    with pytest.raises(errors.InvalidRequest):
        a.create_query(JOIN, id="b/q2")
    assert a.delete_query("q1").id == "q1"
    assert [q.id for q in b.queries()] == ["q1"]
    assert a.create_query(JOIN).id == "q-1"
    operator = door.world.client
    assert [q.id for q in operator.queries()] == ["a/q-1", "a/q1", "b/q1"]
    assert operator.stream("V").queries == ("a/q-1", "b/q1")
    assert operator.delete_query("b/q1").id == "b/q1"


def test_what_concerns_all_tenants_is_not_for_one(door):
    a = door("write", "a")
    denied(a.explain)
    denied(lambda: next(a.watch_plan(after_version=0)))
    a.create_stream("S", columns=V, time="ts", source="push")
    denied(a.delete_stream, "S")
    assert "S" in [s.schema.name for s in door("read", "b").streams()]


def test_a_quota_is_the_tenant_s_own(door):
    a, b = door("write", "a"), door("write", "b")
    outcomes = a.create_queries([JOIN, JOIN, JOIN])
    assert [type(o).__name__ for o in outcomes] == ["QueryInfo", "QueryInfo", "ResourceExhausted"]
    assert outcomes[2].reason == "TENANT_QUOTA"
    assert b.create_query(JOIN).id
    door.file.write_text(door.file.read_text() + "\n[tenant.a]\nmax_queries = 3\n")
    assert a.create_query(JOIN).id
    with pytest.raises(errors.ResourceExhausted) as full:
        a.create_query(JOIN)
    assert full.value.reason == "TENANT_QUOTA" and "3" in full.value.message
    a.delete_query(outcomes[0].id)
    assert a.create_query(JOIN).id


def test_the_owner_of_a_query_survives_a_restart(tmp_path):
    file = tmp_path / "tokens.toml"
    a, b = (create_token(file, name, Role.write, name) for name in "ab")
    security = Security(tokens=TokenFile(file))
    with with_streams(tmp_path / "s", security=security, token=a) as world:
        created = world.client.create_query(JOIN, id="q1")
    with running(tmp_path / "s", security=security, token=a) as world:
        assert world.client.query("q1").uid == created.uid
        with Client(world.address, token=b) as other:
            assert list(other.queries()) == []


# -- paths --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("roots", [NOWHERE, "inside"])
def test_paths_stay_inside_the_allowed_folders(tmp_path, roots):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    allowed = NOWHERE if roots == NOWHERE else (inside,)
    paths = [outside, outside / "missing", inside / ".." / "outside", inside / "link", "/", "/etc"]
    with with_streams(tmp_path / "s", engine=EngineConfig(allowed_roots=allowed)) as world:
        said = set()
        for path in paths if allowed != NOWHERE else [*paths, inside]:
            for call in (
                lambda p=path: world.client.create_query(JOIN, sinks=[("parquet", {"path": p})]),
                lambda p=path: world.client.create_stream(
                    "F", columns=W, time="ts", source="files", options={"path": p}
                ),
            ):
                with pytest.raises(errors.InvalidRequest) as failure:
                    call()
                assert failure.value.reason == "BAD_CONNECTOR_OPTION"
                said.add(failure.value.hint)
        assert len(said) == 1, "the answer does not tell what exists outside"
        if allowed != NOWHERE:
            world.client.create_query(JOIN, id="ok", sinks=[("parquet", {"path": inside / "out"})])
            world.client.create_stream("F", columns=W, time="ts", source="files", options={"path": inside})
