"""One folder of the fast tier, and where its files are in the durable one.

What is *stored* has a committed copy in the durable tier; the local file is then only a cache of it: it may be missing,
it may be deleted at any time, and `fetch` brings it back under its name. Files that are not stored (a running epoch's)
exist here only and are never touched.

`bound` is how many bytes the folder may hold. Over it, the oldest stored files go first, and what is fetched does
not push out newer ones (`room_for`): without room, a reader maps the file without storing it here
(runtime.durable.bucket_store). A join looks at all old buckets in turn, each once per task; so the newest stay here,
and the older ones are read from the durable tier. (Keeping the most recently used ones would evict every bucket just
before it is needed again.) Processes do this independently: one that finds the folder too full makes room, and one that
finds a file gone fetches it. A file that is mapped stays readable after it is deleted.

It travels to tasks as a value: URI, directory, bound and objects.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from runtime.durable.tier import DurableTier


class StoredObject(NamedTuple):
    """A file's committed copy in the durable tier."""

    name: str
    size: int


@cache
def tier_at(uri: str) -> DurableTier:
    """One connection per process."""
    return DurableTier(uri)


class CachedFolder:
    """`objects`, oldest first, is replaced and never changed: stages are packed on another thread."""

    def __init__(self, uri: str, directory: Path, bound: int | None, objects: Mapping[str, StoredObject]) -> None:
        self.uri, self.directory, self.bound, self.objects = uri, directory, bound, objects

    def __reduce__(self) -> tuple[Callable[..., CachedFolder], tuple[object, ...]]:
        return CachedFolder, (self.uri, self.directory, self.bound, self.objects)

    def hold(self, placed: Mapping[str, StoredObject]) -> None:
        self.objects = {**self.objects, **placed}

    def release(self, names: Iterable[str]) -> list[str]:
        """These files are not needed any more; answers what to delete in the durable tier."""
        gone = {name: self.objects[name] for name in names if name in self.objects}
        if gone:
            self.objects = {name: stored for name, stored in self.objects.items() if name not in gone}
        return [stored.name for stored in gone.values()]

    def fetch(self, name: str) -> bool:
        """False: the durable tier does not have it."""
        stored = self.objects.get(name)
        if stored is None or not tier_at(self.uri).fetch(stored.name, self.directory / name):
            return False
        self.make_room(spare=name)
        return True

    def read(self, name: str, offset: int, length: int) -> bytes:
        """A part of a file, from the durable tier; FileNotFoundError when that does not have it."""
        stored = self.objects.get(name)
        if stored is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.directory / name))
        return tier_at(self.uri).read(stored.name, offset, length)

    def room_for(self, name: str) -> bool:
        """Is there room for this file, or would there be without older ones?"""
        if self.bound is None or name not in self.objects:
            return True
        local = self.local()
        over = sum(local.values()) + self.objects[name].size - self.bound
        for older in self.objects:
            if over <= 0 or older == name:
                break
            over -= local.get(older, 0)
        return over <= 0

    def make_room(self, spare: str | None = None) -> None:
        if self.bound is None:
            return
        local = self.local()
        over = sum(local.values()) - self.bound
        for name in self.objects:
            if over <= 0:
                return
            if name in local and name != spare:
                (self.directory / name).unlink(missing_ok=True)
                over -= local[name]

    def local(self) -> dict[str, int]:
        """Files that are here, with their sizes."""
        sizes: dict[str, int] = {}
        try:
            with os.scandir(self.directory) as entries:
                for entry in entries:
                    try:
                        sizes[entry.name] = entry.stat().st_size
                    except FileNotFoundError:
                        continue  # another process made room
        except FileNotFoundError:
            return {}
        return sizes
