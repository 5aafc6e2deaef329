"""`python -m tests.cluster.fleet FOLDER`: the platform asks a standalone cluster for executors, and gives them back.

A process of its own, because a process can have only one Spark context and the tests' own is a local one. The last line
printed is a JSON report.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runtime.api import Optimize
from runtime.spark.executor import SparkExecutor
from runtime.spark.fleet import SparkFleet
from runtime.spark.standalone import Standalone
from tests.cluster.processes import HERE
from tests.cluster.story import PATIENCE
from tests.runtime.rig import Rig

WORKERS = 2
SQL = "SELECT A.n AS a, B.n AS b FROM A JOIN B ON A.k = B.k WHERE A.n + B.n < 1 WINDOW TUMBLING (SIZE 1 SECOND)"


class Life:
    def __init__(self, folder: Path, executor: SparkExecutor, fleet: SparkFleet) -> None:
        self.fleet, self.epochs, self.ahead = fleet, 0, 0
        self.rig = Rig(folder / "state", executor, fleet=fleet, partitions=2, store=str(folder / "store"))
        self.rig.clock.now = time.time_ns() // 1_000_000
        for name in "AB":
            self.rig.stream(name, k="BIGINT", n="BIGINT")
        self.rig.create("q", SQL)
        self.report: list[dict[str, Any]] = []
        self.keys = 0

    def epoch(self, keys: int, each: int, later: int = 0) -> None:
        """Every key brings one row to the query."""
        rows = [{"k": k, "n": i, "ts": 1000 * self.epochs} for k in range(keys) for i in range(each)]
        for stream in "AB":
            self.rig.local.push(stream, *rows)
        self.ahead += 1000 * later
        self.rig.clock.now = max(self.rig.clock.now, time.time_ns() // 1_000_000 + self.ahead)
        self.rig.local.run_epoch()
        self.rig.local.apply(Optimize("incremental", force=False, rescale=True))
        self.epochs += 1
        self.keys += keys
        at = self.rig.engine.plan.partitioning
        told = {"tasks": sum(map(at.ways, range(at.count))), "executors": len(self.fleet.members())}
        self.report.append(told | {"keys": keys, "latency_ms": self.rig.engine.query("q").latency_ms})

    def until(self, there: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not there():
            assert time.monotonic() < end, f"{self.fleet.members()}, {self.fleet.machines()}"
            time.sleep(0.1)


def tell(life: Life) -> None:
    life.until(lambda: len(life.fleet.members()) == WORKERS)
    while len(life.fleet.members()) > 1:  # quiet: ranges become one, then an executor is given back
        life.epoch(2, 2, later=600)
    life.until(lambda: life.fleet.machines().cores == 1)
    life.epoch(2, 2)
    for _ in range(10):  # load: ranges, and an executor for them
        if life.report[-1]["tasks"] == 1:
            life.epoch(20, 2000)
    assert life.report[-1]["tasks"] == WORKERS, life.report
    life.until(lambda: life.fleet.machines().cores == WORKERS)
    life.epoch(20, 2000)
    life.epoch(2, 2, later=600)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # through the context managers, which stop everything
    folder = Path(sys.argv[1])
    with Standalone(folder, WORKERS) as cluster:
        options = {"spark.executor.memory": "512m", "spark.executor.cores": "1"} | HERE | cluster.options
        executor = SparkExecutor.start(cluster.url, local_dir=folder / "driver", options=options)
        try:
            fleet = SparkFleet(executor.context, 1, WORKERS)
            life = Life(folder, executor, fleet)
            tell(life)
            rows = len(life.rig.rows("q"))
            nodes = [list(node) for node in fleet.machines().nodes]
            life.rig.local.close()
        finally:
            executor.stop()
    print(json.dumps({"epochs": life.report, "rows": rows, "keys": life.keys, "nodes": nodes}))


if __name__ == "__main__":
    main()
