"""The platform on a standalone Spark cluster: workers come, die and leave, and no row is lost or doubled."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster import processes
from tests.cluster.story import expected

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return processes.told("tests.cluster.story", tmp_path_factory.mktemp("cluster"))


@pytest.mark.parametrize("query", ["pair", "chain"])
def test_rows_are_exact_whatever_happens_to_workers(told: dict[str, Any], query: str) -> None:
    rows = sorted(tuple(row) for row in told["rows"][query])
    assert rows == expected(told["epochs"])[query]
    assert rows


def test_partitions_stay_with_their_executor_which_has_a_cache(told: dict[str, Any]) -> None:
    assert len(set(told["homes"][0])) == 2, "one task on each"
    assert all(homes == told["homes"][0] for homes in told["homes"])
    assert told["cache"] == ["worker-1", "worker-2"]


def test_the_status_tells_of_executors_their_partitions_and_caches(told: dict[str, Any]) -> None:
    assert len(told["executors"]) == 2
    assert {cores for _, cores, *_ in told["executors"]} == {1}
    worked = [p for _, _, partitions, *_ in told["executors"] for p in partitions]
    assert sorted(worked) == [0, 1, 2, 3], "each partition on one of them"
    assert all(partitions and held > 0 for _, _, partitions, _, held in told["executors"])
    assert sum(hits for *_, hits, _ in told["executors"]) > 0
    assert told["caches"] == ["worker-1", "worker-2"]
    assert len(told["left"]) == 1, "those that were killed or left are not shown"


def test_a_killed_worker_costs_no_restart(told: dict[str, Any]) -> None:
    """The epoch it died in is committed like any other, by the same engine, and so is every later one."""
    assert told["after_kill"]["epoch"] == told["killed_in"] + 3
    assert len(told["lived"]) == told["epochs"] == 13
