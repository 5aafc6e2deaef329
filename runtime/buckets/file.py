"""One file per bucket: a JSON header and 64-byte aligned arrays, opened by memory-mapping.

    magic (8) | header length (8) | header JSON | padding | array | padding | array | ...

All Python workers of a node share the pages; opening copies and parses nothing but the header. A file is written
under a temporary name and renamed into place, so it exists completely or not at all, and a second attempt of the same
task writes the same thing again. Files are never changed, so anything opened stays valid, even after the name is
deleted. The same bytes can also travel (`pack`, `parse`): see runtime.exchange.
"""

from __future__ import annotations

import io
import json
import mmap
import os
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt

from optimizer.errors import InternalError

MAGIC = b"AJBUCK01"
_ALIGN = 64


class BucketFile:
    """`meta` is what the writer said; `arrays` are views into the mapping; `derived` is room for what a reader made of
    them and wants to find again while the file stays open."""

    __slots__ = ("arrays", "derived", "meta", "name")

    def __init__(self, name: str, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self.name = name
        self.meta = meta
        self.arrays = arrays
        self.derived: dict[str, Any] = {}

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays.values())


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
    os.replace(temporary, path)
    return size


def put(path: Path, data: bytes) -> None:
    """Bytes that were packed somewhere else, as atomically as `write`."""
    temporary = _temporary(path)
    temporary.write_bytes(data)
    os.replace(temporary, path)


def _temporary(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.parent / f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp"


def _lay_out(out: BinaryIO, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> int:
    directory: list[tuple[str, str, list[int], int]] = []
    at = 0
    for name, array in arrays.items():
        at = -(-at // _ALIGN) * _ALIGN
        directory.append((name, array.dtype.str, list(array.shape), at))
        at += array.nbytes
    header = json.dumps({"meta": meta, "arrays": directory}, separators=(",", ":")).encode()
    base = -(-(16 + len(header)) // _ALIGN) * _ALIGN
    out.write(MAGIC + len(header).to_bytes(8, "little") + header)
    for (_, _, _, offset), array in zip(directory, arrays.values(), strict=True):
        out.write(b"\0" * (base + offset - out.tell()))
        out.write(np.ascontiguousarray(array).data if array.size else b"")
    return out.tell()


def read(path: Path) -> BucketFile:
    try:
        with open(path, "rb") as f:
            mapped = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as e:
        raise InternalError(f"bucket file {path.name} cannot be opened: {e}", reason="BUCKET_MISSING") from e
    return parse(path.name, memoryview(mapped))


def parse(name: str, data: memoryview) -> BucketFile:
    """The bucket in a buffer that lives as long as the bucket; nothing but the header is copied."""
    if data[:8] != MAGIC:
        raise InternalError(f"{name} is not a bucket file", reason="BUCKET_DAMAGED")
    length = int.from_bytes(data[8:16], "little")
    base = -(-(16 + length) // _ALIGN) * _ALIGN
    arrays = {}
    try:
        header = json.loads(bytes(data[16 : 16 + length]))
        for key, dtype, shape, offset in header["arrays"]:
            count = int(np.prod(shape)) if shape else 1
            arrays[key] = (
                np.frombuffer(data, np.dtype(dtype), count, base + offset).reshape(shape)
                if count
                else np.empty(shape, np.dtype(dtype))
            )
        return BucketFile(name, header["meta"], arrays)
    except (ValueError, TypeError, KeyError) as e:
        raise InternalError(f"bucket file {name} is damaged: {e}", reason="BUCKET_DAMAGED") from e


class BucketStore:
    """A directory of bucket files with a small cache of open ones. Picklable: it travels as its path."""

    by_value = False

    def __init__(self, directory: Path, cached: int = 4096) -> None:
        self.directory = directory
        self._limit = cached
        self._open: OrderedDict[str, BucketFile] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        return _shared_store, (str(self.directory),)

    def write(self, name: str, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> int:
        size = write(self.directory / name, meta, arrays)
        self._open.pop(name, None)  # a second attempt replaces the first one's file
        return size

    def open(self, name: str) -> BucketFile:
        found = self._open.get(name)
        if found is None:
            found = self._open[name] = read(self.directory / name)
            if len(self._open) > self._limit:
                self._open.popitem(last=False)
        else:
            self._open.move_to_end(name)
        return found

    def for_tasks(self, names: Iterable[str]) -> Buckets:
        """What the tasks of a stage get, which will open no other buckets than these."""
        return self

    def drop(self, name: str) -> None:
        self._open.pop(name, None)
        (self.directory / name).unlink(missing_ok=True)

    def close(self) -> None:
        """The files stay; open ones may be used as long as somebody holds them."""
        self._open.clear()


_STORES: dict[str, BucketStore] = {}


def _shared_store(directory: str) -> BucketStore:
    """One store per directory and process, so that tasks of one worker share open files."""
    store = _STORES.get(directory)
    if store is None:
        store = _STORES[directory] = BucketStore(Path(directory))
    return store
