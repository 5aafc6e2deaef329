"""One file per bucket: a JSON header and 64-byte aligned arrays, opened by memory-mapping.

    magic (8) | header length (8) | checksum (8) | header JSON | padding | array | padding | array | ...

All Python workers of a node share the pages; opening copies and parses nothing but the header. A file is written
under a temporary name and renamed into place, so it exists completely or not at all, and a second attempt of the same
task writes the same thing again. Files are never changed, so anything opened stays valid, even after the name is
deleted. The same bytes can also travel (`pack`, `parse`): see runtime.exchange.by_value.

A file that is not what its writer wrote is never used: the checksum in front covers length and header, the header has
one per array, which is checked when the array is first looked at (runtime.buckets.checked), and the file must be
exactly as long as its header says. Only the padding may change unnoticed; nobody reads it. What is wrong is raised as
BUCKET_MISSING or BUCKET_DAMAGED with the file's name, and runtime.engine.repair takes it from there.
"""

from __future__ import annotations

import io
import json
import mmap
import os
import resource
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt
import xxhash

from optimizer.errors import InternalError
from runtime.buckets.checked import Checked, Placed, checksum, damaged
from runtime.crashpoints import reach
from runtime.machine.memory import usable

MAGIC = b"AJBUCK02"
_PREFIX = 24
_ALIGN = 64
_CHUNK = 1 << 20
_SWEEP_AFTER = 64


class BucketFile:
    """`meta` is what the writer said; `arrays` are views into the mapping; `derived` is room for what a reader made of
    them and wants to find again while the file stays open."""

    __slots__ = ("arrays", "derived", "meta", "name")

    def __init__(self, name: str, meta: Mapping[str, Any], arrays: Checked) -> None:
        self.name = name
        self.meta = meta
        self.arrays = arrays
        self.derived: dict[str, Any] = {}

    @property
    def nbytes(self) -> int:
        return self.arrays.nbytes


