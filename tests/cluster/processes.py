"""What tests with a cluster share: a process of their own, and in it a cluster with an executor.

A process can have only one Spark context, and the tests' own is a local one. So what happens on a cluster is a program
(`python -m tests.cluster.…`) that prints a JSON report as its last line, and a test looks at the report.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runtime.spark.standalone import Standalone
from tests.cluster.traps import Trapping

ROOT = Path(__file__).parents[2]
HERE = {"spark.executorEnv.PYTHONPATH": str(ROOT)}
"""Tasks of the tests are not installed, tasks of the platform are."""
SMALL = {"spark.executor.memory": "512m"}
PATIENCE = 1000.0


def told(module: str, *arguments: object, through: Sequence[str] = ()) -> dict[str, Any]:
    """What `python -m module` reports; `through`: the command that starts it somewhere."""
    process = subprocess.Popen(
        [*through, sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except BaseException:
        process.terminate()
        process.wait(60)
        raise
    assert process.returncode == 0, f"{out}\n{err[-6000:]}"
    report: dict[str, Any] = json.loads(out.splitlines()[-1])
    return report


def stopping_on_sigterm() -> None:
    """Through the context managers, which stop the cluster."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


@contextmanager
def cluster(folder: Path, options: dict[str, str], workers: int = 1) -> Iterator[tuple[Standalone, Trapping]]:
    """With an executor whose tasks can be trapped; every worker has a core and directories of its own."""
    with Standalone(folder, workers) as made:
        executor = Trapping.start(made.url, local_dir=folder / "driver", options=SMALL | options | made.options)
        executor.folder = folder
        try:
            yield made, executor
        finally:
            executor.stop()
