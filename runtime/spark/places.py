"""Partitions go back to the executor that had them, because its cache of the store is warm.

Spark has no public way to say on which executor a task should run, but it prefers the one that holds the cached block
of what the task reads. So a tiny cached RDD, one block per task of a stage, is the memory of where things were: a job
whose data is zipped with it has its preferences. `spark.locality.wait` is 0, so nobody waits for the preferred
executor when it is busy and another one is free; the task then fetches what it needs. A lost executor takes its blocks
with it, and Spark makes them anew somewhere else; the others keep their places. When there are more cores than before,
all places are given out anew, or those that came would stay without.

On a local master there is one executor, and nothing to prefer.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

MOST = 8
"""Different numbers of tasks that are remembered."""


class Placed(NamedTuple):
    """The RDD, and how many cores there were when it was last used."""

    blocks: Any
    cores: int


class Places:
    """May be used by several threads: stages of two epochs run side by side."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._placed: dict[int, Placed] = {}

    def of(self, pieces: list[bytes], cores: int) -> Any:
        """An RDD of these pieces, one per partition, for so many `cores`."""
        data = self._context.parallelize(pieces, len(pieces))
        return self._remembered(len(pieces), cores).zip(data).values()

    def _remembered(self, count: int, cores: int) -> Any:
        with self._lock:
            before = self._placed.pop(count, None)
            if before is not None and cores <= before.cores:
                blocks = before.blocks
            else:
                blocks = self._context.parallelize([b""] * count, count).cache()
                blocks.count()  # each where it is free now
                if before is not None:
                    before.blocks.unpersist()
            self._placed[count] = Placed(blocks, cores)
            if len(self._placed) > MOST:
                self._placed.pop(next(iter(self._placed))).blocks.unpersist()
            return blocks
