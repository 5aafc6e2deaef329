"""The platform under attack: engine on Spark with little memory for its workers, service on loopback, real clients.

One Spark session serves many lives; everything else is new for each: state directory, platform, server, tokens.
Tenants: `good` has the queries whose rows must not change; `hostile` may try anything; `greedy` has a small quota. The
operator's token is for what a life does to its own plan, never for getting anybody out of trouble.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ajoin.client.client import Client
from ajoin.config import load
from ajoin.platform import launch, logs
from ajoin.platform.platform import Platform, PlatformState
from ajoin.service import ServerThread, results
from ajoin.service.limits import from_settings as limits_from_settings
from ajoin.service.security import from_settings as security_from_settings
from ajoin.service.tokens import Role, create_token
from runtime.spark.executor import SparkExecutor
from tests.ajoin.sockets import tree
from tests.poison.sabotage import Sabotaged

PATIENCE = 300.0
"""Seconds to wait for a condition before giving up; never the time it takes."""
MEMORY = Path("/dev/shm")
WORKER_MEMORY = 512 << 20
"""Bytes of a Python worker, which has half of that before its first task."""
MASTER = "local[2,2]"
"""Two attempts of a task, not four: the platform's own searches take half as long."""
KEPT = 120
"""Epochs of results that are kept: more than all other attacks of a life together bring about between two steps."""
STAGE_TIMEOUT = 120.0
EPOCH_ROWS, QUERY_ROWS = 50_000, 1_000_000
"""Rows of a query after which the others do not wait for it any longer, and the most that a budget may allow it."""
MAILBOX, SQL_BYTES = 200, 600_000
"""Requests that may wait, and bytes of SQL that all queries may have together."""
QUOTA = """
[tenant.greedy]
max_queries = 3
max_streams = 2
max_subscribers = 5
max_requests = 30
"""
TENANTS = ("good", "hostile", "greedy")


@dataclass(slots=True)
class Service:
    platform: Platform
    address: str
    open_folder: Path
    """The one folder that sources and sinks may use."""
    state_dir: Path
    tokens: dict[str, str]
    log: StringIO
    clients: ExitStack
    made: dict[str, Client] = field(default_factory=dict)
    patience: float = PATIENCE

    def client(self, who: str) -> Client:
        if who not in self.made:
            client = Client(self.address, token=self.tokens[who], timeout=PATIENCE)
            self.made[who] = self.clients.enter_context(client)
        return self.made[who]

    @property
    def good(self) -> Client:
        return self.client("good")

    @property
    def hostile(self) -> Client:
        return self.client("hostile")

    @property
    def operator(self) -> Client:
        return self.client("operator")

    def metadata(self, who: str) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.tokens[who]}"),)

    def check_serving(self) -> None:
        """As a health check sees it, and as the operator sees it."""
        with grpc.insecure_channel(self.address) as channel:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING, self.platform.status().message
        status = self.operator.status()
        assert (status.state, status.message) == ("RUNNING", ""), status.message

    def until(self, condition: Callable[[], bool], otherwise: str) -> None:
        end = time.monotonic() + self.patience
        while not condition():
            assert self.platform.state == PlatformState.RUNNING, self.platform.status().message
            assert time.monotonic() < end, otherwise
            time.sleep(0.02)


@contextmanager
def session() -> Iterator[SparkExecutor]:
    """Starting it takes some seconds; many services can use it, one after the other."""
    with tempfile.TemporaryDirectory(prefix="ajoin-poison-spark-", ignore_cleanup_errors=True) as folder:
        options = {"spark.python.task.killTimeout": "500ms"}
        spark = SparkExecutor.start(MASTER, local_dir=Path(folder), options=options, worker_memory=WORKER_MEMORY)
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def serving(spark: SparkExecutor, stage_timeout: float = 0.0) -> Iterator[Service]:
    """A new platform. When the block is left, nothing of it may be left."""
    with ExitStack() as stack:
        where = MEMORY if MEMORY.is_dir() else None
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ajoin-poison-", dir=where)))
        leftovers = stack.enter_context(_nothing_left(folder))
        del leftovers
        (folder / "open").mkdir()
        file = folder / "tokens.toml"
        tokens = {"operator": create_token(file, "operator", Role.admin)}
        tokens |= {tenant: create_token(file, tenant, Role.write, tenant) for tenant in TENANTS}
        tokens["reader"] = create_token(file, "reader", Role.read, "hostile")
        file.write_text(file.read_text() + QUOTA)
        settings = load(
            {
                "state_dir": folder / "state",
                "listen": "127.0.0.1:0",
                "token_file": str(file),
                "allowed_roots": [folder / "open"],
                "partitions": 2,
                "batch_interval": 0.01,
                "epoch_interval": 0.01,
                "idle_interval": 0.05,
                "optimize_period": 0,
                "retention_epochs": KEPT,
                "handshake_timeout": 1,
                "max_message_bytes": 1 << 20,
                "epoch_rows": EPOCH_ROWS,
                "max_query_rows": QUERY_ROWS,
                "max_mailbox_requests": MAILBOX,
                "max_queries_bytes": SQL_BYTES,
                "max_subscriber_bytes": 4 << 20,
                "max_connection_streams": 200,
            }
        ).settings
        stack.enter_context(patch.object(results, "PATIENCE", 0.3))
        log = stack.enter_context(_logged())
        executor = Sabotaged(SparkExecutor(spark.context, stage_timeout or STAGE_TIMEOUT, WORKER_MEMORY))
        platform = stack.enter_context(launch.platform(settings, executor))
        server = stack.enter_context(
            ServerThread(platform, security=security_from_settings(settings), limits=limits_from_settings(settings))
        )
        clients = stack.enter_context(ExitStack())
        yield Service(platform, server.address, folder / "open", folder / "state", tokens, log, clients)


@contextmanager
def _logged() -> Iterator[StringIO]:
    """The platform's log as an operator's file would have it, and nowhere else."""
    text = StringIO()
    handler = logs.handler("text")
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(text)
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    try:
        yield text
    finally:
        root.handlers[:] = before
        root.setLevel(level)


@contextmanager
def _nothing_left(folder: Path) -> Iterator[None]:
    """Threads, open files of the life, and processes that were not there before must go in the end."""
    threads = set(threading.enumerate())
    yield
    end = time.monotonic() + 30
    while left := _left(threads, folder):
        assert time.monotonic() < end, f"left behind: {left}"
        time.sleep(0.02)


def _left(threads: set[threading.Thread], folder: Path) -> list[str]:
    left = [t.name for t in threading.enumerate() if t not in threads and not _of_grpc(t)]
    for fd in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(fd)
        except OSError:
            continue
        if target.startswith(str(folder)):
            left.append(target)
    return left + [f"process {pid}" for pid in tree(os.getpid())[1:] if _is_strange(pid)]


def _of_grpc(thread: threading.Thread) -> bool:
    """One that gRPC keeps for the next channel."""
    return thread.name.startswith("Dummy-") or "_poll_wrapper" in thread.name


def _is_strange(pid: int) -> bool:
    """Neither Spark's JVM nor one of its Python processes."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return bool(command) and b"java" not in command and b"spark" not in command
