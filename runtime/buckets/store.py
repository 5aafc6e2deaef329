"""A directory of bucket files, with a small cache of open ones."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt

from runtime.buckets.file import BucketFile, Written, read, verify, write
from runtime.machine.cache import BoundedCache
from runtime.machine.memory import usable

_SWEEP_AFTER = 64


Identity = tuple[int, int, int]
"""(inode, length, time of the last change): equal while a name still means the same file."""

NO_FILE: Identity = (-1, -1, -1)


def _identity(path: str) -> Identity:
    try:
        status = os.stat(path)
    except OSError:
        return NO_FILE
    return (status.st_ino, status.st_size, status.st_mtime_ns)


class Opened(NamedTuple):
    identity: Identity
    file: BucketFile


class BucketStore:
    """A directory of bucket files with a small cache of open ones. Picklable: it travels as its path and platform.

    `platform`: whose files these are; a file of another one is damaged.

    An open file costs file handles and what readers derived from it, which is less than the file. So the cache is
    bounded in both, files (`cached`) and their bytes (`cached_bytes`, by default an eighth of the usable memory): state
    may be larger than memory, and then costs opening old buckets again.
    """

    def __init__(
        self, directory: Path, platform: str = "", cached: int = 4096, cached_bytes: int | None = None
    ) -> None:
        self.directory, self.platform = directory, platform
        self._prefix = f"{directory}{os.sep}"
        most = min(cached, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)  # a mapping holds its file open
        most_bytes = usable() // 8 if cached_bytes is None else cached_bytes
        self._open: BoundedCache[str, Opened] = BoundedCache(most, lambda opened: opened.file.nbytes, most_bytes)
        self._opened = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return _shared_store, (str(self.directory), self.platform)

    def write(self, name: str, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Written:
        size = write(self.directory / name, self.platform, meta, arrays, name)
        self._open.drop(name)  # a second attempt replaces the first one's file
        return Written(name, size)

    def open(self, name: str) -> BucketFile:
        """A cached file is used while the name still means the same file: one that was cut, changed or removed is
        noticed here, for the price of one system call."""
        now = _identity(f"{self._prefix}{name}")
        cached = self._open.get(name)
        if cached is not None and cached.identity == now:
            return cached.file
        file = read(self.directory / name, self.platform, name)
        self._open.put(name, Opened(now, file))
        self._opened += 1
        if self._opened > _SWEEP_AFTER + len(self._open) // 2:
            self._sweep()
        return file

    def _sweep(self) -> None:
        """Close files that were dropped meanwhile. A worker process is not told of that, and while it has them mapped
        they use space on the disk and file handles. Costs one system call per open file, each time half as many files
        as are open were opened anew."""
        self._opened = 0
        self._open.keep(lambda name: os.path.exists(f"{self._prefix}{name}"))

    def verify(self, name: str) -> None:
        verify(self.directory / name, self.platform, name)

    def forget(self, name: str) -> None:
        """Trust no copy of this file that is open; the file itself stays."""
        self._open.drop(name)

    def drop(self, name: str) -> None:
        self._open.drop(name)
        (self.directory / name).unlink(missing_ok=True)

    def let_go(self, gone: Sequence[object]) -> None:
        """There are no copies; files that are open are closed by `_sweep`."""

    def close(self) -> None:
        """The files stay; open ones may be used for as long as they are referenced."""
        self._open.clear()


_STORES: BoundedCache[tuple[str, str], BucketStore] = BoundedCache(16)


def _shared_store(directory: str, platform: str) -> BucketStore:
    """One store per directory and process, so that tasks of one worker share open files."""
    return _STORES.get_or_make((directory, platform), lambda: BucketStore(Path(directory), platform))
