"""The store goes away while the platform serves: it says so, waits, and goes on; and one that lost its store to
another platform stops.
"""

from __future__ import annotations

import os

import pytest

from optimizer.errors import Unavailable
from runtime.engine.config import EngineConfig
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from tests.ajoin.world import JOIN, WAIT, with_streams


def rows(n: int):
    return {"V": [{"ts": n, "vID": n, "geo": "x"}], "W": [{"ts": n, "vID": n, "usrID": n}]}


def test_a_platform_waits_for_its_store(tmp_path):
    store = tmp_path / "store"
    with with_streams(tmp_path / "state", engine=EngineConfig(store=str(store))) as world:
        world.client.create_query(JOIN, id="q")
        world.feed(rows(1))
        status = world.client.status()
        assert status.store_bytes > 0 and status.recovery_seconds > 0
        os.rename(store, tmp_path / "elsewhere")
        store.write_text("no folder")
        with pytest.raises(Unavailable) as refused:
            world.platform.push("V", rows(2)["V"]).result(WAIT)
        assert refused.value.reason == "STORE_UNAVAILABLE"
        with pytest.raises(Unavailable):
            world.client.create_query(JOIN, id="q2")
        world.platform.raise_watermark("V", 5).result(WAIT)
        assert world.platform.wait_until(lambda: "the store" in world.platform.status().message, WAIT)
        assert world.client.status().state == "RUNNING"
        store.unlink()
        os.rename(tmp_path / "elsewhere", store)
        world.feed(rows(7))
        assert world.platform.wait_until(lambda: not world.platform.status().message, WAIT)
        assert world.client.query("q").rows == 2


def test_a_platform_that_lost_its_store_to_another_one_stops(tmp_path):
    config = EngineConfig(store=str(tmp_path / "store"))
    with with_streams(tmp_path / "state", engine=config) as world:
        world.client.create_query(JOIN, id="q")
        world.feed(rows(1))
        other = Engine.open(tmp_path / "other", LocalExecutor(), config)
        assert other.query("q").rows == 1
        world.platform.raise_watermark("V", 5).result(WAIT)
        assert world.platform.wait_until(lambda: world.platform.status().state == "FAILED", WAIT)
        assert "taken over" in world.platform.status().message
        other.close()
