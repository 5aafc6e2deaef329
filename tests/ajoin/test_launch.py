"""From settings to an engine: what is decided on the way."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from ajoin.config import load
from ajoin.platform import launch
from ajoin.platform.catalog import column_type
from ajoin.platform.launch import open_engine, platform
from ajoin.platform.platform import Outcome, Platform
from optimizer.errors import AJoinError, FailedPrecondition, Unavailable
from optimizer.model.types import Column, StreamSchema
from runtime.api import Control, QueryState
from runtime.connectors.base import ConnectorSpec
from runtime.control.budgets import AT_ONCE, OVER_BUDGET
from runtime.execution.executor import LocalExecutor
from runtime.spark.executor import is_local
from tests.ajoin.world import JOIN, WAIT, V, W


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "local-cluster[2,1,512]"])
def test_executors_that_may_see_other_disks_need_a_store(master: str) -> None:
    with pytest.raises(FailedPrecondition) as refused, launch.executor(load({"spark_master": master}).settings):
        pass
    assert refused.value.reason == "STORE_REQUIRED" and "--store" in refused.value.hint


@pytest.mark.parametrize(
    ("master", "local"), [("local", True), ("local[*]", True), ("local[2,4]", True), ("yarn", False)]
)
def test_executors_of_a_local_master_are_here(master: str, local: bool) -> None:
    assert is_local(master) is local


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
            raise Unavailable("the store does not answer", reason="STORE_UNAVAILABLE")
        done = control(platform, wanted)
        if n == 4:
            done.add_done_callback(lambda _: enough.set())
        return done

    monkeypatch.setattr(Platform, "control", flaky)
    flags = {"state_dir": tmp_path, "optimize_period": 0.001, "batch_interval": 0.001, "epoch_interval": 0.001}
    with platform(load(flags).settings, LocalExecutor()) as running:
        assert enough.wait(WAIT), "the optimizer stopped after the outage"
        assert running.state == "RUNNING"


def test_a_platform_paces_queries_and_a_replay_does_not(tmp_path: Path) -> None:
    flags = {"batch_interval": 0.001, "epoch_interval": 0.001, "idle_interval": 0.001}
    settings = load(flags | {"epoch_rows": 5, "max_epochs_behind": 3}).settings
    with platform(settings, LocalExecutor(), tmp_path / "served") as running:
        for name, columns in (("V", V), ("W", W)):
            typed = tuple(Column(column, column_type(kind)) for column, kind in columns.items())
            running.create_stream(StreamSchema(name, typed, "ts"), ConnectorSpec("push")).result(WAIT)
        running.create_query(JOIN, "q")
        running.push("V", [{"ts": n, "vID": 1, "geo": "x"} for n in range(20)]).result(WAIT)
        running.push("W", [{"ts": n, "vID": 1, "usrID": n} for n in range(20)]).result(WAIT)
        assert running.wait_until(lambda: running.query("q").state == QueryState.SUSPENDED, WAIT)
        assert running.query("q").suspended.startswith(OVER_BUDGET) and 0 < running.query("q").rows < 400
    replayed = open_engine(settings, LocalExecutor(), tmp_path / "replayed")
    assert replayed.config.pacing == AT_ONCE
    replayed.close()
