"""Partitions go back to the executor that had them, because its cache of the store is warm.

Spark has no public way to say on which executor a task should run, but it prefers the one that holds the cached block
of what the task reads. So a tiny cached RDD, one block per task of a stage, is the memory of where things were: a job
whose data is zipped with it has its preferences. `spark.locality.wait` is 0, so nobody waits for the preferred
executor when it is busy and another one is free; the task then fetches what it needs. A lost executor takes its blocks
with it, and Spark makes them anew somewhere else.

On a local master there is one executor, and nothing to prefer.
"""

from __future__ import annotations

import threading
from typing import Any

MOST = 8
"""Different numbers of tasks and cores that are remembered."""


class Places:
    """May be used by several threads: stages of two epochs run side by side."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._blocks: dict[tuple[int, int], Any] = {}

    def of(self, pieces: list[bytes], cores: int) -> Any:
        """An RDD of these pieces, one per partition. With other `cores` than before, places are given out anew."""
        data = self._context.parallelize(pieces, len(pieces))
        return self._remembered(len(pieces), cores).zip(data).values()

    def _remembered(self, count: int, cores: int) -> Any:
        with self._lock:
            blocks = self._blocks.pop((count, cores), None)
            if blocks is None:
                blocks = self._context.parallelize([b""] * count, count).cache()
                blocks.count()  # each where it is free now
            self._blocks[count, cores] = blocks
            if len(self._blocks) > MOST:
                self._blocks.pop(next(iter(self._blocks))).unpersist()
            return blocks
