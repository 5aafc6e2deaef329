"""What tasks asked of the store, executor by executor: they say so with their answers, and the driver adds it up.

The Python workers of an executor share the directory of its cache. A worker that dies takes what it counted since its
last answer with it; the figures are for people, nothing is decided by them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from runtime.api import Traffic
from runtime.store.cache import Cache, Figures, task_directory

_caches: dict[int, Cache] = {}


def task_cache(bound: int) -> Cache:
    """The cache of a process that runs tasks."""
    if bound not in _caches:
        _caches[bound] = Cache(task_directory(), bound)
    return _caches[bound]


class Meter:
    """What this process asks of the store from now on."""

    def __init__(self) -> None:
        self._before = {bound: replace(cache.figures) for bound, cache in _caches.items()}

    def read(self) -> tuple[Traffic, ...]:
        return tuple(self._since(cache, self._before.get(bound, Figures())) for bound, cache in _caches.items())

    def _since(self, cache: Cache, before: Figures) -> Traffic:
        now = cache.figures
        return Traffic(
            str(cache.directory),
            now.requests - before.requests,
            now.fetched_bytes - before.fetched_bytes,
            now.hit_bytes - before.hit_bytes,
            sum(cache.held().values()),
        )


class Totals:
    """The sums per executor, since this process began. May be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[str, Traffic] = {}

    def add(self, executor: str, told: Iterable[Traffic]) -> None:
        with self._lock:
            for new in told:
                old = self._sums.get(executor)
                self._sums[executor] = new if old is None else _sum(old, new)

    def drop(self, executor: str) -> None:
        with self._lock:
            self._sums.pop(executor, None)

    def read(self) -> dict[str, Traffic]:
        with self._lock:
            return dict(self._sums)


def _sum(old: Traffic, new: Traffic) -> Traffic:
    return Traffic(
        new.cache,
        old.requests + new.requests,
        old.fetched_bytes + new.fetched_bytes,
        old.hit_bytes + new.hit_bytes,
        new.held_bytes,
    )
