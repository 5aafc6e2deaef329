"""`python -m tests.cluster.elastic FOLDER`: a life with Spark's dynamic allocation, on a cluster with room for three.

Load is made by holding tasks back at a gate: they wait until Spark has given as many executors as it may. Then
there is nothing to do, until it has taken back all but one. Prints a JSON report as its last line.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

from runtime.spark.executor import DYNAMIC, IDLE
from tests.cluster.processes import HERE, cluster, stopping_on_sigterm
from tests.cluster.story import QUERIES, Inputs, begun, store_in
from tests.cluster.traps import GATE, Trapping, at_gate
from tests.faults.processes import until
from tests.runtime.rig import Rig

MOST, PARTITIONS = 3, 4
OPTIONS = {
    DYNAMIC + "enabled": "true",
    DYNAMIC + "minExecutors": "1",
    DYNAMIC + "maxExecutors": str(MOST),
    "spark.executor.cores": "1",
    IDLE: "4s",
}


class Life:
    def __init__(self, folder: Path, executor: Trapping, rig: Rig, inputs: Inputs) -> None:
        self._folder, self._executor, self._rig, self._inputs = folder, executor, rig, inputs
        self.epochs = 0

    def epochs_until(self, enough: int) -> None:
        while self.epochs < enough:
            self._rig.epoch(self._inputs.bring(self.epochs))
            self.epochs += 1

    def seen(self) -> dict[str, Any]:
        there = self._rig.engine.status().executors
        return {"executors": [e.executor for e in there], "cores": self._executor.cores}

    def under_load(self) -> dict[str, Any]:
        """An epoch that ends when a task of it waits on each of as many executors as may be; what was then seen."""
        (self._folder / GATE).touch()
        seen: list[dict[str, Any]] = []
        looking = threading.Thread(target=self._look, args=(seen,), daemon=True)
        looking.start()
        self.epochs_until(self.epochs + 1)
        looking.join()
        return seen[0]

    def _look(self, seen: list[dict[str, Any]]) -> None:
        try:
            until(lambda: len(self._at_gate()) == MOST, f"there are never {MOST} executors at work")
            seen.append(self.seen())
        finally:
            (self._folder / GATE).unlink()

    def _at_gate(self) -> set[str]:
        return at_gate(self._folder) & {e.executor for e in self._executor.executors(PARTITIONS)}

    def until_there(self, count: int) -> None:
        until(lambda: len(self._executor.executors(PARTITIONS)) == count, f"there are never {count} executors")


def main() -> None:
    stopping_on_sigterm()
    folder = Path(sys.argv[1])
    report: dict[str, Any] = {}
    with cluster(folder, OPTIONS | HERE, workers=MOST) as (_, executor):
        inputs = Inputs.opaque(folder / "in")
        rig = begun(folder / "state", executor, store_in(folder), inputs)
        life = Life(folder, executor, rig, inputs)
        life.epochs_until(1)
        report["loaded"] = life.under_load()
        life.until_there(1)
        report["idle"] = life.seen()
        until(lambda: len([*folder.glob("worker-*/local/**/ajoin-cache")]) == 1, "an executor left its cache behind")
        life.epochs_until(life.epochs + 1)
        report["loaded again"] = life.under_load()
        report |= {"epochs": life.epochs, "rows": {id: rig.rows(id) for id in QUERIES}}
        rig.engine.close()
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
