"""Measuring once per machine: the second time the file answers, a broken file is replaced."""

from __future__ import annotations

import time

from optimizer.cost.calibration import Work
from runtime.execution.executor import LocalExecutor
from runtime.machine.calibrate import STAGES, UNCOUNTED_STAGES, calibrated, measure, stage_seconds


def test_measured_once_and_read_from_the_file_afterwards(tmp_path):
    calls = 0

    def clock() -> float:
        nonlocal calls
        calls += 1
        return time.perf_counter()

    first = calibrated(tmp_path, clock, LocalExecutor())
    assert calls > 0 and min(first.weights.values) >= 0 and max(first.weights.values) > 0
    assert first.weights.stage > 0
    calls = 0
    assert calibrated(tmp_path, clock, LocalExecutor()) == first
    assert calls == 0
    (file,) = tmp_path.iterdir()
    file.write_text("not json")
    calibrated(tmp_path, clock, LocalExecutor())
    assert calls > 0


def test_the_clock_alone_decides_what_was_measured():
    ticks = iter([0.0, 3.0, 10.0, 11.0, 20.0, 22.0])
    assert measure(Work(tuples=20, keys=5, combinations=20, exchanged=10), lambda: next(ticks)) == 1.0


def test_a_stage_costs_what_an_empty_one_takes_when_workers_run():
    class Slow(LocalExecutor):
        cores, now, stages = 3, 0.0, 0

        def run(self, name, stage, shared, tasks):
            self.stages += 1
            self.now += 5.0 if self.stages <= UNCOUNTED_STAGES else 0.25
            assert super().run(name, stage, shared, tasks) == [0, 1, 2]

    slow = Slow()
    assert stage_seconds(slow, lambda: slow.now) == 0.25
    assert slow.stages == UNCOUNTED_STAGES + STAGES
