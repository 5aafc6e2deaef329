"""One file per bucket: a JSON header and 64-byte aligned arrays, opened by memory-mapping.

    magic (8) | header length (8) | checksum (8) | header JSON | padding | array | padding | array | ...

All Python workers of a node share the pages; opening copies and parses nothing but the header. A file is written
under a temporary name and renamed into place, so it exists completely or not at all, and a second attempt of the same
task writes the same thing again. Files are never changed, so anything opened stays valid, even after the name is
deleted. The same bytes can also be an object of a store (`pack`, `parse`): see runtime.store.

A file that is not what its writer wrote is never used: the checksum in front covers length and header, the header has
one for every chunk of what follows, which is checked when it is first looked at (runtime.buckets.checked), and the file
must be exactly as long as its header says.

A whole file in the wrong place is never used either: the header names the file and the platform it belongs to (the
random id of the state, `State.platform`), and both are compared with what the reader asked for. File names are unique
for ever within a platform, so this finds every exchange of two files and every copy from another state directory. The
cost is some sixty bytes a file.

What is wrong is raised as BUCKET_MISSING or BUCKET_DAMAGED with the file's name, and runtime.engine.repair takes it
from there.
"""

from __future__ import annotations

import base64
import io
import json
import mmap
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from optimizer.errors import InternalError
from runtime.buckets.checked import Bringing, Checked, Checksum, Chunks, Placed, Span, checksum, chunk_size, damaged
from runtime.buckets.held import Held
from runtime.crashpoints import reach
from runtime.files import write_atomically

MAGIC = b"AJBUCK06"
_PREFIX = 24
_ALIGN = 64


class BucketFile:
    """`meta` is what the writer said; `arrays` are views into the mapping, or what the writer still holds; `derived`
    holds what readers decoded from them, for as long as the file stays open."""

    __slots__ = ("arrays", "derived", "meta", "name")

    def __init__(self, name: str, meta: Mapping[str, Any], arrays: Checked | Held) -> None:
        self.name = name
        self.meta = meta
        self.arrays = arrays
        self.derived: dict[str, Any] = {}

    @property
    def nbytes(self) -> int:
        return self.arrays.nbytes


class Written(NamedTuple):
    """The name under which a bucket can be opened, and its bytes."""

    file: str
    bytes: int


