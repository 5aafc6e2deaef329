"""Executors that Spark gives under load and takes back when they are idle; rows are exact."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.spark.executor import wanted_cores
from tests.cluster import processes
from tests.cluster.elastic import MOST, OPTIONS
from tests.cluster.story import QUERIES, expected


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return processes.told("tests.cluster.elastic", tmp_path_factory.mktemp("elastic"))


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("query", QUERIES)
def test_rows_are_exact_while_executors_come_and_go(told: dict[str, Any], query: str) -> None:
    rows = sorted(tuple(row) for row in told["rows"][query])
    assert rows == expected(told["epochs"])[query]
    assert rows


@pytest.mark.long
@pytest.mark.spark
def test_load_brings_executors_and_idleness_takes_them_back(told: dict[str, Any]) -> None:
    """Also those that remember where partitions were; their caches go with them."""
    for loaded in (told["loaded"], told["loaded again"]):
        assert len(loaded["executors"]) == loaded["cores"] == MOST
    assert len(told["idle"]["executors"]) == 1
    assert told["idle"]["cores"] == 2, "Spark never says less"
    first, second = (set(told[when]["executors"]) for when in ("loaded", "loaded again"))
    assert len(first & second) == 1, "the one that stayed, and new ones"


def test_tasks_for_all_cores_that_may_come() -> None:
    assert wanted_cores({}) == 0
    assert wanted_cores(OPTIONS) == MOST
    assert wanted_cores(OPTIONS | {"spark.executor.cores": "4"}) == 4 * MOST
    assert wanted_cores({"spark.dynamicAllocation.enabled": "true"}) >= 1 << 20
