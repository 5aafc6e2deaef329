"""The platform on a standalone Spark cluster: workers come, die and leave, and no row is lost or doubled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.story import expected

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("cluster")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster.story", str(folder)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = process.communicate(timeout=1000)
    except BaseException:
        process.terminate()
        process.wait(60)
        raise
    assert process.returncode == 0, f"{out}\n{err[-6000:]}"
    report: dict[str, Any] = json.loads(out.splitlines()[-1])
    return report


@pytest.mark.parametrize("query", ["pair", "chain"])
def test_rows_are_exact_whatever_happens_to_workers(told: dict[str, Any], query: str) -> None:
    rows = sorted(tuple(row) for row in told["rows"][query])
    assert rows == expected(told["epochs"])[query]
    assert rows


def test_partitions_stay_with_their_executor_which_has_a_cache(told: dict[str, Any]) -> None:
    assert len(set(told["homes"][0])) == 2, "one task on each"
    assert all(homes == told["homes"][0] for homes in told["homes"])
    assert told["cache"] == ["worker-1", "worker-2"]


def test_a_killed_worker_costs_no_restart(told: dict[str, Any]) -> None:
    """The epoch it died in is committed like any other, by the same engine, and so is every later one."""
    assert told["after_kill"]["epoch"] == told["killed_in"] + 3
    assert len(told["lived"]) == told["epochs"] == 13