class Buckets(Protocol):
    """All that a task knows of buckets: open one by name, write one. Where the bytes are is the store's business, and
    it may add to the name of what is written: references take the name from the answer."""

    def open(self, name: str) -> BucketFile: ...

    def write(self, name: str, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Written: ...


def pack(name: str, platform: str, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """What `write` would put into a file of that name."""
    out = io.BytesIO()
    _lay_out(out, name, platform, meta, arrays)
    return out.getvalue()


def write(
    path: Path,
    platform: str,
    meta: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    name: str | None = None,
) -> int:
    """Write atomically; returns the number of bytes. Attempts of one task may run at the same time; each has a
    temporary file of its own. `name`: if its path does not end like it."""
    name = name or path.name
    size = write_atomically(
        path, lambda out: _lay_out(out, name, platform, meta, arrays), several_writers=True, point="bucket.written"
    )
    reach("bucket.renamed")
    return size


def _lay_out(
    out: BinaryIO, name: str, platform: str, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> int:
    directory: list[tuple[str, str, list[int], int]] = []
    pieces: list[memoryview | bytes] = []
    at = 0
    for key, array in arrays.items():
        pieces.append(b"\0" * (_aligned(at) - at))
        at = _aligned(at)
        directory.append((key, array.dtype.str, list(array.shape), at))
        if array.size:
            pieces.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            at += array.nbytes
    filled = [array for array in arrays.values() if array.size]
    largest = max((array.nbytes for array in filled), default=0)
    chunk = chunk_size(largest, max((array.nbytes // len(array) for array in filled), default=0))
    sums = base64.b64encode(np.fromiter(_sums(pieces, chunk), "<u8").tobytes()).decode()
    described = {
        "name": name, "platform": platform, "meta": meta, "arrays": directory, "bytes": at, "chunk": chunk, "sums": sums
    }  # fmt: skip
    header = json.dumps(described, separators=(",", ":")).encode()
    length = len(header).to_bytes(8, "little")
    out.write(MAGIC + length + checksum(length + header).to_bytes(8, "little") + header)
    out.write(b"\0" * (_aligned(out.tell()) - out.tell()))
    for piece in pieces:
        out.write(piece)
    return out.tell()


def _sums(pieces: Sequence[memoryview | bytes], chunk: int) -> Iterator[int]:
    """One per chunk of what the pieces are end to end."""
    now, room = Checksum(), chunk
    for piece in pieces:
        left = memoryview(piece)
        while len(left):
            now.update(left[:room])
            taken = min(room, len(left))
            left, room = left[taken:], room - taken
            if not room:
                yield now.digest()
                now, room = Checksum(), chunk
    if room < chunk:
        yield now.digest()


def _aligned(at: int) -> int:
    return -(-at // _ALIGN) * _ALIGN


class _Mapped:
    """A file that is mapped as a whole: all of it is at hand, or can be read from disk."""

    whole = True

    def __init__(self, mapped: mmap.mmap) -> None:
        self._mapped = mapped

    def bring(self, spans: Sequence[Span]) -> None:
        """These bytes are read next, and no others: the system's own guess from the first page touched is megabytes in
        both directions, which with state larger than memory pushes out what is needed (it read five times the
        state)."""
        for at, length in spans:
            first = at - at % mmap.PAGESIZE
            self._mapped.madvise(mmap.MADV_WILLNEED, first, at + length - first)

    def again(self, span: Span) -> bool:
        return False


class _Held:
    """Bytes that are all in memory."""

    whole = True

    def bring(self, spans: Sequence[Span]) -> None:
        """Nothing to do."""

    def again(self, span: Span) -> bool:
        return False


def read(path: Path, platform: str, name: str | None = None) -> BucketFile:
    """The bucket file of that name and platform. `name`: if its path does not end like it."""
    name = name or path.name
    try:
        with open(path, "rb") as f:
            if not os.fstat(f.fileno()).st_size:
                raise damaged(name, "it is empty")
            mapped = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as e:
        raise unreadable(name, e) from e
    mapped.madvise(mmap.MADV_RANDOM)
    data = memoryview(mapped)
    header = read_header(name, platform, len(data), lambda at, length: bytes(data[at : at + length]))
    return header.file(data, _Mapped(mapped))


def parse(name: str, platform: str, data: bytes) -> BucketFile:
    """The bucket that `pack` made."""
    header = read_header(name, platform, len(data), lambda at, length: data[at : at + length])
    return header.file(memoryview(data), _Held())


def verify(path: Path, platform: str, name: str | None = None) -> None:
    """Read the whole file and raise BUCKET_MISSING or BUCKET_DAMAGED if it is not what was written under this name.

    By ordinary reads and not through a mapping: there a disk that cannot read would end the process with a signal.
    """
    name = name or path.name
    try:
        with open(path, "rb") as f:

            def take(at: int, length: int) -> bytes:
                f.seek(at)
                return f.read(length)

            verify_bytes(name, platform, os.fstat(f.fileno()).st_size, take)
    except OSError as e:
        raise unreadable(name, e) from e


def verify_bytes(name: str, platform: str, size: int | None, take: Callable[[int, int], bytes]) -> None:
    """The same for anything of which parts can be read."""
    header = read_header(name, platform, size, take)
    for n, digest in enumerate(header.sums):
        at = header.base + n * header.chunk
        piece = take(at, min(header.chunk, header.size - at))
        if checksum(piece) != digest:
            raise damaged(name, f"the checksum of bytes {at} to {at + len(piece)} does not match")


class Header(NamedTuple):
    """What the writer said (`meta`), where the arrays are and what their bytes, from `base` on, must hash to. `size`:
    of the whole file."""

    name: str
    meta: Mapping[str, Any]
    places: Mapping[str, Placed]
    base: int
    size: int
    chunk: int
    sums: Sequence[int]

    def file(self, data: memoryview, bringing: Bringing) -> BucketFile:
        """The bucket, whose bytes are in a buffer that lives as long; nothing but the header is copied."""
        chunks = Chunks(self.name, data[: self.size], self.base, self.chunk, self.sums, bringing)
        return BucketFile(self.name, self.meta, Checked(chunks, self.places))


def read_header(name: str, platform: str, size: int | None, take: Callable[[int, int], bytes]) -> Header:
    """`take` reads (place, length) of the file, which has `size` bytes, if that is known."""
    prefix = take(0, _PREFIX)
    if prefix[:8] != MAGIC:
        raise damaged(name, "it does not begin like a bucket file of this version")
    length = int.from_bytes(prefix[8:16], "little")
    if len(prefix) < _PREFIX or (size is not None and _PREFIX + length > size):
        raise damaged(name, f"its header does not fit into its {size} bytes")
    text = take(_PREFIX, length)
    if checksum(prefix[8:16] + text).to_bytes(8, "little") != prefix[16:]:
        raise damaged(name, "the checksum of its header does not match")
    base = _aligned(_PREFIX + length)
    places: dict[str, Placed] = {}
    try:
        header = json.loads(text)
        for key, dtype, shape, offset in header["arrays"]:
            places[key] = Placed(np.dtype(dtype), tuple(shape), base + offset)
        meta, is_name, is_platform = header["meta"], header["name"], header["platform"]
        end, chunk = base + header["bytes"], header["chunk"]
        sums = np.frombuffer(base64.b64decode(header["sums"]), "<u8").tolist()
    except (ValueError, TypeError, KeyError) as e:
        raise damaged(name, f"its header cannot be understood: {e}") from e
    if size is not None and end != size:
        raise damaged(name, f"it has {size} bytes instead of {end}")
    if is_platform != platform:
        raise damaged(name, f"it is the file {is_name} of another platform ({is_platform}, this one is {platform})")
    if is_name != name:
        raise damaged(name, f"it is another file of this platform, {is_name}")
    return Header(name, meta, places, base, end, chunk, sums)


def unreadable(name: str, error: OSError) -> InternalError:
    if isinstance(error, FileNotFoundError):
        return InternalError(f"bucket file {name} is missing", reason="BUCKET_MISSING")
    return damaged(name, f"it cannot be read: {error}")
