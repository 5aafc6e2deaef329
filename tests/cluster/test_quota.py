"""State several times larger than what executors may keep of it: exact rows, and disks that were looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import processes
from tests.cluster.quota import PART
from tests.tools.minio import MinIO


@pytest.mark.long
@pytest.mark.spark
def test_caches_keep_their_bound_however_large_the_state_is_on_s3(s3: MinIO, tmp_path: Path) -> None:
    told = processes.told("tests.cluster.quota", tmp_path, s3.uri(s3.new_bucket()))
    assert told["rows"] == told["expected"] and told["rows"][0] > 1000
    bound = told["bound"]
    assert told["state"] >= PART * bound
    print(told)
