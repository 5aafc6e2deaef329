"""Which executors there are, and what their tasks say of themselves.

Spark knows who is there: it tells the id, the host and the cores of each executor, also of one that has not run a task
yet, and forgets who has left. The tasks know what they asked of the store. Both meet in the executor's id, which a
Python worker finds on the command line of the JVM above it: that is how Spark's masters of all kinds start an executor.
On a local master the executor is the driver.

The sums of an executor that has left are dropped with the next look, so that they do not grow while executors come and
go. All figures are for people; nothing is decided by them.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache as once
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from runtime.api import ExecutorStatus, Traffic
from runtime.store.traffic import Totals

DRIVER = "driver"
"""Spark's name for the one executor of a local master."""
NOTHING = Traffic("", 0, 0, 0, 0)
_OPTION = b"--executor-id"


class Present(NamedTuple):
    """An executor that Spark can use."""

    id: str
    host: str
    cores: int


class Executors:
    """Of one Spark context. May be used by several threads: stages of two epochs run side by side."""

    def __init__(self, context: Any) -> None:
        self._known = context._jsc.sc().statusStore()
        self._lock = threading.Lock()
        self._totals = Totals()
        self._partitions: dict[int, frozenset[str]] = {}
        self._seen: set[str] = set()

    def told(self, id: str, traffic: Iterable[Traffic]) -> None:
        """What a task on this executor asked of the store."""
        self._totals.add(id, traffic)

    def worked(self, executors: Mapping[int, Iterable[str]]) -> None:
        """Which ones worked on these partitions, in the last stage that did; several, if a partition is split."""
        with self._lock:
            self._partitions |= {partition: frozenset(ids) for partition, ids in executors.items()}

    def read(self, partitions: int) -> tuple[ExecutorStatus, ...]:
        """Those that are there. `partitions`: how many there are now; of others nothing is said."""
        there = self.present()
        with self._lock:
            now = {p.id for p in there}
            for id in self._seen - now:
                self._totals.drop(id)
            self._seen = now
            held: dict[str, list[int]] = defaultdict(list)
            for partition, ids in sorted(self._partitions.items()):
                if partition < partitions:
                    for id in ids:
                        held[id].append(partition)
        sums = self._totals.read()
        return tuple(
            ExecutorStatus(*p, tuple(held[p.id]), **sums.get(p.id, NOTHING)._asdict())  # fields of the same names
            for p in there
        )

    def present(self) -> list[Present]:
        """None once Spark has ended."""
        try:
            known = self._known.executorList(True)
            each = [known.apply(i) for i in range(known.length())]
            found = [Present(e.id(), e.hostPort().rpartition(":")[0], e.totalCores()) for e in each]
        except Py4JError:
            return []
        working = [p for p in found if p.cores]  # on a cluster the driver is among them, with none
        return sorted(working, key=lambda p: (len(p.id), p.id))


@once
def own_id() -> str:
    """Of the executor that this process works for."""
    pid = os.getpid()
    try:
        while pid > 1:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if _OPTION in words:
                return words[words.index(_OPTION) + 1].decode()
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        pass  # no Linux, or not ours to read: the figures go to nobody
    return DRIVER
