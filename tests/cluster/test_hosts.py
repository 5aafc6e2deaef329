"""Driver, S3 server and workers on hosts of their own: rows are exact, and everything is gone afterwards."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.cluster import processes
from tests.cluster.hosts import DRIVER, CannotMake, Hosts, unable
from tests.cluster.story import expected
from tests.tools import minio

GIVE = """
import socket
server = socket.create_server(("{}", 5000))
print(flush=True)
server.accept()[0].sendall(bytes(300_000))
"""
TAKE = """
import socket
print(len(socket.create_connection(("{}", 5000), 20).makefile("rb").read()))
"""


@pytest.fixture(scope="module", autouse=True)
def able() -> None:
    if why := unable():
        pytest.skip(f"no hosts here: {why}")


@pytest.fixture(scope="module")
def told(able: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    try:
        minio.binary()
    except minio.Unreachable as why:
        pytest.skip(f"no S3 server: {why}")
    folder = tmp_path_factory.mktemp("hosts")
    with Hosts.with_workers(2) as hosts:
        return processes.told("tests.cluster.several", folder, hosts.prefix, through=hosts.host(DRIVER).through)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("query", ["pair", "chain"])
def test_rows_are_exact_on_several_hosts(told: dict[str, Any], query: str) -> None:
    rows = sorted(tuple(row) for row in told["rows"][query])
    assert rows == expected(told["epochs"])[query]
    assert rows


@pytest.mark.long
@pytest.mark.spark
def test_every_worker_has_worked_and_fetched(told: dict[str, Any]) -> None:
    assert told["executors"] == 2
    assert all(came > 0 and left > 0 for came, left in told["passed"].values()), told["passed"]


def test_hosts_reach_each_other_over_links_that_are_counted_and_limited() -> None:
    with Hosts(["a", "b"]) as hosts:
        there = hosts.host("b").address
        for limit in (None, 10.0):
            hosts.limit("a", limit)
            before, _ = hosts.passed("a")
            with subprocess.Popen(_python(hosts, "b", GIVE.format(there)), stdout=subprocess.PIPE) as giver:
                assert giver.stdout is not None and giver.stdout.readline(), "it listens"
                take = _python(hosts, "a", TAKE.format(there))
                taken = subprocess.run(take, capture_output=True, text=True, timeout=60, check=True)
            assert int(taken.stdout) == 300_000
            assert 300_000 < hosts.passed("a")[0] - before < 400_000
        outside = _python(hosts, "a", TAKE.format("192.0.2.1"))
        refused = subprocess.run(outside, capture_output=True, text=True, timeout=60)
        assert "unreachable" in refused.stderr


def _python(hosts: Hosts, name: str, code: str) -> list[str]:
    return [*hosts.host(name).through, sys.executable, "-c", code]


def test_nothing_is_left_after_a_failure() -> None:
    twice = Hosts(["a", "a"])
    with pytest.raises(CannotMake, match="File exists"), twice:
        pass
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    assert twice.prefix not in listed.stdout
