"""On a standalone cluster: everything is killed at once, and later one executor within a task; no row is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from experiments.processes import tree
from tests.cluster.story import expected
from tests.faults.processes import command_line, until

pytestmark = [pytest.mark.spark, pytest.mark.long]

EPOCHS = 10


@contextmanager
def running(folder):
    command = [sys.executable, "-m", "tests.faults.cluster_target", str(folder), str(EPOCHS)]
    with (
        open(folder / "said", "a") as said,
        subprocess.Popen(
            command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, stderr=said, text=True
        ) as process,
    ):
        try:
            yield process
        finally:
            kill_all(tree(process.pid))


def kill_all(pids):
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def read_until(process, line):
    said = []
    for text in process.stdout:
        said.append(text.strip())
        if said[-1] == line:
            return
    raise AssertionError(f"it ended without {line!r}: {said}")


@pytest.mark.parametrize("seconds", [0.0, 0.4])
def test_driver_executors_workers_and_master_die_at_once(tmp_path, seconds):
    with running(tmp_path) as process:
        read_until(process, "epoch 4")
        threading.Event().wait(seconds)  # anywhere in the epochs after that
        family = tree(process.pid)
        lines = [command_line(p) for p in family]
        for part in ("deploy.master.Master", "deploy.worker.Worker", "CoarseGrainedExecutorBackend", "SparkSubmit"):
            assert any(part in line for line in lines), f"{part} is not among those that die"
        kill_all(family)
        process.wait()
        until(lambda: not any("spark" in command_line(p) for p in family), "something survived")
    with running(tmp_path) as process:
        first = process.stdout.readline()
        assert first.startswith("epoch ") and int(first.split()[1]) >= 4, "what was told was on disk"
        *_, report = process.stdout.read().splitlines()
        assert process.wait() == 0, (tmp_path / "said").read_text()[-4000:]
    told = json.loads(report)
    assert told["executors_died"] >= 1
    wanted = expected(EPOCHS + 1)
    for query, rows in told["rows"].items():
        assert sorted(map(tuple, rows)) == wanted[query]
        assert rows
