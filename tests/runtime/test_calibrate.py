"""Measuring once per machine: the second time the file answers, a broken file is replaced."""

from __future__ import annotations

import time

from optimizer.cost.calibration import Work
from runtime.machine.calibrate import calibrated, measure


def test_measured_once_and_read_from_the_file_afterwards(tmp_path):
    calls = 0

    def clock() -> float:
        nonlocal calls
        calls += 1
        return time.perf_counter()

    first = calibrated(tmp_path, clock)
    assert calls > 0 and min(first.weights.values) >= 0 and max(first.weights.values) > 0
    calls = 0
    assert calibrated(tmp_path, clock) == first
    assert calls == 0
    (file,) = tmp_path.iterdir()
    file.write_text("not json")
    calibrated(tmp_path, clock)
    assert calls > 0


def test_the_clock_alone_decides_what_was_measured():
    ticks = iter([0.0, 3.0, 10.0, 11.0, 20.0, 22.0])
    assert measure(Work(tuples=20, keys=5, combinations=20, exchanged=10), lambda: next(ticks)) == 1.0
