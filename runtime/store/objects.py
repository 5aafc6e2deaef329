"""Objects by name: all that the platform asks of a store, and which store a URI means.

`put` makes an object appear whole or not at all. An object may be put again under its name, nothing else ever changes
one; names that are read are never put again with other bytes, except the few that say so (`owner`, `delivered`).

What does not answer is an outage (`STORE_UNAVAILABLE`): first tried again a few times (`Patient`), then waited out by
the epoch like a full disk. A put that failed may have happened all the same; callers must be able to put again, and
none may rely on its absence.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

from optimizer.errors import Unavailable

R = TypeVar("R")

ATTEMPTS = 4
PAUSE = 0.1
"""Seconds before the second attempt; each further one waits three times as long."""
ENOUGH = 5.0
"""Seconds after which there is no further attempt. S3's client has tried for six when it cannot connect."""


class Objects(Protocol):
    """Names are relative paths with forward slashes. May be used by several threads."""

    @property
    def uri(self) -> str: ...

    def put(self, name: str, data: Any, *, sync: bool = True) -> int:
        """Anything that is contiguous bytes; answers how many. `sync`: it survives a power failure when this returns;
        without, as much as a file that was written and not forced to disk."""
        ...

    def get(self, name: str) -> bytes | None:
        """None: there is no such object."""
        ...

    def read(self, name: str, offset: int, length: int) -> bytes:
        """A part of an object, less if it ends before; FileNotFoundError."""
        ...

    def delete(self, name: str) -> None:
        """Deleting an object that is not there is no error."""
        ...

    def delete_folder(self, name: str) -> None:
        """All objects below a name."""
        ...

    def list(self, folder: str = "") -> dict[str, int]:
        """Every object below the folder with its size."""
        ...

    def path(self, name: str) -> Path | None:
        """Where processes that see this store can map the object; None: only through `read`."""
        ...


class Patient:
    """Another store, each of whose operations is tried several times before it counts as an outage. One that says no,
    or is full, will say the same in a second."""

    def __init__(
        self,
        objects: Objects,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._objects, self._sleep, self._rng, self._clock = objects, sleep, rng or random.Random(), clock
        self.uri = objects.uri

    def put(self, name: str, data: Any, *, sync: bool = True) -> int:
        return self._try(lambda: self._objects.put(name, data, sync=sync))

    def get(self, name: str) -> bytes | None:
        return self._try(lambda: self._objects.get(name))

    def read(self, name: str, offset: int, length: int) -> bytes:
        return self._try(lambda: self._objects.read(name, offset, length))

    def delete(self, name: str) -> None:
        self._try(lambda: self._objects.delete(name))

    def delete_folder(self, name: str) -> None:
        self._try(lambda: self._objects.delete_folder(name))

    def list(self, folder: str = "") -> dict[str, int]:
        return self._try(lambda: self._objects.list(folder))

    def path(self, name: str) -> Path | None:
        return self._objects.path(name)

    def _try(self, act: Callable[[], R]) -> R:
        began = self._clock()
        for attempt in range(ATTEMPTS - 1):
            try:
                return act()
            except Unavailable as outage:
                if outage.reason != "STORE_UNAVAILABLE" or self._clock() - began > ENOUGH:
                    raise
                # Many tasks may have met the same outage: they must not all come back at the same moment.
                self._sleep(PAUSE * 3**attempt * self._rng.uniform(0.5, 1.5))
        return act()


KINDS: dict[str, Callable[[str], Objects]] = {}
"""Stores that pyarrow does not know, by the scheme of their URI."""


@cache
def objects_at(uri: str) -> Objects:
    """One connection per process."""
    from runtime.store.arrow import ArrowObjects

    if make := KINDS.get(uri.partition("://")[0]):
        return make(uri)
    found = ArrowObjects(uri)
    return found if found.path("") is not None else Patient(found)  # the system itself is patient with its disks


def below(uri: str, name: str) -> str:
    """The URI of a folder of a store, as a store of its own."""
    place, mark, options = uri.partition("?") if "://" in uri else (uri, "", "")
    return f"{place.rstrip('/')}/{name}{mark}{options}"


def has_key(uri: str) -> bool:
    """Are there credentials in the URI itself?"""
    return _CREDENTIALS.search(uri) is not None


_CREDENTIALS = re.compile(r"(?<=://)[^/?#]*@")


def shown(uri: str) -> str:
    """The URI as people may see it: without user, password and options. One for s3 can carry a key and its secret, and
    messages, logs and callers on other machines must not get them."""
    return _CREDENTIALS.sub("", uri).partition("?")[0] if "://" in uri else uri
