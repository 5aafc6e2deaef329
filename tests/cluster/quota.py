"""`python -m tests.cluster.quota FOLDER STORE`: open state five times as large as the cache of an executor may be.

Three workers with a directory each, a store that is fetched. While the platform runs, the disks are looked at from
outside: what lies in the caches, and what is open still though its name is gone. Prints a JSON report.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

from experiments.processes import tree
from experiments.stores.life import Life, Load, plain
from runtime.execution.executor import LocalExecutor
from runtime.spark.standalone import Daemon, Standalone
from tests.cluster.processes import HERE, cluster, stopping_on_sigterm

WORKERS, PART, EPOCHS = 3, 5, 12
LOAD = Load(40_000, window=8, hopping=True, reads=2, partitions=6, spread=20)


class Disks:
    """The most that was seen on each worker's disk, in bytes, while the block ran."""

    def __init__(self, cluster: Standalone) -> None:
        self._cluster, self._ended = cluster, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.caches: Counter[str] = Counter()
        self.nameless: Counter[str] = Counter()
        self.looks = 0

    def _run(self) -> None:
        while not self._ended.is_set():
            for worker in self._cluster.workers:
                self.caches[worker.name] = max(self.caches[worker.name], _cached(worker))
                self.nameless[worker.name] = max(self.nameless[worker.name], _nameless(worker))
            self.looks += 1

    def __enter__(self) -> Disks:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()


def _cached(worker: Daemon) -> int:
    total = 0
    for path in worker.log.parent.glob("local/**/ajoin-cache/*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


def _nameless(worker: Daemon) -> int:
    """Of cache files that were removed and are still open, each counted once."""
    found: dict[int, int] = {}
    for pid in tree(worker.pid):
        try:
            handles = [*Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        for handle in handles:
            try:
                name, stat = os.readlink(handle), handle.stat()
            except OSError:
                continue
            if "ajoin-cache" in name and stat.st_nlink == 0:
                found[stat.st_ino] = stat.st_blocks * 512
    return sum(found.values())


def open_state(folder: Path) -> int:
    """Bytes of the buckets that are open at the end, on one machine."""
    life = Life(folder, LocalExecutor(), None, LOAD)
    life.steps(LOAD.window + 1)
    size = sum(life.open_bytes.values())
    life.engine.close()
    return size


def main() -> None:
    stopping_on_sigterm()
    folder, store = Path(sys.argv[1]), sys.argv[2]
    state = open_state(folder / "first")
    bound = state // PART
    told: list[Any] = []
    with cluster(folder, HERE, workers=WORKERS) as (made, executor), Disks(made) as disks:
        life = Life(folder / "state", executor, store, LOAD, cache_bytes=bound)
        for _ in range(EPOCHS):
            life.steps(1)
            told.append([(e.held_bytes, e.hit_bytes, e.fetched_bytes) for e in life.engine.status().executors])
        seconds = life.taken
        rows = life.close()
    report = {
        "state": state,
        "bound": bound,
        "caches": disks.caches,
        "nameless": disks.nameless,
        "looks": disks.looks,
        "told": told,
        "seconds": seconds,
        "rows": rows,
        "expected": plain(folder / "plain", LOAD, EPOCHS),
    }
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
