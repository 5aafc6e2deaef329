"""What must not pile up in a process that runs for weeks."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ajoin.sql import parse_query
from runtime.api import CreateQuery, DeleteQuery
from runtime.buckets.store import BucketStore
from runtime.control.fold import DELETED_KEPT
from tests.runtime.rig import Rig

JOIN = "SELECT A.k AS a FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)"


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_worker_lets_go_of_buckets_that_the_driver_dropped(tmp_path: Path) -> None:
    driver, worker = BucketStore(tmp_path), BucketStore(tmp_path)
    before = open_files()
    for number in range(1_000):
        driver.write(f"b{number}.bucket", {}, {"a": np.arange(4)})
        assert worker.open(f"b{number}.bucket").arrays["a"].tolist() == [0, 1, 2, 3]
        if number >= 10:
            driver.drop(f"b{number - 10}.bucket")
    assert open_files() - before < 200


def test_a_query_that_is_long_gone_leaves_nothing_in_the_state(tmp_path: Path) -> None:
    rig = Rig(tmp_path, retention_epochs=2)
    for name in "AB":
        rig.stream(name, k="BIGINT")
    for number in range(5):
        rig.create(f"q{number}", JOIN)
        rig.epoch({"A": [(1, 1_000 * number)], "B": [(1, 1_000 * number)]})
        rig.delete(f"q{number}")
    rig.epoch()
    gone, query = "q0", parse_query(JOIN, rig.engine.schemas())
    assert any(uid.startswith(gone) for uid in rig.engine.state.expired), "retention has removed its results"
    made = rig.engine.apply([CreateQuery(f"x{n}", query) for n in range(DELETED_KEPT)])
    assert len(made) == DELETED_KEPT
    rig.engine.apply([DeleteQuery(f"x{n}") for n in range(DELETED_KEPT)])
    state = rig.engine.state
    assert len(state.queries) == DELETED_KEPT
    assert not any(uid.startswith(gone) for uid in [*state.queries, *state.expired, *state.floors, *state.names])
