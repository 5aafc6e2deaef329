"""A soak calls growth what is growth, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from experiments.soak_report import Sample, write_report
from experiments.trend import trend

LEVEL = Sample(0.0, 0, 0.4, 150.0, 430.0, 400.0, 500, 4.0, 190, 15, 0)


def samples(minutes: float, leak: float = 0.0, early: float = 0.0) -> list[Sample]:
    """One every 10 s with noise; `leak`: megabytes of the driver per hour; `early`: only during the first minutes."""
    rng = Random(3)
    out = []
    for i in range(int(minutes * 6)):
        hours = i / 360
        noise = [rng.gauss(1.0, 0.05) for _ in range(4)]
        driver = LEVEL.driver_mb * noise[0] + leak * hours + early * min(i, 20) / 20
        out.append(
            replace(
                LEVEL, hours=hours, epoch=2 * i, driver_mb=driver, jvm_mb=LEVEL.jvm_mb * noise[1],
                epoch_seconds=LEVEL.epoch_seconds * noise[2], state_mb=LEVEL.state_mb * noise[3],
            )
        )  # fmt: skip
    return out


def test_noise_and_a_warm_up_are_no_growth(tmp_path: Path) -> None:
    assert write_report(tmp_path, samples(30, early=80), [], 30) == []
    assert "Nothing grows." in (tmp_path / "report.md").read_text()
    assert (tmp_path / "soak.png").stat().st_size > 10_000


def test_a_leak_is_named_with_its_slope(tmp_path: Path) -> None:
    assert write_report(tmp_path, samples(30, leak=120), [], 30) == ["memory of the driver (MB)"]
    line = next(x for x in (tmp_path / "report.md").read_text().splitlines() if "memory of the driver" in x)
    assert "**grows**" in line


def test_a_short_run_has_no_verdict(tmp_path: Path) -> None:
    assert write_report(tmp_path, samples(3, leak=2_000), [], 3) == []
    assert "too short" in (tmp_path / "report.md").read_text()


def test_the_interval_holds_the_true_slope_most_of_the_time() -> None:
    rng, inside = Random(5), 0
    hours = [i / 360 for i in range(180)]
    for _ in range(200):
        found = trend(hours, [10 + 3 * h + rng.gauss(0, 1) for h in hours])
        assert found is not None
        inside += found.low <= 3 <= found.high
    assert 180 <= inside <= 198


def test_two_samples_say_nothing() -> None:
    assert trend([0.0, 0.1], [1.0, 2.0]) is None


@pytest.mark.parametrize("value", [0.0, 7.0])
def test_a_constant_has_no_slope(value: float) -> None:
    found = trend([i / 10 for i in range(40)], [value] * 40)
    assert found is not None
    assert (found.slope, found.first, found.last) == (0.0, value, value)
