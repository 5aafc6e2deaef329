"""Parcels: buckets that go out together to all executors, as one broadcast.

- Buckets that a stage may open and that were not sent yet go out together in one *parcel*, one Spark broadcast. An
  executor fetches a parcel once, from the driver or from its peers, when the first task that may need it arrives;
  after a restart of the driver, or on a new executor, that is when open buckets travel again. A lost executor takes
  nothing with it.
- A parcel is withdrawn from all executors when its last bucket is dropped. If less than half of it is still needed,
  it is withdrawn too, and what is left goes out again with the next parcel; so executors never hold more than twice
  what is open, and nothing travels more than twice on average.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy.typing as npt

from optimizer.errors import InternalError
from runtime.buckets.file import BucketFile, Buckets, pack, parse
from runtime.buckets.store import BucketStore
from runtime.exchange.outbox import post
from runtime.execution.executor import Broadcast
from runtime.machine.cache import BoundedCache

_ALIGN = 64
_KEPT_OPEN = 4096


class _Place(NamedTuple):
    """Where a bucket lies in its parcel."""

    parcel: int
    first: int
    length: int


class Parcels:
    """The driver's side: which bucket files were sent, in which parcel."""

    def __init__(self, files: BucketStore, broadcast: Callable[[Sequence[bytes]], Broadcast]) -> None:
        self._files, self._broadcast = files, broadcast
        self._id = uuid.uuid4().hex
        self._lock = threading.Lock()  # stages of two epochs run side by side
        self._sent: dict[str, _Place] = {}
        self._parcels: dict[int, _Parcel] = {}
        self._next = 0

    def for_tasks(self, names: Iterable[str]) -> Buckets:
        with self._lock:
            wanted = set(names)
            self._send(sorted(wanted - self._sent.keys()))
            places = {name: self._sent[name] for name in wanted}
            used = {place.parcel for place in places.values()}
            return ParcelStore(self._id, self._files.platform, places, {n: self._parcels[n].broadcast for n in used})

    def forget(self, name: str) -> None:
        """What was sent under this name is not to be used any more."""
        with self._lock:
            self._forget(name)

    def close(self) -> None:
        """Withdraw everything from the executors; the files stay."""
        with self._lock:
            for parcel in self._parcels.values():
                parcel.broadcast.drop()
            self._parcels, self._sent = {}, {}

    def _send(self, names: Sequence[str]) -> None:
        if not names:
            return
        pieces: list[bytes] = []
        places: dict[str, _Place] = {}
        number, at = self._next, 0
        for name in names:
            data = self._files.bytes_of(name)
            places[name] = _Place(number, at, len(data))
            pieces += [data, b"\0" * (-len(data) % _ALIGN)]
            at += len(data) + len(pieces[-1])
        self._parcels[number] = _Parcel(self._broadcast(pieces), at, set(names))
        self._sent |= places  # only now: a file that cannot be read must not leave half a parcel
        self._next += 1

    def _forget(self, name: str) -> None:
        place = self._sent.pop(name, None)
        if place is None:
            return
        parcel = self._parcels[place.parcel]
        parcel.names.discard(name)
        if 2 * sum(self._sent[n].length for n in parcel.names) < parcel.bytes:
            for left in parcel.names:
                del self._sent[left]
            del self._parcels[place.parcel]
            parcel.broadcast.drop()


class _Parcel:
    __slots__ = ("broadcast", "bytes", "names")

    def __init__(self, broadcast: Broadcast, bytes: int, names: set[str]) -> None:
        self.broadcast, self.bytes, self.names = broadcast, bytes, names


class ParcelStore:
    """A task's side: opens what the stage's parcels hold, writes into the outbox. It knows no directory."""

    def __init__(
        self, store: str, platform: str, places: Mapping[str, _Place], parcels: Mapping[int, Broadcast]
    ) -> None:
        self._store, self._platform, self._places, self._parcels = store, platform, places, parcels

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self._store, self._platform, self._places, self._parcels)

    def open(self, name: str) -> BucketFile:
        place = self._places.get(name)
        if place is None:
            raise InternalError(f"bucket {name} was not sent with the stage that opens it", reason="BUCKET_MISSING")
        number, first, length = place
        at = (self._store, number, name)
        opened = _OPEN.get(at)
        if opened is None:
            opened = parse(name, self._platform, self._parcels[number].data[first : first + length])
            _OPEN.put(at, opened)
        return opened

    def write(self, name: str, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> int:
        data = pack(name, self._platform, meta, arrays)
        post("bucket", name, data)
        return len(data)


_OPEN: BoundedCache[tuple[str, int, str], BucketFile] = BoundedCache(_KEPT_OPEN)
"""Open buckets of this process: Spark forgets between two stages what a worker has read of a broadcast."""


def _arrived(store: str, platform: str, places: Mapping[str, _Place], parcels: Mapping[int, Broadcast]) -> ParcelStore:
    """Called when a stage arrives in this process: open buckets of withdrawn parcels are closed."""
    if parcels:
        _OPEN.keep(lambda at: at[0] == store and at[1] in parcels)
    return ParcelStore(store, platform, places, parcels)
