"""How an engine is to run: fixed for as long as it is open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from optimizer.cost.model import Weights
from runtime.connectors.options import Root
from runtime.control.budgets import AT_ONCE, Pacing
from runtime.control.steering import CUSTOMARY, Steering
from runtime.delivery.schedule import OnThreads, Schedule
from runtime.execution.fleet import Fleet
from runtime.execution.sharing import SharingName
from runtime.store.heartbeat import Pulse


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """`partitions` counts for a new state directory; later it is part of the plan. `snapshot_every`: log records."""

    partitions: int = 2
    retention_epochs: int = 10_000
    retention_bytes: int = 1 << 30
    snapshot_every: int = 500
    allowed_roots: tuple[Root, ...] = ()
    sharing: SharingName = "cost"
    pipelined: bool = True
    delivery: Callable[[], Schedule] = OnThreads
    """How sinks get their rows: on threads of their own, or on the engine's thread between epochs."""
    weights: Weights | None = None
    """Of the cost model; measured once per machine with `runtime.machine.calibrate`, or the defaults."""
    store: str | None = None
    """URI or path, which all tasks see, of what holds the state; None: the state directory does."""
    cache_bytes: int = 0
    """With a store that cannot be mapped: most bytes of it that each machine keeps; 0: half of its free disk."""
    pulse: Pulse | None = None
    """With a store: how the engine shows those who stand by that it lives; None: not at all."""
    finish_on_open: bool = True
    """Run an epoch that was planned and not committed while opening; else the first `run_epoch` does."""
    suspend: tuple[str, ...] = ()
    """Ids of queries to suspend before anything runs; "all" means all."""
    fleet: Fleet | None = None
    """The machines that tasks run on, if their number is the platform's to choose."""
    pacing: Pacing = AT_ONCE
    """How much of an epoch one query may take, and how long it may be behind."""
    steering: Steering = CUSTOMARY
    """How the optimizer behaves, as far as nobody has changed it while the platform ran."""
    max_cost: float | None = None
    """Estimated cost a second (as `explain` tells it) above which new queries are refused."""
