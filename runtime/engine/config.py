"""How an engine is to run: fixed for as long as it is open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from optimizer.cost.model import Weights
from runtime.control.budgets import AT_ONCE, Pacing
from runtime.delivery.schedule import OnThreads, Schedule
from runtime.durable.heartbeat import Pulse
from runtime.exchange.interface import ExchangeKind
from runtime.execution.sharing import SharingName


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """`partitions` counts for a new state directory; later it is part of the plan. `snapshot_every`: log records."""

    partitions: int = 2
    retention_epochs: int = 10_000
    retention_bytes: int = 1 << 30
    snapshot_every: int = 500
    allowed_roots: tuple[Path, ...] = ()
    sharing: SharingName = "cost"
    pipelined: bool = True
    exchange: ExchangeKind = "reference"
    """How buckets and results pass between tasks: files that all tasks see, or by value through Spark."""
    delivery: Callable[[], Schedule] = OnThreads
    """How sinks get their rows: on threads of their own, or on the engine's thread between epochs."""
    weights: Weights | None = None
    """Of the cost model; measured once per machine with `runtime.machine.calibrate`, or the defaults."""
    durable: str | None = None
    """URI or path of the durable tier; None: the state directory is all there is."""
    fast_bytes: int | None = None
    """With a durable tier: bytes of buckets, and of results, that the state directory keeps."""
    pulse: Pulse | None = None
    """With a durable tier: how the engine shows those who stand by that it lives; None: not at all."""
    finish_on_open: bool = True
    """Run an epoch that was planned and not committed while opening; else the first `run_epoch` does."""
    suspend: tuple[str, ...] = ()
    """Ids of queries to suspend before anything runs; "all" means all."""
    pacing: Pacing = AT_ONCE
    """How much of an epoch one query may take, and how long it may be behind."""
    max_cost: float | None = None
    """Estimated cost a second (as `explain` tells it) above which new queries are refused."""
