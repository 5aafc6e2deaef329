"""A directory of bucket files, with a small cache of open ones."""

from __future__ import annotations

import os
import resource
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from runtime.buckets.file import BucketFile, read, unreadable, verify, write
from runtime.machine.memory import usable

_SWEEP_AFTER = 64

_Identity = tuple[int, int, int]


def _identity(path: str) -> _Identity:
    """(inode, length, time of the last change); what cannot be found is identical to nothing that can."""
    try:
        found = os.stat(path)
    except OSError:
        return (-1, -1, -1)
    return (found.st_ino, found.st_size, found.st_mtime_ns)


class BucketStore:
    """A directory of bucket files with a small cache of open ones. Picklable: it travels as its path.

    An open file costs file handles and what readers derived from it, which is less than the file. So the cache is
    bounded in both, files (`cached`) and their bytes (`cached_bytes`, by default an eighth of the usable memory): state
    may be larger than memory, and then costs opening old buckets again.
    """

    def __init__(self, directory: Path, cached: int = 4096, cached_bytes: int | None = None) -> None:
        self.directory = directory
        self._prefix = f"{directory}{os.sep}"
        self._limit = min(cached, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)  # a mapping holds its file open
        self._most = usable() // 8 if cached_bytes is None else cached_bytes
        self._opened = self._held = 0
        self._open: OrderedDict[str, tuple[_Identity, BucketFile]] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        return _shared_store, (str(self.directory),)

    def write(self, name: str, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> int:
        size = write(self.directory / name, meta, arrays)
        self._let_go(name)  # a second attempt replaces the first one's file
        return size

    def open(self, name: str) -> BucketFile:
        """A cached file is used while the name still means the same file: if somebody cut, changed or removed it, or
        it was fetched again, that is noticed here, for the price of one system call."""
        now = _identity(f"{self._prefix}{name}")
        cached = self._open.get(name)
        if cached is not None and cached[0] == now:
            self._open.move_to_end(name)
            return cached[1]
        found = read(self.directory / name)
        self._keep(name, now, found)
        self._opened += 1
        if self._opened > _SWEEP_AFTER + len(self._open) // 2:
            self._sweep()
        return found

    def _keep(self, name: str, identity: _Identity, file: BucketFile) -> None:
        self._let_go(name)
        self._open[name] = (identity, file)
        self._held += file.nbytes
        while len(self._open) > self._limit or (self._held > self._most and len(self._open) > 1):
            self._let_go(next(iter(self._open)))

    def _let_go(self, name: str) -> None:
        """Of the cache's copy; whoever still uses it keeps it alive."""
        found = self._open.pop(name, None)
        if found is not None:
            self._held -= found[1].nbytes

    def _sweep(self) -> None:
        """Let go of files that were dropped meanwhile. Nobody tells a worker process, and as long as it has them mapped
        they use room on the disk and file handles. Costs one look per open file for every half of them that is new."""
        self._opened = 0
        for name in [n for n in self._open if self._is_gone(n)]:
            self._let_go(name)

    def _is_gone(self, name: str) -> bool:
        return not os.path.exists(f"{self._prefix}{name}")

    def verify(self, name: str) -> None:
        verify(self.directory / name)

    def refetch(self, name: str) -> bool:
        """Bring a damaged or missing file back from somewhere else; here there is no such place."""
        return False

    def forget(self, name: str) -> None:
        """Trust no copy of this file that is open; the file itself stays."""
        self._let_go(name)

    def bytes_of(self, name: str) -> bytes:
        """The whole file, to be sent somewhere."""
        try:
            return (self.directory / name).read_bytes()
        except OSError as e:
            raise unreadable(name, e) from e

    def drop(self, name: str) -> None:
        self._let_go(name)
        (self.directory / name).unlink(missing_ok=True)

    def close(self) -> None:
        """The files stay; open ones may be used as long as somebody holds them."""
        self._open.clear()
        self._held = 0


_STORES: dict[str, BucketStore] = {}


def _shared_store(directory: str) -> BucketStore:
    """One store per directory and process, so that tasks of one worker share open files."""
    store = _STORES.get(directory)
    if store is None:
        store = _STORES[directory] = BucketStore(Path(directory))
    return store
