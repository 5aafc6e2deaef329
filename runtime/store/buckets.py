"""Buckets as objects of a store that cannot be mapped in place: written with one request, read by parts.

Opening reads the header with one request of `FIRST` bytes; small buckets come whole with it. Arrays come when they are
first looked at, chunk by chunk, through the cache of the machine (runtime.store.cache).

Where all tasks share one cache, what a task writes it also leaves there, because the next stage reads it. With several
executors it does not: each of n reads an nth of every bucket, the part of its partitions, so the cache of the writer
would fill with what only others need.

Objects never change, so what is open stays right. A store that is a path needs none of this: there a plain
`BucketStore` maps the files where they are.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Mapping, Sequence
from functools import cache as once
from typing import Any

import numpy.typing as npt

from optimizer.errors import InternalError
from runtime.buckets.file import BucketFile, Header, Written, pack, read_header, verify_bytes
from runtime.buckets.runs import Gone
from runtime.crashpoints import reach
from runtime.machine.cache import BoundedCache
from runtime.machine.memory import usable
from runtime.store.cache import Cache, CachedObject
from runtime.store.objects import Objects, objects_at
from runtime.store.traffic import task_cache

FOLDER = "buckets"
FIRST = 1 << 13
ROOM = 64
"""More than what lies between the end of a header and the first array."""
KEPT_OPEN = 4096


class ObjectBuckets:
    """Travels as the URI of the store, the platform and the bound of the cache; every process has a cache directory of
    its own machine. `keeps`: what is written stays in the cache."""

    def __init__(self, uri: str, platform: str, cache: Cache, bound: int, keeps: bool = True) -> None:
        self.platform, self.cache = platform, cache
        self._uri, self._bound, self._keeps = uri, bound, keeps
        self._objects: Objects = objects_at(uri)
        self._let_go = 0
        most = min(KEPT_OPEN, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)  # a handle, and one of the mapping
        weight = min(usable(), cache.bound) // 8  # an open bucket keeps its room, also when its file has gone
        self._open: BoundedCache[str, BucketFile] = BoundedCache(most, lambda file: file.nbytes, weight)

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self._uri, self.platform, self._bound, self._keeps)

    def open(self, name: str) -> BucketFile:
        file = self._open.get(name)
        return self._open.put(name, self._opened(name)) if file is None else file

    def _opened(self, name: str) -> BucketFile:
        object = f"{FOLDER}/{name}"
        handle = self.cache.open(object)
        if handle is not None:
            found = handle
            try:
                header = read_header(name, self.platform, None, lambda at, length: os.pread(found, length, at))
                return self._file(header, object, handle)
            except InternalError:
                os.close(handle)  # a rotten copy: it is fetched once more
        start = self._read(name, 0, FIRST)

        def take(at: int, length: int) -> bytes:
            nonlocal start
            more = at + length - len(start)
            if more > 0:
                start += self._read(name, len(start), more + ROOM)
            return start[at : at + length]

        header = read_header(name, self.platform, None, take)
        begin = start[: header.size]
        self.cache.brought(len(begin))
        pieces = len(header.sums)
        here = pieces if len(begin) == header.size else (len(begin) - header.base) // header.chunk
        handle = self.cache.create(object, begin, header.size, pieces, here)
        return self._file(header, object, handle)

    def _from(self, name: str, start: bytes) -> Callable[[int, int], bytes]:
        """Parts of an object whose beginning is known."""

        def take(at: int, length: int) -> bytes:
            return start[at : at + length] if at + length <= len(start) else self._read(name, at, length)

        return take

    def _file(self, header: Header, object: str, handle: int) -> BucketFile:
        cached = CachedObject(self._objects, object, self.cache, handle, header.base, header.size, header.chunk)
        return header.file(cached.data, cached)

    def write(self, name: str, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Written:
        data = pack(name, self.platform, meta, arrays)
        object = f"{FOLDER}/{name}"
        reach("bucket.written")
        self._objects.put(object, data, sync=False)
        reach("bucket.renamed")
        if self._keeps:
            header = read_header(name, self.platform, len(data), lambda at, length: data[at : at + length])
            self.cache.whole(object, data, len(header.sums))
        self._open.drop(name)
        return Written(name, len(data))

    def verify(self, name: str) -> None:
        """In the store: copies of it are checked wherever they are used."""
        verify_bytes(name, self.platform, None, self._from(name, self._read(name, 0, FIRST)))

    def forget(self, name: str) -> None:
        self._open.drop(name)
        self.cache.drop(f"{FOLDER}/{name}")

    def let_go(self, gone: Sequence[Gone]) -> None:
        """Each process looks at each number once. Whoever comes late removes nothing."""
        for dropped in gone:
            if dropped.number > self._let_go:
                self._let_go = dropped.number
                for name in dropped.value:
                    self.forget(name)

    def close(self) -> None:
        self._open.clear()

    def _read(self, name: str, at: int, length: int) -> bytes:
        try:
            return self._objects.read(f"{FOLDER}/{name}", at, length)
        except FileNotFoundError as e:
            raise InternalError(f"bucket file {name} is missing in the store", reason="BUCKET_MISSING") from e


@once
def _arrived(uri: str, platform: str, bound: int, keeps: bool) -> ObjectBuckets:
    """One per process, so that its tasks share what is open."""
    return ObjectBuckets(uri, platform, task_cache(bound), bound, keeps)
