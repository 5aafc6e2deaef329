"""What stages need again and again travels once: immutable pieces, which executors keep.

The specifications of a thousand queries take tens of milliseconds to pickle and again to unpickle, and change with the
plan only; references to open buckets are as many as there is state, and few of them are new. Such values are
`ShippedOnce`. What a stage shares is packed without them (`Shipping.parcel`): in their place stands a number, and those
that executors cannot have yet go along.

A worker looks a number up in its memory, among what came along, and in a folder that the workers of its executor share
(`Kept`). A worker that finds a piece nowhere (its executor is new, or what was kept has been given up) does not begin:
it `Lacks`, and the driver sends that task once more with everything. So nothing has to be known about who has what, and
everything that is kept may be lost at any time, for the price of one more job. What travels with a stage is what has
changed, and a few bytes for the number of each piece.

Where all tasks run on the driver's machine, everything goes along every time: it only saves unpickling then.
"""

from __future__ import annotations

import io
import itertools
import os
import pickle
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from runtime.buckets.checked import checksum
from runtime.machine.cache import BoundedCache

T = TypeVar("T")

MOST_BYTES = 8 << 20
"""Of pickled pieces that a worker has in memory, and of those that its executor keeps."""
MOST_PIECES = 1 << 12
SWEPT_AFTER = 256

_ORIGIN = uuid.uuid4().hex
_NUMBERS = itertools.count(1)


class ShippedOnce(Generic[T]):
    """Immutable, like the value it holds. `number`: unique in the process that made it, `origin`."""

    def __init__(self, value: T) -> None:
        self.value = value
        self.origin, self.number = _ORIGIN, next(_NUMBERS)
        self._data: bytes | None = None

    @property
    def data(self) -> bytes:
        if self._data is None:
            self._data = pickle.dumps(self.value)
        return self._data

    def __reduce__(self) -> tuple[Any, ...]:
        """Where it is not packed by `Shipping`."""
        return _arrived, (self.origin, self.number, self.data)


class _Arrived(NamedTuple):
    piece: ShippedOnce[Any]
    size: int


Memory = BoundedCache[tuple[str, int], _Arrived]


def memory() -> Memory:
    """Of a worker."""
    return BoundedCache(MOST_PIECES, lambda arrived: arrived.size, MOST_BYTES)


_SEEN = memory()


def _arrived(origin: str, number: int, data: bytes, seen: Memory = _SEEN) -> ShippedOnce[Any]:
    def unpickled() -> _Arrived:
        piece: ShippedOnce[Any] = ShippedOnce(pickle.loads(data))
        piece.origin, piece.number, piece._data = origin, number, data
        return _Arrived(piece, len(data))

    return seen.get_or_make((origin, number), unpickled).piece


# -- on the driver ------------------------------------------------------------------------------------------------


class Parcel(NamedTuple):
    """A value without its pieces, and those that go along."""

    body: bytes
    origin: str
    pieces: Mapping[int, bytes]

    @property
    def size(self) -> int:
        return len(self.body) + sum(len(data) for data in self.pieces.values())


DONE = b""
"""In place of tasks that are done: the others keep their places."""
LACKS = "lacks"
"""In place of an outcome: the worker has not all pieces."""
Job = Callable[[Parcel, Sequence[bytes]], list[Any]]
"""Runs tasks that share what is in the parcel; one outcome per task."""