class Buckets(Protocol):
    """All that a task knows of buckets: open one by name, write one. Where the bytes are is the store's business."""

    def open(self, name: str) -> BucketFile: ...

    def write(self, name: str, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> int: ...


def pack(meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """What `write` would put into a file."""
    out = io.BytesIO()
    _lay_out(out, meta, arrays)
    return out.getvalue()


def write(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> int:
    """Write atomically; returns the number of bytes."""
    temporary = _temporary(path)
    with open(temporary, "wb") as out:
        size = _lay_out(out, meta, arrays)
    reach("bucket.written")
    os.replace(temporary, path)
    reach("bucket.renamed")
    return size


def put(path: Path, data: bytes) -> None:
    """Bytes that were packed somewhere else, as atomically as `write`."""
    temporary = _temporary(path)
    temporary.write_bytes(data)
    reach("bucket.written")
    os.replace(temporary, path)
    reach("bucket.renamed")


def _temporary(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.parent / f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp"


def _lay_out(out: BinaryIO, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> int:
    directory: list[tuple[str, str, list[int], int, int]] = []
    buffers: list[memoryview | bytes] = []
    at = 0
    for name, array in arrays.items():
        at = _aligned(at)
        data = np.ascontiguousarray(array).data if array.size else b""
        directory.append((name, array.dtype.str, list(array.shape), at, checksum(data)))
        buffers.append(data)
        at += array.nbytes
    header = json.dumps({"meta": meta, "arrays": directory}, separators=(",", ":")).encode()
    base = _aligned(_PREFIX + len(header))
    length = len(header).to_bytes(8, "little")
    out.write(MAGIC + length + checksum(length + header).to_bytes(8, "little") + header)
    for (_, _, _, offset, _), data in zip(directory, buffers, strict=True):
        out.write(b"\0" * (base + offset - out.tell()))
        out.write(data)
    return out.tell()


def _aligned(at: int) -> int:
    return -(-at // _ALIGN) * _ALIGN


def read(path: Path) -> BucketFile:
    try:
        with open(path, "rb") as f:
            if not os.fstat(f.fileno()).st_size:
                raise damaged(path.name, "it is empty")
            mapped = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as e:
        raise unreadable(path.name, e) from e
    mapped.madvise(mmap.MADV_RANDOM)
    return parse(path.name, memoryview(mapped), lambda at, length: _soon(mapped, at, length))


def _soon(mapped: mmap.mmap, at: int, length: int) -> None:
    """These bytes are read next, and no others: the system's own guess from the first page touched is megabytes in both
    directions, which with state larger than memory pushes out what is needed (it read five times the state)."""
    first = at - at % mmap.PAGESIZE
    mapped.madvise(mmap.MADV_WILLNEED, first, at + length - first)


def parse(name: str, data: memoryview, soon: Callable[[int, int], None] | None = None) -> BucketFile:
    """The bucket in a buffer that lives as long as the bucket; nothing but the header is copied. `soon` is told (place,
    length) of what is going to be read."""
    meta, places = _directory(name, len(data), lambda at, length: bytes(data[at : at + length]))
    return BucketFile(name, meta, Checked(name, data, places, soon))


def verify(path: Path) -> None:
    """Read the whole file and raise BUCKET_MISSING or BUCKET_DAMAGED if it is not what was written.

    By ordinary reads and not through a mapping: there a disk that cannot read would end the process with a signal.
    """
    try:
        with open(path, "rb") as f:

            def take(at: int, length: int) -> bytes:
                f.seek(at)
                return f.read(length)

            _, places = _directory(path.name, os.fstat(f.fileno()).st_size, take)
            for name, place in places.items():
                found, left = xxhash.xxh3_64(), place.nbytes
                f.seek(place.at)
                while left and (piece := f.read(min(left, _CHUNK))):
                    found.update(piece)
                    left -= len(piece)
                if found.intdigest() != place.checksum:
                    raise damaged(path.name, f"the checksum of array {name!r} does not match")
    except OSError as e:
        raise unreadable(path.name, e) from e


def _directory(name: str, size: int, take: Callable[[int, int], bytes]) -> tuple[Mapping[str, Any], dict[str, Placed]]:
    """The header: what the writer said, and where the arrays are. `take` reads (place, length) of the `size` bytes."""
    prefix = take(0, _PREFIX)
    if prefix[:8] != MAGIC:
        raise damaged(name, "it does not begin like a bucket file of this version")
    length = int.from_bytes(prefix[8:16], "little")
    if len(prefix) < _PREFIX or _PREFIX + length > size:
        raise damaged(name, f"its header does not fit into its {size} bytes")
    text = take(_PREFIX, length)
    if checksum(prefix[8:16] + text).to_bytes(8, "little") != prefix[16:]:
        raise damaged(name, "the checksum of its header does not match")
    base, end = _aligned(_PREFIX + length), _PREFIX + length
    places: dict[str, Placed] = {}
    try:
        header = json.loads(text)
        for key, dtype, shape, offset, digest in header["arrays"]:
            place = places[key] = Placed(np.dtype(dtype), tuple(shape), base + offset, digest)
            end = max(end, place.at + place.nbytes)
        meta = header["meta"]
    except (ValueError, TypeError, KeyError) as e:
        raise damaged(name, f"its header cannot be understood: {e}") from e
    if end != size:
        raise damaged(name, f"it has {size} bytes instead of {end}")
    return meta, places


def unreadable(name: str, error: OSError) -> InternalError:
    if isinstance(error, FileNotFoundError):
        return InternalError(f"bucket file {name} is missing", reason="BUCKET_MISSING")
    return damaged(name, f"it cannot be read: {error}")


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

    by_value = False

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
        """Trust no copy of this file that is open or was sent somewhere; the file itself stays."""
        self._let_go(name)

    def for_tasks(self, names: Iterable[str]) -> Buckets:
        """What the tasks of a stage get, which will open no other buckets than these."""
        return self

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
