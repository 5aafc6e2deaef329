"""What the engine has of the durable tier: everything that must survive goes through here before it is acknowledged.

    record        every log record (runtime.durable.log_objects), before the local one
    files         buckets and result segments that a record lists, before that record
    sources       pushed batches and the ledger of a files source, before the call that brought them returns
    deletions     after the record that makes the object useless, and never urgent: what could not be deleted is tried
                  again after the next epoch, and what a crash left is debris when the tier is opened

So at any moment the durable tier alone holds all that was acknowledged: its newest snapshot, the records after it,
and every file they list. The record of an epoch is the checkpoint's manifest; buckets never change, so a checkpoint
uploads what the epoch made and nothing else.

The local directory is the fast tier: everything in it is a copy, or not committed yet.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from optimizer.errors import InternalError, Unavailable
from runtime.buckets.refs import BucketRef, SourceRef
from runtime.control.events import BucketsRepaired, EpochCommitted, Event
from runtime.control.state import State
from runtime.crashpoints import reach
from runtime.durable.claim import Claim, take
from runtime.durable.log_objects import LogObjects, terms_of
from runtime.durable.shelf import Place, Shelf, tier_at
from runtime.durable.store import TieredStore, TieredValueStore
from runtime.exchange.by_value import ValueStore
from runtime.execution.executor import Broadcast

logger = logging.getLogger("ajoin.durable")

FOLDERS = ("buckets", "results", "sources")
THREADS = 8
DELIVERED = "delivered"


class Keeper:
    """Owned by the engine's thread; others may only fetch. Names of files are "buckets/b7.bucket" and so on."""

    def __init__(self, uri: str, directory: Path, fast_bytes: int | None, id: str) -> None:
        self.directory = directory
        self.tier = tier_at(uri)
        self.pool = ThreadPoolExecutor(THREADS, thread_name_prefix="ajoin-durable")
        self.claim: Claim = take(self.tier, id)
        self.log = LogObjects(self.claim)
        placed = places_of(self.claim)
        self.shelves = {
            folder: Shelf(uri, directory / folder, fast_bytes if folder != "sources" else None, placed[folder])
            for folder in FOLDERS
        }
        self._pending: dict[str, None] = {}
        self.upload_seconds = 0.0

    # -- what the engine's parts get ------------------------------------------------------------------------------

    def store(self) -> TieredStore:
        return TieredStore(self.shelves["buckets"])

    def value_store(self, broadcast: Callable[[Sequence[bytes]], Broadcast]) -> ValueStore:
        return TieredValueStore(self.shelves["buckets"], broadcast)

    def folder(self, name: str) -> Folder:
        return Folder(self, self.shelves["sources"], name)

    # -- files ----------------------------------------------------------------------------------------------------

    def upload(self, names: Iterable[str]) -> dict[str, Place]:
        """Local files, several at a time. They count when the record that lists them does: then `hold` them."""
        wanted = [name for name in names if not self.has(name)]
        if not wanted:
            return {}
        began = time.perf_counter()
        self.claim.check()
        placed = dict(zip(wanted, self.pool.map(self._upload, wanted), strict=True))
        self.upload_seconds = time.perf_counter() - began
        reach("tier.uploaded")
        return placed

    def _upload(self, name: str) -> Place:
        place = f"{self.claim.term}/{name}"
        try:
            return Place(place, self.tier.put_file(place, self.directory / name))
        except FileNotFoundError as e:  # whoever wrote it has to write it again
            raise InternalError(f"file {name} is missing before it was uploaded", reason="BUCKET_MISSING") from e

    def hold(self, placed: Mapping[str, Place]) -> None:
        for folder, shelf in self.shelves.items():
            mine = {n.partition("/")[2]: place for n, place in placed.items() if n.startswith(f"{folder}/")}
            if mine:
                shelf.hold(mine)
                shelf.make_room()

    def has(self, name: str) -> bool:
        folder, _, rest = name.partition("/")
        return rest in self.shelves[folder].places

    def discard(self, folder: str, names: Iterable[str]) -> None:
        """To be deleted with the next `sweep`."""
        self._pending.update(dict.fromkeys(self.shelves[folder].release(names)))

    def sweep(self) -> None:
        """Delete what was discarded; what cannot be deleted now waits."""
        pending = list(self._pending)
        try:
            for name, _ in zip(pending, self.pool.map(self.tier.delete, pending), strict=True):
                del self._pending[name]
                reach("tier.swept")
        except Unavailable as outage:
            logger.warning("%d objects wait to be deleted: %s", len(self._pending), outage)

    def keep_only(self, files: Sequence[str], streams: Iterable[str]) -> None:
        """On opening, when this owner's snapshot is there: put what is listed and lost, delete all that is not listed.

        `files` from the oldest epoch to the newest; `streams`: names of the folders of sources that exist.
        """
        self.hold(self.upload([name for name in files if (self.directory / name).exists()]))
        listed = {folder: [n.partition("/")[2] for n in files if n.startswith(f"{folder}/")] for folder in FOLDERS}
        sources, streams = self.shelves["sources"], set(streams)
        listed["sources"] = [name for name in sources.places if name.partition("/")[0] in streams]
        for folder, shelf in self.shelves.items():
            shelf.places = {name: shelf.places[name] for name in listed[folder] if name in shelf.places}
        kept = {place.object for shelf in self.shelves.values() for place in shelf.places.values()}
        used = {name.partition("/")[0] for name in kept} | {self.claim.term}
        try:
            for term in sorted(terms_of(self.claim.objects) - {self.claim.term}):
                self.tier.delete_folder(f"{term}/log" if term in used else term)
            debris = [
                name
                for name in self.claim.objects
                if name not in kept and name.partition("/")[0] in used and "/log/" not in name
            ]
            for _ in self.pool.map(self.tier.delete, debris):
                pass
        except Unavailable as outage:
            logger.warning("debris stays in the durable tier: %s", outage)

    # -- figures --------------------------------------------------------------------------------------------------

    def durable_bytes(self) -> int:
        return sum(place.size for shelf in self.shelves.values() for place in shelf.places.values())

    def close(self) -> None:
        self.pool.shutdown()


