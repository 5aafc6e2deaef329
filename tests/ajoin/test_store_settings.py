"""The settings `store` and `cache_bytes`, from the command line to the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from ajoin.cli.inspect import _store
from ajoin.config import load
from ajoin.platform.launch import open_engine, passing
from ajoin.platform.metrics import status_metrics
from ajoin.wire.convert import status_from_pb, status_to_pb
from optimizer.errors import InvalidRequest
from runtime.api import PlatformStatus
from runtime.execution.executor import LocalExecutor
from runtime.store.objects import below, shown


def test_the_state_goes_where_the_setting_says(tmp_path: Path) -> None:
    flags = {"state_dir": tmp_path / "near", "store": str(tmp_path / "store"), "cache_bytes": 5}
    settings = load(flags).settings
    engine = open_engine(settings, LocalExecutor())
    assert (engine.config.store, engine.config.cache_bytes) == (flags["store"], 5)
    owner = (tmp_path / "store" / "owner").read_text()
    with passing(settings) as own:
        replay = open_engine(own, LocalExecutor(), tmp_path / "a replay's")
        assert any(p.name == "owner" for p in (tmp_path / "store").glob("passing-*/*"))
        replay.close()
    assert not list((tmp_path / "store").glob("passing-*")), "what a replay leaves is gone"
    assert (tmp_path / "store" / "owner").read_text() == owner
    engine.close()


def test_a_bound_needs_a_store(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as caught:
        open_engine(load({"state_dir": tmp_path, "cache_bytes": 5}).settings, LocalExecutor())
    assert caught.value.reason == "CONFIG_INVALID"


@pytest.mark.parametrize(("old", "new"), [("durable", "store"), ("fast_bytes", "cache_bytes"), ("exchange", "store")])
def test_settings_of_earlier_versions_name_what_to_use(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest) as refused:
        load({old: "1"})
    assert refused.value.reason == "CONFIG_UNKNOWN_KEY" and new in refused.value.hint
    monkeypatch.setenv(f"AJOIN_{old.upper()}", "1")
    with pytest.raises(InvalidRequest) as refused:
        load({})
    assert new in refused.value.hint


def test_a_uri_is_shown_without_its_secret_and_has_folders() -> None:
    uri = "s3://key:secret@bucket/place?scheme=http&endpoint_override=127.0.0.1:9000"
    assert "secret" not in shown(uri) and shown("/a/path") == "/a/path"
    assert "secret" not in load({"store": uri}).to_toml() and load({"store": uri}).settings.store == uri
    assert below(uri, "x") == "s3://key:secret@bucket/place/x?scheme=http&endpoint_override=127.0.0.1:9000"
    assert below("/a/path/", "x") == "/a/path/x"


def test_status_and_metrics_tell_about_the_store() -> None:
    status = PlatformStatus(
        "RUNNING", 7, 3, 2, 1, 500, 60, 4, 1000, 0.25, 9.5,
        recovery_seconds=1.5, recovery_records=42, cache_bytes=2048, store_bytes=4096,
    )  # fmt: skip
    assert status_from_pb(status_to_pb(status, "0")) == status
    told = {s.name: s.value for metric in status_metrics(status) for s in metric.samples}
    assert (told["ajoin_recovery_seconds"], told["ajoin_recovery_records"]) == (1.5, 42)
    assert (told["ajoin_cache_bytes"], told["ajoin_store_bytes"]) == (2048, 4096)
    assert _store(status) == {"store": "4.0 KiB, of which 2.0 KiB are also on this machine"}
