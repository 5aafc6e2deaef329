"""Buckets by value: for executors that share no file system with the driver or with each other.

By reference (the default, `BucketStore`), tasks open and write files in one directory that all of them see. By value,
the same files exist on the driver only, as the durable copy, and everything else travels:

    task ── answer and outbox (what it wrote) ──► driver: files ──► parcel ── broadcast ──► executors of later stages

- What a stage wrote is received before the stage counts as done, file by file and atomically, so the protocol of
  epochs, commits and recovery is the same for both.
- Buckets that a stage may open and that were not sent yet go out together in one *parcel*, one Spark broadcast. An
  executor fetches a parcel once, from the driver or from its peers, when the first task that may need it arrives;
  after a restart of the driver, or on a new executor, that is when open buckets travel again. A lost executor takes
  nothing with it.
- A parcel is withdrawn from all executors when its last bucket is dropped. If less than half of it is still needed,
  it is withdrawn too, and what is left goes out again with the next parcel; so executors never hold more than twice
  what is open, and nothing travels more than twice on average.

Costs compared with references: every bucket goes through the driver, and every executor holds all open buckets (on
its disk, memory-mapped by its Python workers). Result segments pass through the memory of task and driver.
docs/decisions has the numbers.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy.typing as npt

from optimizer.errors import InternalError
from runtime.buckets.file import BucketFile, Buckets, pack, parse, put, unreadable
from runtime.buckets.store import BucketStore
from runtime.exchange.outbox import Posted, outbox, post
from runtime.execution.executor import Broadcast, Executor

Exchange = Literal["reference", "value"]
Place = tuple[int, int, int]
"""(parcel, first byte, length)"""

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")

_ALIGN = 64
_KEPT_OPEN = 4096


class ValueStore(BucketStore):
    """The driver's side: files, and the parcels that carry copies of them. Tasks get `for_tasks` instead of this."""

    by_value = True

    def __init__(self, directory: Path, broadcast: Callable[[Sequence[bytes]], Broadcast]) -> None:
        super().__init__(directory)
        self._broadcast = broadcast
        self._id = uuid.uuid4().hex
        self._lock = threading.Lock()  # stages of two epochs run side by side
        self._sent: dict[str, Place] = {}
        self._parcels: dict[int, _Parcel] = {}
        self._next = 0

    def __reduce__(self) -> tuple[Any, ...]:
        raise InternalError("the driver's bucket store must not travel to tasks", reason="STORE_TRAVELS")

    def for_tasks(self, names: Iterable[str]) -> Buckets:
        with self._lock:
            wanted = set(names)
            self._send(sorted(wanted - self._sent.keys()))
            places = {name: self._sent[name] for name in wanted}
            used = {number for number, _, _ in places.values()}
            return ParcelStore(self._id, places, {n: self._parcels[n].broadcast for n in used})

    def receive(self, posted: Posted) -> None:
        put(self.directory / posted.name, posted.data)
        with self._lock:
            self._forget(posted.name)  # whatever had this name before was never committed

    def drop(self, name: str) -> None:
        with self._lock:
            self._forget(name)
        super().drop(name)

    def forget(self, name: str) -> None:
        with self._lock:
            self._forget(name)
        super().forget(name)

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
        places: dict[str, Place] = {}
        number, at = self._next, 0
        for name in names:
            data = self._bytes(name)
            places[name] = (number, at, len(data))
            pieces += [data, b"\0" * (-len(data) % _ALIGN)]
            at += len(data) + len(pieces[-1])
        self._parcels[number] = _Parcel(self._broadcast(pieces), at, set(names))
        self._sent |= places  # only now: a file that cannot be read must not leave half a parcel
        self._next += 1

    def _bytes(self, name: str) -> bytes:
        try:
            return (self.directory / name).read_bytes()
        except OSError as e:
            raise unreadable(name, e) from e

    def _forget(self, name: str) -> None:
        place = self._sent.pop(name, None)
        if place is None:
            return
        parcel = self._parcels[place[0]]
        parcel.names.discard(name)
        if 2 * sum(self._sent[n][2] for n in parcel.names) < parcel.bytes:
            for left in parcel.names:
                del self._sent[left]
            del self._parcels[place[0]]
            parcel.broadcast.drop()


class _Parcel:
    __slots__ = ("broadcast", "bytes", "names")

    def __init__(self, broadcast: Broadcast, bytes: int, names: set[str]) -> None:
        self.broadcast, self.bytes, self.names = broadcast, bytes, names


class ParcelStore:
    """A task's side: opens what the stage's parcels hold, writes into the outbox. It knows no directory."""

    def __init__(self, store: str, places: Mapping[str, Place], parcels: Mapping[int, Broadcast]) -> None:
        self._store, self._places, self._parcels = store, places, parcels

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self._store, self._places, self._parcels)

    def open(self, name: str) -> BucketFile:
        place = self._places.get(name)
        if place is None:
            raise InternalError(f"bucket {name} was not sent with the stage that opens it", reason="BUCKET_MISSING")
        number, first, length = place
        at = (self._store, number, name)
        found = _OPEN.get(at)
        if found is None:
            found = _OPEN[at] = parse(name, self._parcels[number].data[first : first + length])
            if len(_OPEN) > _KEPT_OPEN:
                _OPEN.popitem(last=False)
        else:
            _OPEN.move_to_end(at)
        return found

    def write(self, name: str, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> int:
        data = pack(meta, arrays)
        post("bucket", name, data)
        return len(data)


_OPEN: OrderedDict[tuple[str, int, str], BucketFile] = OrderedDict()
"""Open buckets of this process: Spark forgets between two stages what a worker has read of a broadcast."""


def _arrived(store: str, places: Mapping[str, Place], parcels: Mapping[int, Broadcast]) -> ParcelStore:
    """A stage has arrived in this process. What was open and belongs to a withdrawn parcel can be let go."""
    if parcels:
        for at in [a for a in _OPEN if a[0] != store or a[1] not in parcels]:
            del _OPEN[at]
    return ParcelStore(store, places, parcels)


class ByValue:
    """An executor whose tasks publish into outboxes; what comes back with their answers is received here."""

    def __init__(self, executor: Executor, store: ValueStore, results: Path) -> None:
        self._executor, self._store, self._results = executor, store, results

    @property
    def cores(self) -> int:
        return self._executor.cores

    def run(self, name: str, stage: Callable[[S, T], R], shared: S, tasks: Sequence[T]) -> list[R]:
        answers = self._executor.run(name, _posting, (stage, shared), tasks)
        for _, posted in answers:
            for one in posted:
                if one.kind == "bucket":
                    self._store.receive(one)
                else:
                    put(self._results / one.name, one.data)
        return [answer for answer, _ in answers]

    def broadcast(self, pieces: Sequence[bytes]) -> Broadcast:
        return self._executor.broadcast(pieces)

    def stop(self) -> None:
        self._executor.stop()


def _posting(shared: tuple[Callable[[S, T], R], S], task: T) -> tuple[R, list[Posted]]:
    stage, inner = shared
    with outbox() as posted:
        answer = stage(inner, task)
    return answer, posted
