"""Too much input and too many queries, seen through the API: the one waits, the others are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ajoin import errors
from ajoin.config import load
from ajoin.platform.catalog import Limits
from ajoin.platform.launch import open_engine
from runtime.engine.config import EngineConfig
from runtime.execution.executor import LocalExecutor
from tests.ajoin.world import JOIN, WAIT, running, with_streams

COLUMNS = {"ts": "TIMESTAMP", "k": "BIGINT"}
THREE = "SELECT V.vID FROM V JOIN W ON V.vID = W.vID JOIN V AS X ON X.vID = W.vID WINDOW TUMBLING (SIZE 1 HOUR)"


def test_a_backlog_is_visible_and_is_worked_off(tmp_path):
    limit = 2_000
    with running(tmp_path / "state") as world:
        # The clock demands far more than 50 tuples an epoch, of G for ever, of H until all are read.
        options = {"rate": 1_000_000, "batch": 50, "start_ms": "now"}
        world.client.create_stream("G", columns=COLUMNS, time="ts", options=options)
        world.client.create_stream("H", columns=COLUMNS, time="ts", options={**options, "limit": limit})
        assert world.platform.wait_until(lambda: world.platform.stream("H").throttled, WAIT)
        assert world.platform.wait_until(lambda: world.platform.stream("H").tuples == limit, WAIT)
        status = world.client.status()
        assert status.throttled == ("G",) and status.backlog["G"] > 0 == status.backlog["H"]
        assert status.latency_seconds > 0 and status.lag_ms is not None
        behind, done = world.client.streams()
        assert (behind.throttled, behind.backlog_unit) == (True, "tuples") and behind.backlog > 0
        assert (done.throttled, done.backlog, done.late_dropped, done.dead_letter) == (False, 0, 0, 0)
        statistics = world.client.statistics()
        assert all(e.throttled and e.latency_seconds > 0 for e in statistics.epochs[2:])
        assert [(s.name, s.throttled, s.backlog > 0) for s in statistics.streams] == [
            ("G", True, True),
            ("H", False, False),
        ]


def feed(world, start: int) -> None:
    world.feed(
        {"V": [{"ts": start, "vID": 1, "geo": "x"}], "W": [{"ts": start, "vID": 1, "usrID": 2}]},
        watermark=start + 1000,
    )


@pytest.fixture
def costs(tmp_path) -> float:
    """What the plan of one join is estimated to cost before any statistics."""
    with with_streams(tmp_path / "free") as world:
        world.client.create_query(JOIN, id="q1")
        return float(world.client.optimize(dry_run=True).cost_before)


def test_a_query_above_the_cost_limit_is_refused_and_the_others_run_on(tmp_path, costs):
    with with_streams(tmp_path / "state", engine=EngineConfig(max_cost=1.01 * costs)) as world:
        world.client.create_query(JOIN, id="q1")
        version = world.platform.plan_version
        with pytest.raises(errors.ResourceExhausted) as refused:
            world.client.create_query(THREE, id="q2")
        assert refused.value.reason == "COST_LIMIT" and "max_cost" in refused.value.hint
        assert world.platform.plan_version == version and world.client.status().queries == 1
        feed(world, 1000)
        assert len(world.client.results("q1", until=2000, timeout=WAIT)) == 1
        with pytest.raises(errors.NotFound):
            world.client.query("q2")


def test_one_query_too_many_is_refused_and_the_others_run_on(tmp_path):
    with with_streams(tmp_path / "state", limits=Limits(queries=1)) as world:
        world.client.create_query(JOIN, id="q1")
        feed(world, 1000)
        with pytest.raises(errors.ResourceExhausted) as refused:
            world.client.create_query(JOIN, id="q2")
        assert refused.value.reason == "TOO_MANY_QUERIES"
        feed(world, 2000)
        assert len(world.client.results("q1", until=3000, timeout=WAIT)) == 2
        world.client.delete_query("q1")
        assert world.client.create_query(JOIN, id="q2").id == "q2"


def test_the_limits_come_from_the_settings(tmp_path: Path):
    settings = load({"max_cost": 12.5, "max_queries": 3, "state_dir": tmp_path}).settings
    assert settings.limits.queries == 3
    engine = open_engine(settings, LocalExecutor())
    assert engine.config.max_cost == 12.5
    engine.close()
    assert load().settings.max_cost == 0
    unlimited = open_engine(load({"state_dir": tmp_path}).settings, LocalExecutor())
    assert unlimited.config.max_cost is None
    unlimited.close()
