"""Buckets in two tiers: opened from the fast one, fetched from the durable one when they are not there.

With a bound on the fast tier, the cache of open buckets is bounded too, by an eighth of it per process: an open bucket
keeps its pages, also after its name is gone, and what readers decode of it is memory that the system cannot take back.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from optimizer.errors import InternalError
from runtime.buckets.file import BucketFile, read, verify
from runtime.buckets.store import NO_FILE, BucketStore, Opened
from runtime.durable.shelf import Shelf, tier_at
from runtime.exchange.by_value import ValueStore
from runtime.execution.executor import Broadcast

_ATTEMPTS = 3
_OPEN_SHARE = 8


class _Tiers(BucketStore):
    """What both kinds of stores have in common."""

    shelf: Shelf

    def open(self, name: str) -> BucketFile:
        cached = self._open.get(name)
        if cached is not None and not (self.directory / name).exists():
            return cached.file  # evicted meanwhile: buckets never change, so what is open is as good
        for _ in range(_ATTEMPTS):
            try:
                return super().open(name)
            except InternalError as e:
                if e.reason != "BUCKET_MISSING" or name not in self.shelf.places:
                    raise
                if not self.shelf.room_for(name):
                    break
                if not self.shelf.fetch(name):
                    raise
        return self._passed_by(name)

    def _passed_by(self, name: str) -> BucketFile:
        """There is no room for it, or others evict it as fast as it is fetched: mapped where it is, or from a file that
        has no name any more. Pages of a file can be taken back when memory is short, those of an array cannot."""
        tier, place = tier_at(self.shelf.uri), self.shelf.places[name].object
        path = tier.path(place)
        fetched = self.directory / f".{name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp" if path is None else None
        if fetched is not None and not tier.fetch(place, fetched):
            raise InternalError(f"bucket file {name} is missing in both tiers", reason="BUCKET_MISSING")
        try:
            found = read(path or fetched or self.directory / name)
        finally:
            if fetched is not None:
                fetched.unlink(missing_ok=True)
        self._open.put(name, Opened(NO_FILE, found))  # as soon as there is a file of that name, it is opened instead
        return found

    def _is_gone(self, name: str) -> bool:
        return name not in self.shelf.places and super()._is_gone(name)  # evicted is not gone

    def verify(self, name: str) -> None:
        if not (self.directory / name).exists():
            self.shelf.fetch(name)  # evicted is not missing
        super().verify(name)

    def refetch(self, name: str) -> bool:
        """Replace a damaged or missing file by its durable copy; False if there is none, or it is damaged as well."""
        self.forget(name)
        if not self.shelf.fetch(name):
            return False
        try:
            verify(self.directory / name)
        except InternalError:
            return False
        return True


class TieredStore(_Tiers):
    """A bucket store that finds more than its directory holds. Picklable: it travels as its shelf."""

    def __init__(self, shelf: Shelf) -> None:
        super().__init__(shelf.directory, cached_bytes=None if shelf.bound is None else shelf.bound // _OPEN_SHARE)
        self.shelf = shelf

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self.shelf,)


class TieredValueStore(_Tiers, ValueStore):
    """The same for the driver, when buckets travel by value. Executors hold what they were sent."""

    def __init__(self, shelf: Shelf, broadcast: Callable[[Sequence[bytes]], Broadcast]) -> None:
        ValueStore.__init__(self, shelf.directory, broadcast)
        self.shelf = shelf
        if shelf.bound is not None:
            self._open.most_weight = shelf.bound // _OPEN_SHARE

    def _bytes(self, name: str) -> bytes:
        if not (self.directory / name).exists():
            self.shelf.fetch(name)
        return super()._bytes(name)


_STORES: dict[str, TieredStore] = {}


def _arrived(shelf: Shelf) -> TieredStore:
    """One store per directory and process, with the places that the stage brought along."""
    store = _STORES.get(str(shelf.directory))
    if store is None or store.shelf.uri != shelf.uri:
        store = _STORES[str(shelf.directory)] = TieredStore(shelf)
    store.shelf = shelf
    return store