class Folder:
    """What one stream's source keeps, as runtime.connectors.base.Mirror."""

    def __init__(self, keeper: Keeper, shelf: Shelf, name: str) -> None:
        self._keeper, self._shelf, self._name = keeper, shelf, name

    def names(self) -> list[str]:
        start = f"{self._name}/"
        return sorted(n.removeprefix(start) for n in self._shelf.places if n.startswith(start))

    def put(self, name: str, data: bytes) -> None:
        self._placed(name, lambda place: self._keeper.tier.put(place, data))

    def put_file(self, name: str, path: Path) -> None:
        self._placed(name, lambda place: self._keeper.tier.put_file(place, path))

    def get(self, name: str) -> bytes:
        data = self._keeper.tier.get(self._shelf.places[f"{self._name}/{name}"].object)
        if data is None:
            raise FileNotFoundError(name)
        return data

    def fetch(self, name: str, path: Path) -> None:
        if not self._keeper.tier.fetch(self._shelf.places[f"{self._name}/{name}"].object, path):
            raise FileNotFoundError(name)

    def discard(self, names: Iterable[str]) -> None:
        self._keeper.discard("sources", [f"{self._name}/{name}" for name in names])

    def clear(self) -> None:
        """Delete all of it, now: nothing of a stream may be left when another one takes its name."""
        gone = self._shelf.release([f"{self._name}/{name}" for name in self.names()])
        for name in [*gone, *(p for p in self._keeper._pending if f"/sources/{self._name}/" in p)]:
            self._keeper.tier.delete(name)
            self._keeper._pending.pop(name, None)

    def _placed(self, name: str, put: Callable[[str], int]) -> None:
        whole = f"{self._name}/{name}"
        place = f"{self._keeper.claim.term}/sources/{whole}"
        self._keeper._pending.pop(place, None)
        size = put(place)
        reach("tier.source")
        self._keeper.claim.check()
        self._shelf.hold({whole: Place(place, size)})


def made(event: Event) -> list[str]:
    """The files that a record lists, so that they must be there before it."""
    refs: list[BucketRef]
    if isinstance(event, EpochCommitted):
        refs = [*event.sources, *event.joined]
        views = [v.file for _, views in event.views for v in views]
        segments = [f"results/{s.file}" for s in event.segments]
    elif isinstance(event, BucketsRepaired):
        refs = [*(ref for _, ref in event.sources if ref is not None), *event.joined]
        views, segments = [], []
    else:
        return []
    files = {file for ref in refs for file in files_of(ref)} | set(views)
    return [f"buckets/{file}" for file in sorted(files)] + segments


def listed(state: State) -> list[str]:
    """All files of a state, oldest epoch first."""
    refs: list[BucketRef] = [*state.sources.values(), *state.joined.values()]
    refs.sort(key=lambda ref: ref.epoch)
    buckets = [f"buckets/{file}" for ref in refs for file in sorted(files_of(ref))]
    return buckets + [f"results/{s.file}" for epoch in sorted(state.segments) for s in state.segments[epoch]]


def files_of(ref: BucketRef) -> frozenset[str]:
    return ref.files if isinstance(ref, SourceRef) else frozenset((ref.file,))


def places_of(claim: Claim) -> dict[str, dict[str, Place]]:
    """Of every file the newest copy: a term's objects are newer than those of all terms before it."""
    found: dict[str, dict[str, Place]] = {folder: {} for folder in FOLDERS}
    if claim.truth is None:
        return found  # nothing was ever acknowledged
    for name in sorted(claim.objects, key=lambda n: (n[:10], n.startswith(claim.truth or "-"), n)):
        term, _, rest = name.partition("/")
        folder, _, file = rest.partition("/")
        hidden = file.rpartition("/")[2].startswith(".")  # left by a put that was cut short
        if folder in found and file and not hidden and term[:10] <= claim.truth[:10]:
            found[folder].pop(file, None)
            found[folder][file] = Place(name, claim.objects[name])
    return found
