"""The settings `durable` and `fast_bytes`, from the command line to the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from ajoin.cli.inspect import _tiers
from ajoin.config import load
from ajoin.platform.launch import open_engine
from ajoin.platform.metrics import status_metrics
from ajoin.wire.convert import status_from_pb, status_to_pb
from optimizer.errors import InvalidRequest
from runtime.api import PlatformStatus
from runtime.execution.executor import LocalExecutor


def test_the_state_goes_where_the_setting_says(tmp_path: Path) -> None:
    flags = {"state_dir": tmp_path / "fast", "durable": str(tmp_path / "durable"), "fast_bytes": 5}
    settings = load(flags).settings
    engine = open_engine(settings, LocalExecutor())
    assert (engine.config.durable, engine.config.fast_bytes) == (flags["durable"], 5)
    assert (tmp_path / "durable" / "owner").exists()
    owner = (tmp_path / "durable" / "owner").read_text()
    passing = open_engine(settings, LocalExecutor(), tmp_path / "a replay's")
    assert passing.config.durable is None
    assert (tmp_path / "durable" / "owner").read_text() == owner
    engine.close()
    passing.close()


def test_a_bound_needs_a_second_tier(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as caught:
        open_engine(load({"state_dir": tmp_path, "fast_bytes": 5}).settings, LocalExecutor())
    assert caught.value.reason == "CONFIG_INVALID"


def test_status_and_metrics_tell_about_both_tiers() -> None:
    status = PlatformStatus(
        "RUNNING", 7, 3, 2, 1, 500, 60, 4, 1000, 0.25, 9.5,
        recovery_seconds=1.5, recovery_records=42, fast_bytes=2048, durable_bytes=4096, upload_seconds=0.5,
    )  # fmt: skip
    assert status_from_pb(status_to_pb(status, "0")) == status
    told = {s.name: s.value for metric in status_metrics(status) for s in metric.samples}
    assert (told["ajoin_recovery_seconds"], told["ajoin_recovery_records"]) == (1.5, 42)
    assert (told["ajoin_fast_bytes"], told["ajoin_durable_bytes"]) == (2048, 4096)
    assert _tiers(status) == {"tiers": "2.0 KiB here, 4.0 KiB durable (the last upload took 0.50 s)"}


def test_credentials_in_the_uri_are_not_shown() -> None:
    config = load({"durable": "s3://key:secret@bucket/path?scheme=http&endpoint_override=127.0.0.1:9000"})
    assert config.shown()["durable"] == "s3://bucket/path"
    assert load({"durable": "/a/path@home"}).shown()["durable"] == "/a/path@home"
