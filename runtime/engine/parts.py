"""What an open engine is made of, in one place. Control, epoch loop and reads share it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from runtime.control.coordinator import Coordinator
from runtime.control.planner import Planner
from runtime.delivery.deliveries import Deliveries
from runtime.engine.config import EngineConfig
from runtime.engine.exchange import Exchange
from runtime.engine.journal import Journal
from runtime.engine.sources import Sources
from runtime.execution.fleet import Fleet
from runtime.execution.sharing import SHARING, Sharing
from runtime.results.log import ResultLog
from runtime.store.heartbeat import Heart, NoHeart
from runtime.store.interface import StateStore


@dataclass(frozen=True)
class Parts:
    """`instance` names this opening. `closing` releases everything, last opened first."""

    directory: Path
    config: EngineConfig
    clock: Callable[[], int]
    instance: str
    coordinator: Coordinator
    planner: Planner
    journal: Journal
    store: StateStore
    heart: Heart | NoHeart
    exchange: Exchange
    fleet: Fleet
    results: ResultLog
    sources: Sources
    deliveries: Deliveries
    closing: ExitStack

    @property
    def sharing(self) -> Sharing:
        return SHARING[self.config.sharing]
