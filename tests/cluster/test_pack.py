"""Code for executors that have none: the archive of `ajoin pack`, and a Python that knows nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import py4j
import pyspark
import pytest

from runtime.spark.imports import imported_packages
from runtime.spark.pack import pack_environment, task_environment
from tests.cluster.processes import told
from tests.cluster.story import expected

EXECUTOR = """
import json, os, sys

sys.path[:0] = sys.argv[1:]
import pyspark.worker
import runtime.spark.executor
from runtime.connectors.kafka.connection import library
from runtime.spark.daemon import load

load()
library()
allowed = (*sys.argv[1:], os.path.dirname(os.__file__))
files = [f for m in list(sys.modules.values()) if (f := getattr(m, "__file__", None)) and not f.startswith(allowed)]
print(json.dumps(files))
"""
"""What an executor's Python does: load everything, run a few tuples through source, join and sink, and use Kafka.
Prints the files of modules that come neither from the archive nor from Spark nor from Python itself."""


def test_tasks_run_with_nothing_but_python_spark_and_what_is_packed(tmp_path: Path) -> None:
    """Instead of 200 MB in an archive, a folder with links to the same packages."""
    packed, spark = tmp_path / "packed", tmp_path / "spark"
    packed.mkdir()
    spark.mkdir()
    for path, name in task_environment().files:
        top = packed / name.parts[0]
        if not top.is_symlink():
            top.symlink_to(path.parents[len(name.parts) - 2] if len(name.parts) > 1 else path)
    for module in (pyspark, py4j):
        (spark / module.__name__).symlink_to(Path(str(module.__file__)).parent)
    isolated = [sys.executable, "-I", "-S", "-c", EXECUTOR, str(packed), str(spark)]
    done = subprocess.run(isolated, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-6000:]
    assert json.loads(done.stdout) == []


def test_what_is_packed_follows_from_what_is_imported(tmp_path: Path) -> None:
    """Also inside functions, and through other modules of ours; a name that is no module is just a name."""
    ours = tmp_path / "ours"
    (ours / "inner").mkdir(parents=True)
    (ours / "__init__.py").write_text("import zero")
    (ours / "inner" / "__init__.py").write_text("")
    (ours / "start.py").write_text("import os.path\nfrom ours.inner import deep, Name\nimport one.two as x")
    (ours / "inner" / "deep.py").write_text("def later():\n    from three import four\n    import ours.start")
    (ours / "unused.py").write_text("import five")
    assert imported_packages(["ours.start"], {"ours": ours}) == {"zero", "one", "three"}
    environment = task_environment()
    assert {"runtime", "optimizer", "numpy", "pyarrow", "numba", "llvmlite", "xxhash", "kafka-python"} <= set(
        environment.packages
    )
    assert not {"pyspark", "py4j", "grpcio", "sqlglot"} & set(environment.packages)
    names = {str(name) for _, name in environment.files}
    assert {"runtime/spark/daemon.py", "numpy/__init__.py"} <= names
    assert not any(name.startswith(("/", "..", "pyspark/")) or "__pycache__" in name for name in names)


@pytest.mark.long
@pytest.mark.spark
def test_executors_need_nothing_but_spark_python_and_the_archive(tmp_path: Path) -> None:
    archive = tmp_path / "env.tar.gz"
    plugins = ("tests.tools.opaque_store",)  # the store that the story uses
    packed = pack_environment(archive, plugins)
    assert packed.bytes == archive.stat().st_size
    with tarfile.open(archive) as tar:
        assert set(tar.getnames()) == {str(name) for _, name in task_environment(plugins).files}
    report = told("tests.cluster.story", tmp_path / "cluster", archive)
    rows = {id: sorted(tuple(row) for row in got) for id, got in report["rows"].items()}
    assert rows == expected(report["epochs"])
    assert all(rows.values())
