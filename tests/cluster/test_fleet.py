"""Executors are given back when it is quiet and asked for when load comes, on a standalone cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("fleet")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster.fleet", str(folder)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = process.communicate(timeout=1500)
    except BaseException:
        process.terminate()
        process.wait(60)
        raise
    assert process.returncode == 0, f"{out}\n{err[-6000:]}"
    report: dict[str, Any] = json.loads(out.splitlines()[-1])
    return report


def test_an_executor_is_given_back_after_its_ranges_and_comes_again(told: dict[str, Any]) -> None:
    steps = [(e["tasks"], e["executors"]) for e in told["epochs"]]
    assert steps[0] == (2, 2)
    first = steps.index((1, 1))
    assert (1, 2) in steps[:first] and all(step != (2, 1) for step in steps[:first]), "ranges go first"
    assert steps[-1] == (2, 2)
    assert told["nodes"] == [["127.0.0.1", 2]]


def test_no_row_is_lost_or_doubled_while_executors_come_and_go(told: dict[str, Any]) -> None:
    assert told["rows"] == told["keys"] > 0
