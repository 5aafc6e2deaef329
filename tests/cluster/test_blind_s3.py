"""Executors that cannot use the store that the driver uses: said on opening, before anything is claimed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from optimizer.errors import FailedPrecondition, Unavailable
from runtime.execution.executor import LocalExecutor
from runtime.store.sight import check_sight
from tests.tools.minio import KEY, SECRET, MinIO
from tests.tools.store_double import Double


class Far(LocalExecutor):
    """Tasks that see another store; or that do not reach it, as they would tell from a Spark executor."""

    here = False

    def __init__(self, sees: Double | None) -> None:
        super().__init__()
        self.sees = sees

    def run(self, name: str, stage: Any, shared: Any, tasks: Sequence[Any]) -> list[Any]:
        if self.sees is None:
            raise Unavailable("on executor far: the store does not allow it", reason="STORE_REFUSED", hint="ask")
        return super().run(name, stage, shared._replace(uri=self.sees.open()), tasks)


def test_executors_that_see_it_too_leave_nothing_behind() -> None:
    store = Double()
    check_sight(Far(store), store.open())
    assert not store.objects and store.asked["put"] >= 2


def test_executors_that_see_another_place_are_found_out() -> None:
    store = Double()
    with pytest.raises(FailedPrecondition) as told:
        check_sight(Far(Double()), store.open())
    assert told.value.reason == "STORE_NOT_SHARED" and "same mount" in told.value.hint
    assert not store.objects


def test_executors_that_are_not_let_in_are_told_from_a_driver_that_is_not() -> None:
    store = Double()
    with pytest.raises(Unavailable) as told:
        check_sight(Far(None), store.open())
    assert told.value.reason == "STORE_REFUSED" and "on executor far" in told.value.message
    assert "the driver is let in" in told.value.message
    store.away = True
    with pytest.raises(Unavailable) as told:
        check_sight(Far(store), store.open())
    assert "executor" not in told.value.message


@pytest.mark.long
@pytest.mark.spark
def test_credentials_and_mounts_that_only_the_driver_has_on_s3(s3: MinIO, tmp_path: Path) -> None:
    uri = s3.uri(s3.new_bucket()).replace(f"{KEY}:{SECRET}@", "")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {"AWS_EC2_METADATA_DISABLED": "true", "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster.blind", str(tmp_path / "cluster"), uri],
        cwd=Path(__file__).parents[2],
        env=environment,
        input=json.dumps({"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}),
        capture_output=True,
        text=True,
        timeout=1000,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-6000:]}"
    report = json.loads(done.stdout.splitlines()[-1])
    reason, message, hint = report["keyless"]
    assert reason == "STORE_REFUSED" and "on executor" in message and "the driver is let in" in message
    assert "spark.executorEnv.AWS_ACCESS_KEY_ID" in hint and "Traceback" not in message
    if os.geteuid() == 0:
        reason, message, hint = report["path"]
        assert reason == "STORE_NOT_SHARED" and "same mount" in hint
