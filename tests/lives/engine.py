"""A life through the real engine, compared with the oracle row for row."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ajoin.replay.runner import run
from ajoin.replay.scenario import read
from runtime.engine import Engine, EngineConfig
from runtime.exchange import Exchange
from runtime.executor import Executor, LocalExecutor
from runtime.planner import Sharing
from tests.lives.runner import describe
from tests.oracle.compare import check, check_report, rows_by_query
from tests.oracle.oracle import run_oracle

MEMORY = Path("/dev/shm")


def play(
    scenario: Sequence[dict[str, Any]],
    executor: Executor | None = None,
    partitions: int = 2,
    sharing: Sharing = "cost",
    exchange: Exchange = "reference",
) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
    """What `ajoin replay` writes: (results, queries, report)."""
    where = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="ajoin-life-", dir=where) as directory:
        base = Path(directory)
        (base / "life.jsonl").write_text(describe(scenario), encoding="utf-8")
        steps = read(base / "life.jsonl")
        tasks = executor or LocalExecutor()

        def opener() -> Engine:
            config = EngineConfig(partitions=partitions, sharing=sharing, exchange=exchange)
            return Engine.open(base / "state", tasks, config, lambda: 0)

        run(steps, base / "out", opener)
        results = [json.loads(line) for line in (base / "out" / "results.jsonl").read_text().splitlines()]
        queries = json.loads((base / "out" / "queries.json").read_text())
        report = json.loads((base / "out" / "report.json").read_text())
    return results, queries, report


def differences(
    scenario: Sequence[dict[str, Any]],
    executor: Executor | None = None,
    partitions: int = 2,
    sharing: Sharing = "cost",
    exchange: Exchange = "reference",
) -> list[str]:
    """Everything in which the engine and the oracle disagree about this life; empty when they agree."""
    results, queries, report = play(scenario, executor, partitions, sharing, exchange)
    expected = run_oracle(scenario)
    found = check(expected, rows_by_query(results), queries) + check_report(expected, report)
    lines = {line for line, _ in expected.errors}
    reported = {e["line"] for e in report["errors"]}
    if lines != reported:
        found.append(f"lines refused: expected {sorted(lines)}, got {sorted(reported)}")
    return found
