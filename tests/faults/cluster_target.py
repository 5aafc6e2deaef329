"""`python -m tests.faults.cluster_target FOLDER EPOCHS`: a standalone cluster, a driver, an engine, all to be killed.

Says "epoch N" for every epoch that is committed. When all EPOCHS are done, it kills the executor of one worker in the
middle of a task, runs one more epoch, and prints the rows as JSON. After a kill of everything, the same command
continues on the same state, with a new cluster.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from experiments.processes import tree
from runtime.spark.executor import SparkExecutor
from runtime.spark.standalone import Daemon, Standalone
from tests.cluster.processes import HERE, SMALL, stopping_on_sigterm
from tests.cluster.story import CHAIN, PAIR, store_in, tuples
from tests.cluster.tasks import ready_to_die
from tests.faults.processes import command_line
from tests.runtime.rig import Rig

COLUMNS = {"A": ("k", "x"), "B": ("k", "y"), "C": ("y", "z")}


class Doomed(SparkExecutor):
    """When set, the first join task that gets to the worker kills the executor it runs in."""

    worker: Daemon | None = None

    def run(self, name: str, stage: Any, shared: Any, tasks: Any) -> Any:
        if self.worker is None or "join" not in name:
            return super().run(name, stage, shared, tasks)
        return super().run(name, ready_to_die, (str(self.worker.log.parent), stage, shared), tasks)


def feed(rig: Rig) -> None:
    """The next epoch's tuples, unless they were pushed before the last death."""
    epoch = rig.engine.epoch
    for stream, rows in tuples(epoch).items():
        source = rig.engine.parts.sources.opened[stream]
        if int(source.latest(0, 0)) <= epoch:
            names = [c.name for c in rig.engine.schemas()[stream].columns]
            rig.engine.push(stream, [dict(zip(names, row, strict=True)) for row in rows])


def executors(worker: Daemon) -> list[int]:
    return [p for p in tree(worker.pid)[1:] if "CoarseGrainedExecutorBackend" in command_line(p)]


def main() -> None:
    stopping_on_sigterm()
    folder, epochs = Path(sys.argv[1]), int(sys.argv[2])
    run = folder / f"run-{os.getpid()}"
    with Standalone(run, workers=2) as cluster:
        options = SMALL | HERE | cluster.options
        executor = Doomed.start(cluster.url, local_dir=run / "driver", options=options)
        try:
            rig = Rig(folder / "state", executor, store=store_in(folder), partitions=4)
            print(f"epoch {rig.engine.epoch}", flush=True)
            for stream, columns in COLUMNS.items():
                if stream not in rig.engine.schemas():
                    rig.stream(stream, **dict.fromkeys(columns, "BIGINT"))
            for id, sql in (("pair", PAIR), ("chain", CHAIN)):
                if id not in {q.id for q in rig.engine.queries()}:
                    rig.create(id, sql)
            while rig.engine.epoch < epochs:
                feed(rig)
                rig.engine.run_epoch()
                print(f"epoch {rig.engine.epoch}", flush=True)
            executor.worker = cluster.workers[0]
            before = executors(cluster.workers[0])
            feed(rig)
            rig.engine.run_epoch()
            died = [p for p in before if not command_line(p)]
            rows = {id: rig.rows(id) for id in ("pair", "chain")}
            rig.engine.close()
        finally:
            executor.stop()
    print(json.dumps({"executors_died": len(died), "rows": rows}), flush=True)


if __name__ == "__main__":
    main()
