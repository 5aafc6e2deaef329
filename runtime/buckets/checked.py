"""Arrays that are what their writer wrote: every byte is checked against its checksum before it is used.

What lies behind a bucket's header is cut into *chunks* of equal size (`chunk_size`), and the header has one checksum
per chunk. A chunk is the unit of checking and, where the bytes are somewhere else, of bringing them here (`Bringing`).
Both happen when a chunk is first looked at in a process and not on opening: a task that needs two columns of a wide
bucket reads two columns, also from disk, so state may be larger than memory. After that an array costs nothing more.

Arrays always have their full length, and row numbers their meaning. A reader that will look only at some of an array
says so (`part`, `at_rows`) and gets an array that is right there, and anything elsewhere. Where all bytes are at hand
(`Bringing.whole`) these are the same as asking for the whole array.

XXH3 is not cryptographic: it finds damage by disks, file systems and mistakes, not by an attacker. It runs at memory
speed; docs/decisions/0009-checksums-and-repair.md has the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import xxhash

from optimizer.errors import InternalError

CHUNK = 1 << 16
"""Bytes of a chunk, at most. With larger ones a machine would fetch too much beside what it looks at."""
LEAST_CHUNK = 1 << 12
PER_ARRAY = 128
"""Chunks of the largest array, if they are not too small then: of a range of rows, what its ends add is a chunk."""

Span = tuple[int, int]
"""(place, length) in bytes, from the start of the file."""


def checksum(data: Any) -> int:
    """Of anything that is contiguous bytes."""
    return int(xxhash.xxh3_64_intdigest(data))


class Checksum:
    """The same, piece by piece."""

    def __init__(self) -> None:
        self._sum = xxhash.xxh3_64()

    def update(self, data: Any) -> None:
        self._sum.update(data)

    def digest(self) -> int:
        return int(self._sum.intdigest())


def damaged(name: str, what: str) -> InternalError:
    return InternalError(f"bucket file {name} is damaged: {what}", reason="BUCKET_DAMAGED")


class Placed(NamedTuple):
    """Where an array lies in its file, counted from the start."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    at: int

    @property
    def items(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.items * self.dtype.itemsize

    @property
    def row(self) -> int:
        """Bytes of one row."""
        return self.nbytes // self.shape[0]


def chunk_size(largest: int, widest: int) -> int:
    """For a file whose largest array has so many bytes, and its widest row: a power of two, and no row is larger."""
    size = LEAST_CHUNK
    while (size < CHUNK and size * PER_ARRAY < largest) or size < widest:
        size *= 2
    return size


class Bringing(Protocol):
    """Where the bytes of a file come from when they are first looked at."""

    @property
    def whole(self) -> bool:
        """Are all bytes at hand, so that looking at more of them costs next to nothing?"""
        ...

    def bring(self, spans: Sequence[Span]) -> None:
        """These bytes are going to be read, and no others. Spans ascend and are whole chunks."""
        ...

    def again(self, span: Span) -> bool:
        """These bytes are not what was written: bring them once more. False: there is no other place."""
        ...


class Chunks:
    """What lies behind the header, `base`, of a file whose bytes are `data`. `sums`: one checksum per `chunk` bytes."""

    __slots__ = ("_base", "_bringing", "_checked", "_chunk", "_data", "_name", "_sums")

    def __init__(
        self, name: str, data: memoryview, base: int, chunk: int, sums: Sequence[int], bringing: Bringing
    ) -> None:
        self._name, self._data, self._base, self._chunk, self._sums = name, data, base, chunk, sums
        self._bringing = bringing
        self._checked = bytearray(len(sums))

    @property
    def whole(self) -> bool:
        return self._bringing.whole

    def look(self, first: int, end: int) -> None:
        """Bring and check these bytes of the file."""
        self.ensure(self.within(first, end))

    def within(self, first: int, end: int) -> range:
        """The chunks that these bytes lie in."""
        base, chunk = self._base, self._chunk
        return range((first - base) // chunk, (end - 1 - base) // chunk + 1) if end > first else range(0)

    def has(self, first: int, end: int) -> bool:
        """Were these bytes looked at, all of them?"""
        chunks = self.within(first, end)
        return all(self._checked[chunks.start : chunks.stop])

    def raw(self, at: int, length: int) -> memoryview:
        """These bytes, as they are."""
        return self._data[at : at + length]

    def ensure(self, chunks: Iterable[int]) -> None:
        """Bring and check these chunks, which ascend."""
        checked = self._checked
        missing = [n for n in chunks if not checked[n]]
        if not missing:
            return
        self._bringing.bring(self._spans(missing))
        data, sums, base, chunk = self._data, self._sums, self._base, self._chunk
        for n in missing:
            at = base + n * chunk
            if xxhash.xxh3_64_intdigest(data[at : at + chunk]) != sums[n]:
                span = (at, min(chunk, len(data) - at))
                if not (self._bringing.again(span) and checksum(data[at : at + chunk]) == sums[n]):
                    raise damaged(self._name, f"the checksum of bytes {at} to {sum(span)} does not match")
            checked[n] = 1

    def chunks_at(self, place: Placed, rows: npt.NDArray[Any]) -> list[int]:
        """Those in which rows of an array lie."""
        starts = rows.astype(np.int64) * place.row + (place.at - self._base)
        found = np.zeros(len(self._sums), bool)
        found[starts // self._chunk] = True
        found[(starts + place.row - 1) // self._chunk] = True  # a row may lie across two; none is larger than one
        return [int(n) for n in np.flatnonzero(found)]

    def _spans(self, chunks: Sequence[int]) -> list[Span]:
        """Where they lie; neighbours as one."""
        spans: list[Span] = []
        chunk = self._chunk
        first = before = chunks[0]
        for n in (*chunks[1:], -1):
            if n != before + 1:
                at = self._base + first * chunk
                spans.append((at, min((before + 1 - first) * chunk, len(self._data) - at)))
                first = n
            before = n
        return spans


class Checked(Mapping[str, npt.NDArray[Any]]):
    """The arrays of one bucket by name. Asking whether there is one, or how large, touches no data."""

    __slots__ = ("_chunks", "_places", "_seen", "_views")

    def __init__(self, chunks: Chunks, places: Mapping[str, Placed]) -> None:
        self._chunks, self._places = chunks, places
        self._seen: dict[str, npt.NDArray[Any]] = {}
        self._views: dict[str, npt.NDArray[Any]] = {}

    def __getitem__(self, key: str) -> npt.NDArray[Any]:
        array = self._seen.get(key)
        if array is None:
            place = self._places[key]
            self._chunks.look(place.at, place.at + place.nbytes)
            array = self._seen[key] = self._view(key)
        return array

    @property
    def whole(self) -> bool:
        """Is it all the same whether some or all of an array is asked for?"""
        return self._chunks.whole

    def shape(self, key: str) -> tuple[int, ...]:
        return self._places[key].shape

    def part(self, key: str, first: int, end: int) -> npt.NDArray[Any]:
        """The array, right in rows [first, end)."""
        if key in self._seen or self._chunks.whole:
            return self[key]
        self.bring([(key, first, end)])
        return self._view(key)

    def bring(self, parts: Iterable[tuple[str, int, int]]) -> None:
        """Rows [first, end) of several arrays, all at once: one after the other, each would wait for its own
        request."""
        wanted: set[int] = set()
        for key, first, end in parts:
            place = self._places.get(key)
            if place is not None and end > first and key not in self._seen:
                wanted.update(self._chunks.within(place.at + first * place.row, place.at + end * place.row))
        self._chunks.ensure(sorted(wanted))

    def at_rows(self, key: str, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The array, right in these rows."""
        if key in self._seen or self._chunks.whole:
            return self[key]
        place = self._places[key]
        if len(rows):
            self._chunks.ensure(self._chunks.chunks_at(place, rows))
        array = self._view(key)
        if self._chunks.has(place.at, place.at + place.nbytes):
            self._seen[key] = array
        return array

    def _view(self, key: str) -> npt.NDArray[Any]:
        array = self._views.get(key)
        if array is None:
            place = self._places[key]
            if place.items:
                raw = self._chunks.raw(place.at, place.nbytes)
                array = np.frombuffer(raw, place.dtype).reshape(place.shape)
            else:
                array = np.empty(place.shape, place.dtype)
            self._views[key] = array
        return array

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def nbytes(self) -> int:
        return sum(p.nbytes for p in self._places.values())
