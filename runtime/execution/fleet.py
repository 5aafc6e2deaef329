"""The machines that tasks run on, as far as the platform can see them and ask for others.

A local master, a cluster of a fixed size, and one whose size somebody else decides (Spark's dynamic allocation) are as
they are: `AsItIs`. Where the platform may choose the number of executors itself, another object does it
(runtime.spark.fleet).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from optimizer.policy.scaling import Machines


class Fleet(Protocol):
    def machines(self) -> Machines:
        """What is there now, and what there could be."""
        ...

    def want(self, cores: int) -> None:
        """So many cores are enough from now on; more, if there are fewer. Returns at once: machines take time to come,
        and what cannot be had does not come. Never fails."""
        ...


class AsItIs:
    def __init__(self, cores: Callable[[], int]) -> None:
        self._cores = cores

    def machines(self) -> Machines:
        return Machines(self._cores())

    def want(self, cores: int) -> None:
        return None
