"""What a wrong or failing store is told to whoever gives it: one reason, where it is, and what to do.

Against the real S3 server; against a front of it where that would have to have a wrong clock or too much load. All
cases are tried at the same time, because S3's client takes its time before it says that it cannot connect.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from optimizer.errors import AJoinError, FailedPrecondition, InvalidRequest, Unavailable
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from runtime.store.objects import objects_at
from tests.ajoin.certificates import Authority
from tests.tools import minio
from tests.tools.minio import SECRET, MinIO
from tests.tools.ports import free_port
from tests.tools.s3_front import standing_before


@dataclass(frozen=True)
class Servers:
    s3: MinIO
    bucket: str
    elsewhere: MinIO
    tls: str
    folder: Path

    def uri(self, **changes: str) -> str:
        return self.s3.uri(changes.pop("bucket", self.bucket), **changes)

    def at(self, address: str) -> str:
        return self.uri().replace(self.s3.address, address)


class Case(NamedTuple):
    """`uri` of these servers; `fronted`: what the front answers to every request. `says` is in the message, `hint` in
    the hint."""

    name: str
    uri: Callable[[Servers], str]
    reason: str
    says: str
    hint: str
    fronted: tuple[int, str, str] | None = None


def fixed(uri: str) -> Callable[[Servers], str]:
    return lambda servers: uri


def same(servers: Servers) -> str:
    return servers.uri()


UNKNOWN = "neither a path nor a URI that pyarrow knows"
CASES = (
    Case("key", lambda s: s.uri(key="somebody"), "STORE_REFUSED", "does not know the access key", "correct it"),
    Case("secret", lambda s: s.uri(secret="a-wrong-one"), "STORE_REFUSED", "does not accept the secret", "%2B"),
    Case(
        "no credentials",
        lambda s: s.uri().replace(f"{minio.KEY}:{SECRET}@", ""),
        "STORE_REFUSED",
        "does not allow it",
        "AWS_ACCESS_KEY_ID",
    ),
    Case("bucket", lambda s: s.uri(bucket="no-such-bucket"), "STORE_REFUSED", "has no such bucket", "create it"),
    Case(
        "region",
        lambda s: s.elsewhere.uri("any-bucket") + "&region=us-west-2",
        "STORE_REFUSED",
        "is in another region",
        "region=",
    ),
    Case("port closed", lambda s: s.at(f"127.0.0.1:{free_port()}"), "STORE_UNAVAILABLE", "nobody listens", "port"),
    Case("host unknown", lambda s: s.at("no-host.invalid:9000"), "STORE_UNAVAILABLE", "host name", "DNS"),
    Case(
        "https against http",
        lambda s: s.uri().replace("scheme=http", "scheme=https"),
        "STORE_UNAVAILABLE",
        "does not speak TLS",
        "scheme=http",
    ),
    Case(
        "http against https", lambda s: s.at(s.tls), "STORE_UNAVAILABLE", "not answer as a store does", "scheme=https"
    ),
    Case(
        "unknown certificate",
        lambda s: s.at(s.tls).replace("scheme=http", "scheme=https"),
        "STORE_UNAVAILABLE",
        "certificate that this machine does not trust",
        "authority",
    ),
    Case("bucket name too short", lambda s: s.uri(bucket="b"), "STORE_INVALID", "bucket name", "3 to 63"),
    Case("bucket name in capitals", lambda s: s.uri(bucket="Big_B"), "STORE_INVALID", "bucket name", "lower-case"),
    Case("no bucket", fixed("s3://"), "STORE_INVALID", "names no bucket", "s3://bucket/folder"),
    Case("unknown scheme", fixed("s4://bucket/x"), "STORE_INVALID", UNKNOWN, "s3://bucket/folder"),
    Case("one slash", fixed("s3:/bucket/x"), "STORE_INVALID", "followed by //", "s3://bucket/folder"),
    Case("no slash", fixed("s3:bucket"), "STORE_INVALID", "followed by //", "s3://bucket/folder"),
    Case("a space", fixed("s3://b b/x"), "STORE_INVALID", UNKNOWN, "s3://bucket/folder"),
    Case("unknown option", lambda s: s.uri() + "&sceme=http", "STORE_INVALID", "'sceme'", "s3://bucket/folder"),
    Case("a host in file://", fixed("file://host/x"), "STORE_INVALID", UNKNOWN, "a path"),
    Case("below a file", lambda s: str(s.folder / "file" / "x"), "STORE_UNAVAILABLE", "Not a directory", "lost"),
    Case("nowhere", fixed("/proc/no/such/place"), "STORE_UNAVAILABLE", "does not do its work", "lost"),
    Case("clock", same, "STORE_CLOCK", "clock is wrong", "NTP", (403, "RequestTimeTooSkewed", "The difference is")),
    Case("expired", same, "STORE_REFUSED", "does not know the access key", "renew", (400, "ExpiredToken", "expired")),
    Case("load", same, "STORE_UNAVAILABLE", "asks for fewer requests", "epochs", (503, "SlowDown", "reduce your rate")),
    Case("full", same, "STORE_FULL", "is full", "make room", (507, "XMinioStorageFull", "Storage backend")),
    Case("quota", same, "STORE_FULL", "is full", "make room", (400, "XMinioAdminBucketQuotaExceeded", "Bucket quota")),
)


@pytest.fixture(scope="module")
def servers(s3: MinIO, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("failures")
    (folder / "file").touch()
    (folder / "elsewhere").mkdir()
    region = {"MINIO_SITE_REGION": "eu-north-1"}
    with minio.running(folder / "elsewhere", region) as elsewhere, with_tls(folder, s3) as tls:
        yield Servers(s3, s3.new_bucket(), elsewhere, tls, folder)


@contextmanager
def with_tls(folder: Path, s3: MinIO) -> Iterator[str]:
    """The address of a server that understands nothing but TLS."""
    server = Authority(folder, "authority").sign("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.cert, server.key)
    with standing_before(s3.address, context) as front:
        yield front.address


@pytest.fixture(scope="module", autouse=True)
def no_credentials() -> Iterator[None]:
    """Of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        yield