class Shipping:
    """Remembers which pieces have been sent. `keep`: executors keep them; else they go along every time. `bytes`: that
    stages shared so far. May be used by several threads: stages of two epochs run side by side."""

    def __init__(self, keep: bool) -> None:
        self._keep = keep
        self._sent: BoundedCache[int, bool] = BoundedCache(1 << 16)
        self.bytes = 0

    def parcel(self, value: Any, *, whole: bool = False) -> Parcel:
        """`whole`: with all pieces."""
        out = io.BytesIO()
        packer = _Packer(out)
        packer.dump(value)
        every = whole or not self._keep
        pieces = {n: piece.data for n, piece in packer.pieces.items() if every or not self._sent.get(n)}
        parcel = Parcel(out.getvalue(), _ORIGIN, pieces)
        self.bytes += parcel.size
        return parcel

    def run(self, value: Any, tasks: Sequence[bytes], job: Job) -> list[Any]:
        """What comes of each task."""
        parcel = self.parcel(value)
        outcomes = job(parcel, tasks)
        lacking = [outcome == LACKS for outcome in outcomes]
        if any(lacking):
            parcel = self.parcel(value, whole=True)
            left = [task if lacks else DONE for task, lacks in zip(tasks, lacking, strict=True)]
            again = job(parcel, left)
            outcomes = [a if lacks else o for o, a, lacks in zip(outcomes, again, lacking, strict=True)]
        for number in parcel.pieces:
            self._sent.put(number, True)
        return outcomes


class _Packer(pickle.Pickler):
    def __init__(self, out: io.BytesIO) -> None:
        super().__init__(out, pickle.HIGHEST_PROTOCOL)
        self.pieces: dict[int, ShippedOnce[Any]] = {}

    def persistent_id(self, value: Any) -> int | None:
        if type(value) is not ShippedOnce or value.origin != _ORIGIN:
            return None
        self.pieces[value.number] = value
        return value.number


# -- where tasks run ----------------------------------------------------------------------------------------------


class Lacks(Exception):
    """A piece is not here."""


class Kept:
    """A folder of pieces that the workers of an executor share. A file appears whole, begins with its checksum, and may
    vanish at any time: the oldest go when there are too many."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._added = 0

    def get(self, origin: str, number: int) -> bytes | None:
        try:
            data = self._path(origin, number).read_bytes()
        except OSError:
            return None
        if data[:8] != _sum(data[8:]):
            self._path(origin, number).unlink(missing_ok=True)
            return None
        return data[8:]

    def put(self, origin: str, number: int, data: bytes) -> None:
        """Other workers get it from here; without room for it they will ask for it."""
        path = self._path(origin, number)
        if path.exists():
            return
        temporary = path.with_name(f".{uuid.uuid4().hex}")
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary.write_bytes(_sum(data) + data)
            os.replace(temporary, path)
            self._added += 1
            if self._added % SWEPT_AFTER == 0:
                self._sweep()
        except OSError:
            temporary.unlink(missing_ok=True)

    def _sweep(self) -> None:
        with os.scandir(self._directory) as entries:
            found = sorted(((at := e.stat()).st_mtime_ns, at.st_size, e.path) for e in entries)
        size, count = sum(size for _, size, _ in found), len(found)
        for _, length, path in found:
            if size <= MOST_BYTES and count <= MOST_PIECES:
                return
            Path(path).unlink(missing_ok=True)
            size, count = size - length, count - 1

    def _path(self, origin: str, number: int) -> Path:
        return self._directory / f"{origin}-{number}"


def _sum(data: bytes) -> bytes:
    return checksum(data).to_bytes(8, "little")


def unpacked(parcel: Parcel, kept: Kept | None, seen: Memory = _SEEN) -> Any:
    """The value; `Lacks` if a piece is found nowhere. `kept` None: all pieces come along. `seen`: of this worker."""
    if kept is not None:
        for number, data in parcel.pieces.items():
            kept.put(parcel.origin, number, data)
    return _Unpacker(parcel, kept, seen).load()


class _Unpacker(pickle.Unpickler):
    def __init__(self, parcel: Parcel, kept: Kept | None, seen: Memory) -> None:
        super().__init__(io.BytesIO(parcel.body))
        self._parcel, self._kept, self._seen = parcel, kept, seen

    def persistent_load(self, number: int) -> ShippedOnce[Any]:
        origin = self._parcel.origin
        known = self._seen.get((origin, number))
        if known is not None:
            return known.piece
        data = self._parcel.pieces.get(number)
        if data is None and self._kept is not None:
            data = self._kept.get(origin, number)
        if data is None:
            raise Lacks
        return _arrived(origin, number, data, self._seen)
