"""All events of a life, as its log holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from ajoin.replay.runner import run
from ajoin.replay.scenario import read
from runtime.control.events import Event
from runtime.control.state import State
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from runtime.log.codec import decode
from runtime.log.log import Log
from tests.lives import describe, make_life


class WithoutSnapshots(Engine):
    """Never begins a new log, so that the first one holds everything."""

    def close(self) -> None:
        self.abandon()


def logged_life(directory: Path, seed: int, profile: str = "tiny") -> tuple[list[Any], list[Event], State]:
    """(records, events, the engine's own state at the end, without its platform's id)."""
    life = make_life(Random(seed), profile)
    (directory / "life.jsonl").write_text(describe(life), encoding="utf-8")
    opened: list[Engine] = []

    def opener() -> Engine:
        config = EngineConfig(snapshot_every=1 << 30)
        opened.append(WithoutSnapshots.open(directory / "state", LocalExecutor(), config, lambda: 0))
        return opened[-1]

    run(read(directory / "life.jsonl"), directory / "out", opener)
    snapshot, records = Log(directory / "state" / "log").read()
    state = opened[-1].state
    assert State.from_json(snapshot) == State(platform=state.platform), "the log begins with nothing but an id"
    return records, events_of(records), replace(state, platform="")


def events_of(records: Sequence[Any]) -> list[Event]:
    return [decode(record) for record in records]
