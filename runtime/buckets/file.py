"""One file per bucket: a JSON header and 64-byte aligned arrays, opened by memory-mapping.

    magic (8) | header length (8) | checksum (8) | header JSON | padding | array | padding | array | ...

All Python workers of a node share the pages; opening copies and parses nothing but the header. A file is written
under a temporary name and renamed into place, so it exists completely or not at all, and a second attempt of the same
task writes the same thing again. Files are never changed, so anything opened stays valid, even after the name is
deleted. The same bytes can also travel (`pack`, `parse`): see runtime.exchange.by_value.

A file that is not what its writer wrote is never used: the checksum in front covers length and header, the header has
one per array, which is checked when the array is first looked at (runtime.buckets.checked), and the file must be
exactly as long as its header says. Only the padding may change unnoticed; nobody reads it.

A whole file in the wrong place is never used either: the header names the file and the platform it belongs to (the
random id of the state, `State.platform`), and both are compared with what the reader asked for. File names are unique
for ever within a platform, so this finds every exchange of two files and every copy from another state directory. The
cost is some sixty bytes a file.

What is wrong is raised as BUCKET_MISSING or BUCKET_DAMAGED with the file's name, and runtime.engine.repair takes it
from there.
"""

from __future__ import annotations

import io
import json
import mmap
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt

from optimizer.errors import InternalError
from runtime.buckets.checked import Checked, Checksum, Placed, checksum, damaged
from runtime.crashpoints import reach
from runtime.files import write_atomically

MAGIC = b"AJBUCK04"
_PREFIX = 24
_ALIGN = 64
_CHUNK = 1 << 20


class BucketFile:
    """`meta` is what the writer said; `arrays` are views into the mapping; `derived` holds what readers decoded from
    them, for as long as the file stays open."""

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


def pack(name: str, platform: str, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """What `write` would put into a file of that name."""
    out = io.BytesIO()
    _lay_out(out, name, platform, meta, arrays)
    return out.getvalue()


def write(path: Path, platform: str, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> int:
    """Write atomically; returns the number of bytes."""
    return put(path, lambda out: _lay_out(out, path.name, platform, meta, arrays))


def put(path: Path, content: bytes | Callable[[BinaryIO], object]) -> int:
    """Bytes that were packed somewhere else, or a function that writes them. Attempts of one task may run at the same
    time; each has a temporary file of its own."""
    size = write_atomically(path, content, several_writers=True, point="bucket.written")
    reach("bucket.renamed")
    return size


def _lay_out(
    out: BinaryIO, name: str, platform: str, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> int:
    directory: list[tuple[str, str, list[int], int, int]] = []
    buffers: list[memoryview | bytes] = []
    at = 0
    for key, array in arrays.items():
        at = _aligned(at)
        data = np.ascontiguousarray(array).data if array.size else b""
        directory.append((key, array.dtype.str, list(array.shape), at, checksum(data)))
        buffers.append(data)
        at += array.nbytes
    described = {"name": name, "platform": platform, "meta": meta, "arrays": directory}
    header = json.dumps(described, separators=(",", ":")).encode()
    base = _aligned(_PREFIX + len(header))
    length = len(header).to_bytes(8, "little")
    out.write(MAGIC + length + checksum(length + header).to_bytes(8, "little") + header)
    for (_, _, _, offset, _), data in zip(directory, buffers, strict=True):
        out.write(b"\0" * (base + offset - out.tell()))
        out.write(data)
    return out.tell()


def _aligned(at: int) -> int:
    return -(-at // _ALIGN) * _ALIGN


def read(path: Path, platform: str, name: str | None = None) -> BucketFile:
    """The bucket file of that name and platform. `name`: if it lies under another one for now."""
    name = name or path.name
    try:
        with open(path, "rb") as f:
            if not os.fstat(f.fileno()).st_size:
                raise damaged(name, "it is empty")
            mapped = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as e:
        raise unreadable(name, e) from e
    mapped.madvise(mmap.MADV_RANDOM)
    return parse(name, platform, memoryview(mapped), lambda at, length: _prefetch(mapped, at, length))


def _prefetch(mapped: mmap.mmap, at: int, length: int) -> None:
    """These bytes are read next, and no others: the system's own guess from the first page touched is megabytes in both
    directions, which with state larger than memory pushes out what is needed (it read five times the state)."""
    first = at - at % mmap.PAGESIZE
    mapped.madvise(mmap.MADV_WILLNEED, first, at + length - first)


def parse(name: str, platform: str, data: memoryview, prefetch: Callable[[int, int], None] | None = None) -> BucketFile:
    """The bucket in a buffer that lives as long as the bucket; nothing but the header is copied. `prefetch` is told
    (place, length) of what is going to be read."""
    meta, places = _directory(name, platform, len(data), lambda at, length: bytes(data[at : at + length]))
    return BucketFile(name, meta, Checked(name, data, places, prefetch))


def verify(path: Path, platform: str) -> None:
    """Read the whole file and raise BUCKET_MISSING or BUCKET_DAMAGED if it is not what was written under this name.

    By ordinary reads and not through a mapping: there a disk that cannot read would end the process with a signal.
    """
    try:
        with open(path, "rb") as f:

            def take(at: int, length: int) -> bytes:
                f.seek(at)
                return f.read(length)

            _, places = _directory(path.name, platform, os.fstat(f.fileno()).st_size, take)
            for name, place in places.items():
                actual, left = Checksum(), place.nbytes
                f.seek(place.at)
                while left and (piece := f.read(min(left, _CHUNK))):
                    actual.update(piece)
                    left -= len(piece)
                if actual.digest() != place.checksum:
                    raise damaged(path.name, f"the checksum of array {name!r} does not match")
    except OSError as e:
        raise unreadable(path.name, e) from e


def _directory(
    name: str, platform: str, size: int, take: Callable[[int, int], bytes]
) -> tuple[Mapping[str, Any], dict[str, Placed]]:
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
        meta, is_name, is_platform = header["meta"], header["name"], header["platform"]
    except (ValueError, TypeError, KeyError) as e:
        raise damaged(name, f"its header cannot be understood: {e}") from e
    if end != size:
        raise damaged(name, f"it has {size} bytes instead of {end}")
    if is_platform != platform:
        raise damaged(name, f"it is the file {is_name} of another platform ({is_platform}, this one is {platform})")
    if is_name != name:
        raise damaged(name, f"it is another file of this platform, {is_name}")
    return meta, places


def unreadable(name: str, error: OSError) -> InternalError:
    if isinstance(error, FileNotFoundError):
        return InternalError(f"bucket file {name} is missing", reason="BUCKET_MISSING")
    return damaged(name, f"it cannot be read: {error}")
