"""`--master yarn`: executors in containers of a real YARN, rows exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster import yarn
from tests.cluster.processes import told as run_told
from tests.cluster.story import expected
from tests.tools.maven import Unreachable

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    try:
        yarn.jars()
    except Unreachable as why:
        pytest.skip(f"no YARN: {why}")
    folder = tmp_path_factory.mktemp("yarn")
    return run_told("tests.cluster.on_yarn", folder)


def test_rows_are_exact_on_yarn(told: dict[str, Any]) -> None:
    rows = {id: sorted(tuple(row) for row in got) for id, got in told["rows"].items()}
    assert rows == expected(told["epochs"])
    assert all(rows.values())


def test_both_containers_have_worked_and_have_caches_of_their_own(told: dict[str, Any]) -> None:
    homes = {Path(home).name for home in told["homes"]}
    assert len(homes) == 2 and all(home.startswith("container_") for home in homes)
    assert len(set(told["caches"])) == 2
    assert all("application_" in cache for cache in told["caches"]), "they go with the application"
