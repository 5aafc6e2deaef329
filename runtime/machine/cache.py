"""What a process keeps for later tasks, in bounded memory: the least recently used goes first.

Workers live for many stages and do not know what will be asked again, so everything they keep (open buckets,
compiled selections, specifications that travelled once) is kept here, with a bound. Losing an entry costs making it
again and nothing else; a removed value stays alive while it is in use.

Safe to use from several threads: stages of two epochs may run side by side in one process.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """At most `most` values. With `weigh`, their weights sum up to at most `most_weight`, or there is only one."""

    def __init__(self, most: int, weigh: Callable[[V], int] | None = None, most_weight: int = 0) -> None:
        self.most, self.most_weight = most, most_weight
        self._weigh = weigh
        self._values: OrderedDict[K, V] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> V:
        with self._lock:
            self._remove(key)
            self._values[key] = value
            self._weight += self._weigh(value) if self._weigh is not None else 0
            while len(self._values) > self.most or (self._weight > self.most_weight and len(self._values) > 1):
                self._remove(next(iter(self._values)))
        return value

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """Two threads may both make it; it is the same value."""
        value = self.get(key)
        return self.put(key, make()) if value is None else value

    def drop(self, key: K) -> None:
        with self._lock:
            self._remove(key)

    def keep(self, wanted: Callable[[K], bool]) -> None:
        """Remove everything else."""
        with self._lock:
            keys = list(self._values)
        for key in keys:
            if not wanted(key):
                self.drop(key)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self._weight = 0

    def __len__(self) -> int:
        return len(self._values)

    def _remove(self, key: K) -> None:
        value = self._values.pop(key, None)
        if value is not None and self._weigh is not None:
            self._weight -= self._weigh(value)
