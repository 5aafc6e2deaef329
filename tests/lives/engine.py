"""A life through the real engine, compared with the oracle row for row."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ajoin.replay.runner import run
from ajoin.replay.scenario import read
from optimizer.errors import AJoinError
from runtime.api import Control, DeleteQuery, EpochReport
from runtime.control.budgets import Pacing
from runtime.control.events import Event
from runtime.control.invariants import validate_state
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import Executor, LocalExecutor
from runtime.execution.sharing import SharingName
from runtime.plugins import load
from tests.lives.executors import Rotting
from tests.lives.runner import describe
from tests.oracle.compare import check, check_report, rows_by_query
from tests.oracle.oracle import run_oracle
from tests.tools.store_double import Double

MEMORY = Path("/dev/shm")
COUNT = re.compile(r"SELECT [^F]*COUNT\(\*\).*?(?= FROM )")


@dataclass(frozen=True, slots=True)
class Stored:
    """With a store: a path, or `objects`: one that cannot be mapped, in memory if it `fails` or lags. `killed`: around
    every epoch; `lost`: every restart finds the local directory gone. `cache_bytes` bounds its cache."""

    objects: bool = False
    killed: bool = False
    lost: bool = True
    cache_bytes: int = 0
    fails: bool = False

    def disturbed(self, scenario: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The same life with kills before and after each epoch; line numbers change, the rows must not."""
        if not self.killed:
            return list(scenario)
        kill = {"restart": "kill"}
        return [step for line in scenario for step in ([kill, line, kill] if "epoch" in line else [line])]

    def uri(self, folder: Path) -> str:
        if self.fails:
            return Double(1, failing=0.02, lagging=3).open()
        if self.objects:
            load(("tests.tools.opaque_store",))
            return f"opaque://{folder}"
        return str(folder)


@dataclass(frozen=True, slots=True)
class Paced:
    """Queries may make only so many rows in an epoch; the rest is postponed.

    `at_once`: it is done before anything else happens, so every delivery is the oracle's. Else it is done in between
    whatever happens, and at the latest before a query is deleted: all rows are the oracle's, but those of a late tuple
    come when they come, so COUNT(*), whose revisions tell when, is made a query for rows."""

    rows: int
    at_once: bool = False

    def comparable(self, scenario: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        if self.at_once:
            return list(scenario)
        return [{k: COUNT.sub("SELECT *", v) if k == "sql" else v for k, v in line.items()} for line in scenario]

    def drained(self, engine: Engine) -> Engine:
        run, apply = engine.run_epoch, engine.apply

        def caught_up() -> None:
            while engine.state.behind:
                run()

        def run_epoch() -> EpochReport:
            report = run()
            if self.at_once:
                caught_up()
            return report

        def after_work(controls: Sequence[Control | AJoinError]) -> Any:
            if any(isinstance(c, DeleteQuery) for c in controls):
                caught_up()
            return apply(controls)

        engine.run_epoch, engine.apply = run_epoch, after_work
        return engine


def validated(engine: Engine) -> Engine:
    """The engine, with a look at its state after every event."""
    coordinator = engine.parts.coordinator
    handle = coordinator.handle

    def handle_and_look(event: Event) -> tuple[str, ...]:
        unneeded = handle(event)
        validate_state(coordinator.state)
        return unneeded

    validate_state(coordinator.state)
    coordinator.handle = handle_and_look  # type: ignore[method-assign]
    return engine


def play(
    scenario: Sequence[dict[str, Any]],
    executor: Executor | None = None,
    partitions: int = 2,
    sharing: SharingName = "cost",
    stored: Stored | None = None,
    rotting: int | None = None,
    paced: Paced | None = None,
) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
    """What `ajoin replay` writes: (results, queries, report). `rotting`: seed of damage to bucket files."""
    where = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="ajoin-life-", dir=where) as directory:
        base = Path(directory)
        (base / "life.jsonl").write_text(describe(scenario), encoding="utf-8")
        steps = read(base / "life.jsonl")
        tasks = executor or LocalExecutor()
        if rotting is not None:
            tasks = Rotting(tasks, base / ("state" if stored is None else "store") / "buckets", rotting)
        store = None if stored is None else stored.uri(base / "store")

        def opener() -> Engine:
            config = EngineConfig(partitions=partitions, sharing=sharing, store=store)
            if stored is not None:
                config = replace(config, cache_bytes=stored.cache_bytes)
                if stored.lost:
                    shutil.rmtree(base / "state", ignore_errors=True)
            if paced is not None:
                config = replace(config, pacing=Pacing(paced.rows, max_behind=1 << 30))
            engine = validated(Engine.open(base / "state", tasks, config, lambda: 0))
            return engine if paced is None else paced.drained(engine)

        run(steps, base / "out", opener)
        results = [json.loads(line) for line in (base / "out" / "results.jsonl").read_text().splitlines()]
        queries = json.loads((base / "out" / "queries.json").read_text())
        report = json.loads((base / "out" / "report.json").read_text())
    return results, queries, report


def differences(
    scenario: Sequence[dict[str, Any]],
    executor: Executor | None = None,
    partitions: int = 2,
    sharing: SharingName = "cost",
    stored: Stored | None = None,
    rotting: int | None = None,
    paced: Paced | None = None,
) -> list[str]:
    """Everything in which the engine and the oracle disagree about this life; empty when they agree."""
    scenario = scenario if stored is None else stored.disturbed(scenario)
    scenario = scenario if paced is None else paced.comparable(scenario)
    results, queries, report = play(scenario, executor, partitions, sharing, stored, rotting, paced)
    expected = run_oracle(scenario)
    found = check(expected, rows_by_query(results), queries) + check_report(expected, report)
    lines = {line for line, _ in expected.errors}
    reported = {e["line"] for e in report["errors"]}
    if lines != reported:
        found.append(f"lines refused: expected {sorted(lines)}, got {sorted(reported)}")
    return found
