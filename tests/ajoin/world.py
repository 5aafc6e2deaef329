"""A whole platform in this process for tests of the service: real engine, real server, real client, no Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ajoin.client.client import Client
from ajoin.platform.catalog import Limits
from ajoin.platform.platform import Pace, Platform
from ajoin.service import ServerThread
from ajoin.service.limits import ServiceLimits
from ajoin.service.security import OPEN, Security
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor

QUICK = Pace(batch_interval=0.01, epoch_interval=0.005, idle_interval=0.02)

V = {"ts": "TIMESTAMP", "vID": "BIGINT", "geo": "STRING"}
W = {"ts": "TIMESTAMP", "vID": "BIGINT", "usrID": "BIGINT"}
JOIN = "SELECT V.vID, V.geo, W.usrID FROM V JOIN W ON V.vID = W.vID WINDOW TUMBLING (SIZE 1 SECOND)"

WAIT = 300.0
"""Seconds a test waits for a condition before it gives up; never the time it takes."""


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class World:
    platform: Platform
    client: Client
    address: str

    def feed(self, rows: Mapping[str, Sequence[Mapping[str, Any]]], watermark: int | None = None) -> None:
        """Push rows, raise the watermark of these streams, and wait until that is committed."""
        before = {name: self.platform.stream(name) for name in rows}
        for name, tuples in rows.items():
            self.platform.push(name, tuples).result(WAIT)
            if watermark is not None:
                self.platform.raise_watermark(name, watermark).result(WAIT)

        def arrived() -> bool:
            return all(_seen(self.platform.stream(n)) >= _seen(before[n]) + len(rows[n]) for n in rows) and (
                watermark is None or all((self.platform.stream(n).watermark or 0) >= watermark for n in rows)
            )

        assert self.platform.wait_until(arrived, WAIT)


def _seen(info: Any) -> int:
    return info.tuples + info.late_dropped + info.dead_letter


@contextmanager
def running(
    directory: Path,
    *,
    limits: Limits | None = None,
    pace: Pace = QUICK,
    engine: EngineConfig | None = None,
    security: Security = OPEN,
    wire: ServiceLimits | None = None,
    **connection: Any,
) -> Iterator[World]:
    """An empty platform; `connection`: how its client connects."""
    opened = Engine.open(directory, LocalExecutor(), engine, wall_clock)
    platform = Platform(opened, clock=wall_clock, pace=pace, limits=limits or Limits())
    with (
        platform,
        ServerThread(platform, security=security, limits=wire or ServiceLimits()) as server,
        Client(server.address, timeout=WAIT, **connection) as client,
    ):
        yield World(platform, client, server.address)


@contextmanager
def with_streams(directory: Path, **settings: Any) -> Iterator[World]:
    """A platform with two pushed streams, V and W."""
    with running(directory, **settings) as world:
        world.client.create_stream("V", columns=V, time="ts", source="push")
        world.client.create_stream("W", columns=W, time="ts", source="push")
        yield world
