"""From settings to an engine: what is decided on the way."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from ajoin.config import load
from ajoin.platform.launch import exchange, platform
from ajoin.platform.platform import Outcome, Platform
from optimizer.errors import AJoinError, Unavailable
from runtime.api import Control
from runtime.execution.executor import LocalExecutor
from tests.ajoin.world import WAIT


@pytest.mark.parametrize(
    ("flags", "chosen"),
    [
        ({}, "reference"),
        ({"spark_master": "local[2]"}, "reference"),
        ({"spark_master": "spark://host:7077"}, "value"),
        ({"spark_master": "yarn"}, "value"),
        ({"spark_master": "spark://host:7077", "executor": "local"}, "reference"),
        ({"spark_master": "spark://host:7077", "exchange": "reference"}, "reference"),
        ({"exchange": "value"}, "value"),
    ],
)
def test_buckets_travel_by_value_where_executors_may_see_other_disks(flags: dict[str, str], chosen: str) -> None:
    assert exchange(load(flags).settings) == chosen


def test_settings_of_spark_are_key_and_value() -> None:
    given = "spark.executor.memory=4g, spark.archives=env.tar.gz#env"
    assert load({"spark_conf": given}).settings.spark_conf == (
        "spark.executor.memory=4g",
        "spark.archives=env.tar.gz#env",
    )
    for wrong in ("spark.executor.memory", "memory=4g"):
        with pytest.raises(AJoinError, match=r"is not spark\.key=value"):
            load({"spark_conf": wrong})


def test_the_periodic_optimizer_goes_on_after_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second period meets an outage; the third and fourth are carried out all the same."""
    control = Platform.control
    called, enough = itertools.count(1), threading.Event()

    def flaky(platform: Platform, wanted: Control) -> Future[list[Outcome]]:
        n = next(called)
        if n == 2:
            raise Unavailable("the durable tier does not answer", reason="DURABLE_UNAVAILABLE")
        done = control(platform, wanted)
        if n == 4:
            done.add_done_callback(lambda _: enough.set())
        return done

    monkeypatch.setattr(Platform, "control", flaky)
    flags = {"state_dir": tmp_path, "optimize_period": 0.001, "batch_interval": 0.001, "epoch_interval": 0.001}
    with platform(load(flags).settings, LocalExecutor()) as running:
        assert enough.wait(WAIT), "the optimizer stopped after the outage"
        assert running.state == "RUNNING"