def opening(uri: str, state: Path) -> BaseException | None:
    try:
        Engine.open(state, LocalExecutor(), EngineConfig(store=uri)).close()
    except BaseException as failure:
        return failure
    return None


@pytest.fixture(scope="module")
def told(servers: Servers) -> Mapping[str, BaseException | None]:
    with ExitStack() as fronts:
        uris: list[str] = []
        for case in CASES:
            uri = case.uri(servers)
            if case.fronted is not None:
                front = fronts.enter_context(standing_before(servers.s3.address))
                front.refuses["*"] = case.fronted
                uri = uri.replace(servers.s3.address, front.address)
            with suppress(AJoinError):
                objects_at(uri)  # no client of S3 can be made while another one waits for an answer
            uris.append(uri)
        places = [servers.folder / f"state-{n}" for n in range(len(CASES))]
        with ThreadPoolExecutor(len(CASES)) as threads:
            return dict(zip([c.name for c in CASES], threads.map(opening, uris, places), strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_start_with_a_wrong_store_says_what_is_wrong(case: Case, told: Mapping[str, Any]) -> None:
    failure = told[case.name]
    assert isinstance(failure, InvalidRequest if case.reason == "STORE_INVALID" else Unavailable), failure
    assert (failure.reason, case.says in failure.message, case.hint in failure.hint) == (case.reason, True, True), (
        f"{failure.reason}: {failure}"
    )
    assert SECRET not in str(failure) and "a-wrong-one" not in str(failure)


@pytest.mark.parametrize("may", [("s3:GetObject", "s3:ListBucket"), ("s3:GetObject", "s3:PutObject")], ids="-".join)
def test_a_key_that_may_not_put_or_list_is_said_at_the_start(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, may: tuple[str, ...]
) -> None:
    bucket = servers.s3.new_bucket()
    with monkeypatch.context() as patch:
        for name, value in servers.s3.limited(*may).items():
            patch.setenv(name, value)
        failure = opening(keyless(servers.s3, bucket), tmp_path / "state")
    assert isinstance(failure, Unavailable) and failure.reason == "STORE_REFUSED"
    assert "does not allow it" in failure.message and "get, put, list and delete" in failure.hint
    assert opening(servers.s3.uri(bucket), tmp_path / "state") is None


def keyless(s3: MinIO, bucket: str) -> str:
    return s3.uri(bucket).replace(f"{minio.KEY}:{SECRET}@", "")


def test_a_store_of_another_version_is_refused_and_names_both(servers: Servers, tmp_path: Path) -> None:
    uri = servers.s3.uri(servers.s3.new_bucket())
    assert opening(uri, tmp_path / "one") is None
    store = servers.s3.files()
    for version in ("1.0", "99.0"):
        with store.open_output_stream(f"{uri.partition('@')[2].partition('?')[0]}/format") as out:
            out.write(version.encode())
        failure = opening(uri, tmp_path / "two")
        assert isinstance(failure, FailedPrecondition) and failure.reason == "STATE_FORMAT"
        assert f"format {version}" in failure.message and "version that wrote" in failure.hint
