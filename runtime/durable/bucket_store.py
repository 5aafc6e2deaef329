"""Buckets in two tiers: opened from the fast one, fetched from the durable one when they are not there.

With a bound on the fast tier, the cache of open buckets is bounded too, by an eighth of it per process: an open bucket
keeps its pages, also after its name is gone, and what readers decode of it is memory that the system cannot take back.
"""

from __future__ import annotations

import os
import uuid
from typing import Any

from optimizer.errors import InternalError
from runtime.buckets.file import BucketFile, read, verify
from runtime.buckets.store import NO_FILE, BucketStore, Opened
from runtime.durable.cached_folder import CachedFolder, tier_at
from runtime.machine.cache import BoundedCache

_ATTEMPTS = 3
_OPEN_SHARE = 8


class TieredStore(BucketStore):
    """A bucket store that finds more than its directory holds. Picklable: it travels as its folder and platform."""

    def __init__(self, folder: CachedFolder, platform: str) -> None:
        bound = None if folder.bound is None else folder.bound // _OPEN_SHARE
        super().__init__(folder.directory, platform, cached_bytes=bound)
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self.folder, self.platform)

    def open(self, name: str) -> BucketFile:
        cached = self._open.get(name)
        if cached is not None and not (self.directory / name).exists():
            return cached.file  # evicted meanwhile: buckets never change, so the open file is still right
        for _ in range(_ATTEMPTS):
            try:
                return super().open(name)
            except InternalError as e:
                if e.reason != "BUCKET_MISSING" or name not in self.folder.objects:
                    raise
                if not self.folder.room_for(name):
                    break
                if not self.folder.fetch(name):
                    raise
        return self._open_uncached(name)

    def _open_uncached(self, name: str) -> BucketFile:
        """For a bucket that has no room in the fast tier, or is evicted as fast as it is fetched: mapped in the durable
        tier if that is a path, else from a fetched file that is unlinked at once. (Not read into an array: pages of a
        file can be taken back when memory is short, those of an array cannot.)"""
        tier, object = tier_at(self.folder.uri), self.folder.objects[name].name
        path = tier.path(object)
        fetched = self.directory / f".{name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp" if path is None else None
        if fetched is not None and not tier.fetch(object, fetched):
            raise InternalError(f"bucket file {name} is missing in both tiers", reason="BUCKET_MISSING")
        try:
            opened = read(path or fetched or self.directory / name, self.platform, name)
        finally:
            if fetched is not None:
                fetched.unlink(missing_ok=True)
        self._open.put(name, Opened(NO_FILE, opened))  # as soon as there is a file of that name, it is opened instead
        return opened

    def _is_gone(self, name: str) -> bool:
        return name not in self.folder.objects and super()._is_gone(name)  # an evicted one is in the durable tier

    def verify(self, name: str) -> None:
        self._bring(name)
        super().verify(name)

    def refetch(self, name: str) -> bool:
        """Replace a damaged or missing file by its durable copy; False if there is none, or it is damaged as well."""
        self.forget(name)
        if not self.folder.fetch(name):
            return False
        try:
            verify(self.directory / name, self.platform)
        except InternalError:
            return False
        return True

    def bytes_of(self, name: str) -> bytes:
        self._bring(name)
        return super().bytes_of(name)

    def _bring(self, name: str) -> None:
        """Fetch the file if it was evicted from the fast tier."""
        if not (self.directory / name).exists():
            self.folder.fetch(name)


_STORES: BoundedCache[str, TieredStore] = BoundedCache(16)


def _arrived(folder: CachedFolder, platform: str) -> TieredStore:
    """One store per directory and process, with the objects that the stage brought along."""
    store = _STORES.get(str(folder.directory))
    if store is None or (store.folder.uri, store.platform) != (folder.uri, platform):
        store = _STORES.put(str(folder.directory), TieredStore(folder, platform))
    store.folder = folder
    return store
