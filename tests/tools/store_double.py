"""A store in memory that offers what every store offers and nothing more, and that can be difficult.

    failing    this part of all operations fails; half of those that fail have happened all the same
    lagging    listing shows buckets and results as they were so many changes ago; the log and what sources keep are
               found by listing (runtime.store.claim), so of these it tells the truth
    slow       seconds that every operation takes

`Double.open()` gives it a URI, so that an engine can be told to use it.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from random import Random
from threading import Lock
from typing import Any

from optimizer.errors import Unavailable
from runtime.store.objects import KINDS, Objects, Patient

SCHEME = "double"
_OPEN: dict[str, Double] = {}
_NUMBER = itertools.count(1)


class Double:
    def __init__(self, seed: int = 0, *, failing: float = 0.0, lagging: int = 0, slow: float = 0.0) -> None:
        self.uri = f"{SCHEME}://{next(_NUMBER)}"
        self.objects: dict[str, bytes] = {}
        self.asked: Counter[str] = Counter()
        self.bytes_read = 0
        self.failing, self.lagging, self.slow = failing, lagging, slow
        self.away = False
        self._past: list[dict[str, int]] = []
        self._rng, self._lock = Random(seed), Lock()

    def open(self) -> str:
        """Its URI, from now on."""
        _OPEN[self.uri] = self
        KINDS[SCHEME] = _made
        return self.uri

    def put(self, name: str, data: Any, *, sync: bool = True) -> int:
        whole = bytes(data)
        self._act("put", lambda: self.objects.__setitem__(name, whole))
        return len(whole)

    def get(self, name: str) -> bytes | None:
        return self._act("get", lambda: self.objects.get(name))

    def read(self, name: str, offset: int, length: int) -> bytes:
        def part() -> bytes:
            if name not in self.objects:
                raise FileNotFoundError(name)
            data = self.objects[name][offset : offset + length]
            self.bytes_read += len(data)
            return data

        return self._act("read", part)

    def delete(self, name: str) -> None:
        self._act("delete", lambda: self.objects.pop(name, None))

    def delete_folder(self, name: str) -> None:
        def drop() -> None:
            for object in [n for n in self.objects if n.startswith(f"{name}/")]:
                del self.objects[object]

        self._act("delete_folder", drop)

    def list(self, folder: str = "") -> dict[str, int]:
        def names() -> dict[str, int]:
            old = self._past[-self.lagging] if self.lagging and len(self._past) >= self.lagging else None
            now = self._sizes()
            if old is not None:
                now = {n: s for n, s in now.items() if not _lags(n)} | {n: s for n, s in old.items() if _lags(n)}
            return {n: s for n, s in now.items() if not folder or n.startswith(f"{folder}/")}

        return self._act("list", names)

    def path(self, name: str) -> None:
        return None

    def _sizes(self) -> dict[str, int]:
        return {name: len(data) for name, data in self.objects.items()}

    def _act(self, what: str, act: Any) -> Any:
        with self._lock:
            self.asked[what] += 1
            if self.slow:
                time.sleep(self.slow)
            fails = self.away or self._rng.random() < self.failing
            if fails and (self.away or self._rng.random() < 0.5):
                raise Unavailable(f"{what} failed on purpose", reason="STORE_UNAVAILABLE")
            done = act()
            if self.lagging and what in ("put", "delete", "delete_folder"):
                self._past = [*self._past, self._sizes()][-self.lagging :]
            if fails:
                raise Unavailable(f"{what} failed on purpose, afterwards", reason="STORE_UNAVAILABLE")
            return done


def _lags(name: str) -> bool:
    return name.startswith(("buckets/", "results/"))


def _made(uri: str) -> Objects:
    return Patient(_OPEN[uri], sleep=lambda seconds: None, rng=Random(0))
