"""Local copies of parts of objects: a directory of sparse files, bounded, shared by the processes of a machine.

The file of an object has the object's full length, and behind it one byte per piece (a chunk of a bucket): 1 if it is
there. Pieces that were not fetched are holes, which take no room. So the file is mapped like any other, offsets mean
what they mean in the object, and the same bytes are fetched once per machine.

- A piece is marked only after its bytes are written, so a process may die at any moment. Two processes that fetch the
  same piece write the same bytes.
- The marks are not forced to disk and not believed after a restart: the owner of the directory begins with an empty
  one. That a piece is what was written, every process checks for itself when it first looks (runtime.buckets.checked);
  what is wrong is fetched once more, so a rotten cache heals by itself.
- Over the bound, files of the oldest runs go first. A join looks at all old buckets in turn, each once per task; so the
  newest stay here, and older ones are fetched again. (Keeping the most recently used ones would evict every bucket just
  before it is needed again.) A file that is mapped stays readable after it is gone from the directory.

Pieces that are near each other are fetched with one request, distant ones at the same time.
"""

from __future__ import annotations

import atexit
import mmap
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from runtime.buckets.checked import Span
from runtime.buckets.runs import run_of
from runtime.store.objects import Objects

THREADS = 8
MOST_AT_ONCE = 16 << 20
"""Bytes of one request."""
NEAR = 2
"""So many pieces between two others are fetched along, because a request costs more than they do."""
LOOKED_AFTER = 16
"""A process looks whether the directory is over its bound after it has brought this part of the bound."""

Age = tuple[str, int]


@dataclass(slots=True)
class Figures:
    """What this process asked of the store so far; what was here already is in `hit_bytes`."""

    requests: int = 0
    fetched_bytes: int = 0
    hit_bytes: int = 0


class Cache:
    """`bound`: most bytes; 0: half of what is free on the disk. May be used by several threads."""

    def __init__(self, directory: Path, bound: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.bound = bound or shutil.disk_usage(directory).free // 2
        self.figures = Figures()
        self._brought = 0
        self._lock = threading.Lock()

    def whole(self, object: str, data: bytes | memoryview, pieces: int) -> None:
        """Keep an object that this process has just written."""
        at = self._path(object)
        temporary = at.with_name(f".{uuid.uuid4().hex[:12]}.tmp")
        with open(temporary, "wb") as out:
            out.write(data)
            out.write(b"\1" * pieces)
        os.replace(temporary, at)
        self.brought(len(data), requests=0)

    def open(self, object: str) -> int | None:
        """A file handle; None: there is no such file."""
        try:
            return os.open(self._path(object), os.O_RDWR)
        except FileNotFoundError:
            return None

    def create(self, object: str, start: bytes, size: int, pieces: int, here: int = 0) -> int:
        """A file that begins like this, which includes the first pieces (`here`); a handle of it."""
        temporary = self.directory / f".{uuid.uuid4().hex[:12]}.tmp"
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.truncate(handle, size + pieces)
        os.pwrite(handle, start, 0)
        if here:
            os.pwrite(handle, b"\1" * here, size)
        os.replace(temporary, self._path(object))
        return handle

    def drop(self, object: str) -> None:
        self._path(object).unlink(missing_ok=True)

    def brought(self, count: int, requests: int = 1) -> None:
        """So many bytes are here that were not; others may have to go."""
        with self._lock:
            self.figures.requests += requests
            self.figures.fetched_bytes += count if requests else 0
            self._brought += count
            due = self._brought >= self.bound // LOOKED_AFTER
            if due:
                self._brought = 0
        if due:
            self._make_room()

    def hit(self, count: int) -> None:
        self.figures.hit_bytes += count

    def _make_room(self) -> None:
        held = self.held()
        over = sum(held.values()) - self.bound
        for name in sorted(held, key=_age):
            if over <= 0:
                return
            (self.directory / name).unlink(missing_ok=True)
            over -= held[name]

    def held(self) -> dict[str, int]:
        """Files with the room they take."""
        sizes: dict[str, int] = {}
        try:
            with os.scandir(self.directory) as entries:
                for entry in entries:
                    try:
                        sizes[entry.name] = entry.stat().st_blocks * 512
                    except FileNotFoundError:
                        continue  # another process made room
        except FileNotFoundError:
            return {}
        return sizes

    def clear(self) -> None:
        """Remove all files of a cache."""
        for name in self.held():
            if name.startswith(("buckets~", "results~")) or name.endswith(".tmp"):
                (self.directory / name).unlink(missing_ok=True)

    def _path(self, object: str) -> Path:
        return self.directory / object.replace("/", "~")


def _age(name: str) -> Age:
    """Terms and runs count upwards. What does not say its run is the oldest."""
    run = run_of("/".join(name.split("~")[1:]))
    return (run.term, run.number) if run is not None else ("", 0)


class CachedObject:
    """The bytes of an object in a cache file: what `Chunks` brings them from. `base`: where its first piece of
    `piece` bytes begins."""

    whole = False

    def __init__(
        self, objects: Objects, name: str, cache: Cache, handle: int, base: int, size: int, piece: int
    ) -> None:
        self._objects, self._name, self._cache = objects, name, cache
        self._handle, self._base, self._size, self._piece = handle, base, size, piece
        mapped = mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
        mapped.madvise(mmap.MADV_RANDOM)
        self._mapped = mapped
        self.data = memoryview(mapped)

    def __del__(self) -> None:
        os.close(self._handle)

    def bring(self, spans: Sequence[Span]) -> None:
        missing: list[Span] = []
        for at, length in spans:
            for piece in _cut(at, length, self._piece):
                if self._is_here(piece[0]):
                    self._cache.hit(piece[1])
                elif missing and piece[0] - sum(missing[-1]) <= NEAR * self._piece and missing[-1][1] < MOST_AT_ONCE:
                    missing[-1] = (missing[-1][0], sum(piece) - missing[-1][0])
                else:
                    missing.append(piece)
        if len(missing) == 1:
            self._fetch(missing[0])
        elif missing:
            for _ in _threads().map(self._fetch, missing):
                pass

    def again(self, span: Span) -> bool:
        self._fetch(span)
        return True

    def _fetch(self, span: Span) -> None:
        at, length = span
        data = self._objects.read(self._name, at, length)
        os.pwrite(self._handle, data, at)
        first = (at - self._base) // self._piece
        pieces = -(-len(data) // self._piece)
        if len(data) == length:  # else it is too short, which its checksum will tell
            os.pwrite(self._handle, b"\1" * pieces, self._size + first)
        self._cache.brought(len(data))

    def _is_here(self, at: int) -> bool:
        return self.data[self._size + (at - self._base) // self._piece] == 1


def _cut(at: int, length: int, most: int) -> list[Span]:
    return [(start, min(most, at + length - start)) for start in range(at, at + length, most)]


@cache
def _threads() -> ThreadPoolExecutor:
    """One pool per process; fetching waits, it does not compute."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="ajoin-fetch")


def task_directory(name: str = "ajoin-cache") -> Path:
    """Where a process that runs tasks keeps its cache, or something else: with what Spark keeps on that machine, and
    deletes with the executor; else in a folder of its own."""
    spark = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    return Path(spark) / name if spark and Path(spark).is_dir() else _temporary(name)


def _temporary(name: str) -> Path:
    folder = tempfile.mkdtemp(prefix=f"{name}-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
