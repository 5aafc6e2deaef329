"""State several times larger than what executors may keep of it: exact rows, and disks that were looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.buckets.checked import CHUNK
from runtime.store.cache import LOOKED_AFTER
from tests.cluster import processes
from tests.cluster.quota import EPOCHS, PART, WORKERS
from tests.tools.minio import MinIO

WORKER_PROCESSES = 2
"""Python processes that share a cache: one per core, and one more while Spark replaces it."""


@pytest.mark.long
@pytest.mark.spark
def test_caches_keep_their_bound_however_large_the_state_is_on_s3(s3: MinIO, tmp_path: Path) -> None:
    told = processes.told("tests.cluster.quota", tmp_path, s3.uri(s3.new_bucket()))
    assert told["rows"] == told["expected"] and told["rows"][0] > 1000
    bound, state = told["bound"], told["state"]
    assert state >= PART * bound
    most = bound + WORKER_PROCESSES * bound // LOOKED_AFTER + CHUNK
    assert len(told["caches"]) == WORKERS and told["looks"] > EPOCHS
    for worker, held in told["caches"].items():
        assert bound // 2 < held <= most, f"{worker} keeps {held} of {bound}"
        assert held + told["nameless"][worker] < state / 2, "with what its task reads though it had to go"
    *_, last = told["told"]
    assert len(last) == WORKERS
    assert all(0 < held <= most for epoch in told["told"] for held, _, _ in epoch)
    assert all(hits > 0 for _, hits, _ in last)
    assert sum(fetched for *_, fetched in last) > 2 * state, "what had to go was fetched again"
