"""How Spark is started and ended: without forking a process whose gRPC threads are busy, and with its driver."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

PATIENCE = 120.0


def test_spark_starts_beside_busy_grpc_threads_and_lives_as_long_as_its_driver(tmp_path: Path) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster.driver", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # the Ctrl-C it presses is for its own group
    )
    too_long = threading.Timer(PATIENCE, driver.kill)
    too_long.start()
    try:
        assert driver.stdout is not None
        line = driver.stdout.readline()
        jvms = children(driver.pid)
    finally:
        too_long.cancel()
        driver.kill()
    _, errors = driver.communicate(timeout=PATIENCE)
    said = errors + (tmp_path / "spark.log").read_text(errors="replace")
    assert line, said[-6000:]
    report = json.loads(line)
    assert report["before"] == [2, 3, 4]
    assert report["after"] == [11, 12, 13], "Ctrl-C is for the driver; the JVM goes on until it is told"
    assert "fork" not in said, said[-6000:]
    assert jvms
    assert eventually(lambda: all(gone(jvm) for jvm in jvms)), "the driver was killed, its JVM is still there"


def children(pid: int) -> list[int]:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for thread in threads for child in (thread / "children").read_text().split()]


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def eventually(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.05)
    return False
