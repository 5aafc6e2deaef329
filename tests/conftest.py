"""What all tests share: one Spark session, one S3 server, hypothesis profiles, and directories in memory.

Most of what the engine does is append and force to disk; on a memory file system a test costs what it
computes. Where there is none, everything works the same, only slower. `--hypothesis-profile=long` looks ten
times as hard.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from runtime.spark.executor import SparkExecutor
from tests import spread
from tests.tools import minio

MEMORY = Path("/dev/shm")

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("fast", max_examples=60, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("long", max_examples=600, deadline=None, suppress_health_check=_SLOW)
settings.load_profile("fast")

_BASE = pytest.StashKey[str]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.option.basetemp is None and MEMORY.is_dir():
        config.option.basetemp = config.stash[_BASE] = tempfile.mkdtemp(prefix="ajoin-tests-", dir=MEMORY)


def pytest_unconfigure(config: pytest.Config) -> None:
    base = config.stash.get(_BASE, None)
    if base is not None:
        shutil.rmtree(base, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    spread.order(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> spread.Spread | None:
    """For plain `-n 2`; whoever asks for another way with `--dist` gets it."""
    if config.getoption("dist") != "load":
        return None
    config.option.loadscopereorder = False  # by number of tests; here they are in order already
    return spread.Spread(config, log)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkExecutor]:
    """The one Spark session of the run. Starting it takes seconds, so only tests that name it pay for it."""
    executor = SparkExecutor.start("local[2]", local_dir=tmp_path_factory.mktemp("spark"))
    yield executor
    executor.stop()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[minio.MinIO]:
    """The one S3 server of a worker. It is built the first time, which takes minutes."""
    try:
        minio.binary()
    except minio.Unreachable as why:
        if os.environ.get("CI") == "true":
            pytest.fail(f"the tests with S3 must run here, but {why}")
        pytest.skip(f"no S3 server: {why}")
    with minio.running(tmp_path_factory.mktemp("s3")) as server:
        yield server
