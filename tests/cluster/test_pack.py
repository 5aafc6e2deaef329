"""Code for executors that have none: the archive of `ajoin pack`, and a cluster whose Python knows nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from runtime.spark.pack import pack_environment
from tests.cluster.story import expected

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.spark
def test_executors_need_nothing_but_spark_python_and_the_archive(tmp_path: Path) -> None:
    archive = tmp_path / "env.tar.gz"
    packed = pack_environment(archive)
    assert {"runtime", "optimizer", "numpy", "pyarrow", "numba", "llvmlite"} <= set(packed.packages)
    assert packed.bytes == archive.stat().st_size
    with tarfile.open(archive) as tar:
        names = set(tar.getnames())
    assert {"runtime/spark/daemon.py", "numpy/__init__.py"} <= names
    assert not any(name.startswith(("/", "..", "pyspark/")) or "__pycache__" in name for name in names)
    told = subprocess.run(
        [sys.executable, "-m", "tests.cluster.story", str(tmp_path / "cluster"), str(archive)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1000,
    )
    assert told.returncode == 0, f"{told.stdout}\n{told.stderr[-6000:]}"
    report = json.loads(told.stdout.splitlines()[-1])
    rows = {id: sorted(tuple(row) for row in found) for id, found in report["rows"].items()}
    assert rows == expected(report["epochs"])
    assert all(rows.values())
