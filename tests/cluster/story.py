"""`python -m tests.cluster.story FOLDER`: one life of the platform on a cluster whose workers come, die and leave.

With a second argument, an archive made by `ajoin pack`: a shorter life on executors that have nothing but the archive.

A process of its own, because a process can have only one Spark context and the tests' own is a local one. Tasks use
a store that they cannot map; every worker has directories of its own under FOLDER. Tuples come in three ways: A is
pushed, B are files of the driver's machine, C are objects. The last line printed is a JSON report; `expected` says what
the queries must have got, computed from the tuples by nested loops.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from runtime import plugins
from runtime.connectors.base import ConnectorSpec
from runtime.execution.executor import Executor
from runtime.spark.pack import FOLDER
from runtime.spark.standalone import Daemon, Standalone
from tests.cluster.processes import HERE, cluster, stopping_on_sigterm
from tests.cluster.tasks import where
from tests.cluster.traps import TRAP, Trapping
from tests.runtime.rig import Rig

Rows = dict[str, list[tuple[Any, ...]]]

SPAN, WINDOW, PATIENCE = 250, 1_000, 400.0
PAIR = "SELECT A.x, B.y FROM A JOIN B ON A.k = B.k WINDOW TUMBLING (SIZE 1 SECOND)"
CHAIN = "SELECT A.x, B.y, C.z FROM A JOIN B ON A.k = B.k JOIN C ON B.y = C.y WINDOW TUMBLING (SIZE 1 SECOND)"
QUERIES = ("pair", "chain")


def tuples(epoch: int) -> Rows:
    """What the streams bring in an epoch: (k, x, ts), (k, y, ts), (y, z, ts)."""
    draw = Random(epoch)

    def rows(n: int, first: int, second: int) -> list[tuple[Any, ...]]:
        start = epoch * SPAN
        return [(draw.randrange(first), draw.randrange(second), start + draw.randrange(SPAN)) for _ in range(n)]

    return {"A": rows(60, 20, 1000), "B": rows(60, 20, 30), "C": rows(40, 30, 1000)}


def expected(epochs: int) -> Rows:
    every: Rows = {"A": [], "B": [], "C": []}
    for epoch in range(epochs):
        for stream, rows in tuples(epoch).items():
            every[stream] += rows
    pair, chain = [], []
    for ak, x, at in every["A"]:
        for bk, y, bt in every["B"]:
            if ak == bk and at // WINDOW == bt // WINDOW:
                start = at // WINDOW * WINDOW
                pair.append((start, start + WINDOW, x, y))
                chain += [
                    (start, start + WINDOW, x, y, z)
                    for cy, z, ct in every["C"]
                    if cy == y and ct // WINDOW == start // WINDOW
                ]
    return {"pair": sorted(pair), "chain": sorted(chain)}


class Inputs:
    """Brings what the streams bring. `folder`: of the driver. `uri`, `put`: a folder of an object store, and how an
    object gets there."""

    def __init__(self, folder: Path, uri: str, put: Callable[[str, bytes], object]) -> None:
        self.folder, self.uri, self._put = folder, uri, put
        folder.mkdir(parents=True)

    @classmethod
    def opaque(cls, folder: Path) -> Inputs:
        objects = (folder / "objects").resolve()
        objects.mkdir(parents=True)
        return cls(folder / "files", f"opaque://{objects}", lambda name, data: (objects / name).write_bytes(data))

    def bring(self, epoch: int) -> Rows:
        """Files appear; what is left is to be pushed."""
        rows, name = tuples(epoch), f"{epoch:03d}.jsonl"
        (self.folder / name).write_bytes(_lines(("k", "y", "ts"), rows["B"]))
        self._put(name, _lines(("y", "z", "ts"), rows["C"]))
        return {"A": rows["A"]}


def _lines(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> bytes:
    return b"".join(json.dumps(dict(zip(names, row, strict=True))).encode() + b"\n" for row in rows)


class Story:
    def __init__(self, cluster: Standalone, executor: Trapping, rig: Rig, inputs: Inputs) -> None:
        self.cluster, self.executor, self.rig, self.inputs = cluster, executor, rig, inputs
        self.epochs = 0
        self.report: dict[str, Any] = {"lived": [], "killed_in": None}

    def epoch(self, n: int = 1) -> None:
        for _ in range(n):
            began = time.monotonic()
            self.rig.epoch(self.inputs.bring(self.epochs))
            self.epochs += 1
            self.report["lived"].append(round(time.monotonic() - began, 2))

    def until_tasks_run_on(self, *workers: Daemon) -> None:
        """Exactly these: Spark needs a moment to give and take executors."""
        wanted = {w.name for w in workers}
        end = time.monotonic() + PATIENCE
        seen: set[str] = set()
        while time.monotonic() < end:
            homes = self.executor.run("where", where, None, range(8))
            seen = {Path(home).relative_to(self.cluster.directory).parts[0] for home in homes}
            if seen == wanted:
                return
        raise AssertionError(f"tasks run on {sorted(seen)}, not on {sorted(wanted)}")

    def cached(self) -> list[str]:
        """Workers on whose disk there is something of the store."""
        found = self.cluster.directory.glob("worker-*/local/**/ajoin-cache/*")
        return sorted({path.relative_to(self.cluster.directory).parts[0] for path in found})

    def worker_of(self, path: str) -> str:
        return Path(path).relative_to(self.cluster.directory).parts[0]

    def kill_during_epoch(self, worker: Daemon) -> None:
        sprung = worker.log.parent / "trapped"

        def strike() -> None:
            while not sprung.exists():
                time.sleep(0.01)
            self.cluster.kill(worker)

        trap = self.executor.folder / TRAP
        trap.write_text(str(worker.log.parent))
        striker = threading.Thread(target=strike, daemon=True)
        striker.start()
        self.report["killed_in"] = self.epochs
        self.epoch()
        trap.unlink()
        striker.join(PATIENCE)
        assert worker.process.poll() is not None, "no task got to the worker that was to die"

    def tell(self) -> None:
        first = self.cluster.workers[0]
        self.epoch(2)
        second = self.cluster.add_worker()
        self.until_tasks_run_on(first, second)
        self.epoch(2)
        status = self.rig.engine.status().executors
        self.report["executors"] = [(e.executor, e.cores, e.partitions, e.hit_bytes, e.held_bytes) for e in status]
        self.report["caches"] = sorted(self.worker_of(e.cache) for e in status)
        self.report["homes"] = [self.executor.run("where", where, None, range(2)) for _ in range(5)]
        self.report["cache"] = self.cached()
        self.kill_during_epoch(first)
        self.epoch(2)
        self.report["after_kill"] = {"epoch": self.rig.engine.epoch}
        third = self.cluster.add_worker()
        self.until_tasks_run_on(second, third)
        self.cluster.decommission(second)
        self.epoch(2)
        self.until_tasks_run_on(third)
        self.report["left"] = [e.host for e in self.rig.engine.status().executors]
        self.epoch(2)
        self.rig.reopen(kill=False)  # a new engine on the same store
        self.epoch(2)


def store_in(folder: Path) -> str:
    """Not mapped but fetched, as if workers were on other machines."""
    plugins.load(("tests.tools.opaque_store",))
    return f"opaque://{folder.resolve()}/store"


def begun(directory: Path, executor: Executor, store: str, inputs: Inputs) -> Rig:
    """A platform with the streams and queries of the story."""
    files, objects = (ConnectorSpec("files", (("path", where),)) for where in (str(inputs.folder), inputs.uri))
    rig = Rig(directory, executor, store=store, partitions=4)
    rig.stream("A", k="BIGINT", x="BIGINT")
    rig.stream("B", files, k="BIGINT", y="BIGINT")
    rig.stream("C", objects, y="BIGINT", z="BIGINT")
    rig.create("pair", PAIR)
    rig.create("chain", CHAIN)
    return rig


def on_cluster(folder: Path, tell: Callable[[Story], None], options: dict[str, str]) -> dict[str, Any]:
    with cluster(folder, options) as (made, executor):
        inputs = Inputs.opaque(folder / "in")
        rig = begun(folder / "state", executor, store_in(folder), inputs)
        story = Story(made, executor, rig, inputs)
        tell(story)
        report = {"epochs": story.epochs, **story.report, "rows": {id: rig.rows(id) for id in QUERIES}}
        rig.engine.close()
        return report


def main() -> None:
    stopping_on_sigterm()
    folder, *archive = sys.argv[1:]
    if archive:
        os.environ["PYSPARK_PYTHON"] = sys._base_executable  # which knows nothing of this virtual environment
        packed = {"spark.archives": f"{archive[0]}#{FOLDER}", "spark.executorEnv.PYTHONPATH": f"./{FOLDER}"}
        report = on_cluster(Path(folder), lambda story: story.epoch(3), packed)
    else:
        report = on_cluster(Path(folder), Story.tell, HERE)
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
