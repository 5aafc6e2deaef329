"""State in two tiers: everything that must survive goes to the durable one before it is acknowledged.

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
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from optimizer.errors import InternalError, Unavailable
from runtime.connectors.base import Offset, Source
from runtime.control.events import EpochCommitted, Event, StageSeconds
from runtime.control.state import State
from runtime.crashpoints import reach
from runtime.durable.bucket_store import TieredStore
from runtime.durable.cached_folder import CachedFolder, StoredObject, tier_at
from runtime.durable.claim import Claim, take
from runtime.durable.interface import Secured, TierFigures, remove_unlisted
from runtime.durable.listed import files_of_event, files_of_state
from runtime.durable.log_objects import LogObjects, terms_of
from runtime.durable.mark import mark
from runtime.durable.restore import DELIVERED, FOLDERS, recover
from runtime.durable.result_log import TieredResults
from runtime.durable.source_folder import SourceFolder
from runtime.log.log import Log, LogContents

logger = logging.getLogger("ajoin.durable")

THREADS = 8


class TieredState:
    """Owned by the engine's thread; others may only fetch. Names of files are "buckets/b7.bucket" and so on."""

    def __init__(self, uri: str, directory: Path, fast_bytes: int | None, id: str) -> None:
        self.directory = directory
        self.tier = tier_at(uri)
        self.claim: Claim = take(self.tier, id)
        self._log = LogObjects(self.claim)
        stored = newest_copies(self.claim)
        self.folders = {
            folder: CachedFolder(uri, directory / folder, fast_bytes if folder != "sources" else None, stored[folder])
            for folder in FOLDERS
        }
        self.results = TieredResults(self.folders["results"], lambda names: self.discard("results", names))
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="ajoin-durable")
        self._discarded: dict[str, None] = {}
        self._upload_seconds = 0.0

    def buckets(self, platform: str) -> TieredStore:
        return TieredStore(self.folders["buckets"], platform)

    # -- opening --------------------------------------------------------------------------------------------------

    def recover(self, log: Log) -> LogContents:
        contents, place = recover(self.tier, self.claim, self.directory, log.read, self._pool.map)
        log.follow(self._log, place)
        return contents

    def take_over(self, state: State, log: Log) -> None:
        """If the tier is empty and the directory is not, everything is uploaded before the first snapshot."""
        self.hold(self._upload(files_of_state(state)) if self.claim.truth is None else {})
        log.snapshot(state.to_json())  # in this owner's term: from here on no other one's writes count
        mark(self.directory, self.tier.uri)

    def keep_only(self, state: State, source_folders: Iterable[str]) -> None:
        """Put what is listed and lost, delete all that is not listed."""
        remove_unlisted(self.folders["buckets"].directory, state.bucket_files)
        self.results.keep_only(state.segment_files)
        files = files_of_state(state)
        self.hold(self._upload([name for name in files if (self.directory / name).exists()]))
        listed = {folder: [n.partition("/")[2] for n in files if n.startswith(f"{folder}/")] for folder in FOLDERS}
        streams = set(source_folders)
        listed["sources"] = [n for n in self.folders["sources"].objects if n.partition("/")[0] in streams]
        for name, folder in self.folders.items():
            folder.objects = {file: folder.objects[file] for file in listed[name] if file in folder.objects}
        try:
            self._delete_debris()
        except Unavailable as outage:
            logger.warning("debris stays in the durable tier: %s", outage)

    def _delete_debris(self) -> None:
        kept = {stored.name for folder in self.folders.values() for stored in folder.objects.values()}
        used = {name.partition("/")[0] for name in kept} | {self.claim.term}
        for term in sorted(terms_of(self.claim.objects) - {self.claim.term}):
            self.tier.delete_folder(f"{term}/log" if term in used else term)
        debris = [
            name
            for name in self.claim.objects
            if name not in kept and name.partition("/")[0] in used and "/log/" not in name
        ]
        for _ in self._pool.map(self.tier.delete, debris):
            pass

    # -- sources --------------------------------------------------------------------------------------------------

    def attach(self, source: Source, folder: str, offset: Offset) -> None:
        source.mirror(self._source(folder), offset)

    def clear_source(self, folder: str, *, now: bool) -> None:
        mine = self._source(folder)
        mine.discard(mine.names())
        if now:
            waiting = [name for name in self._discarded if f"/sources/{folder}/" in name]
            for name in waiting:
                self.tier.delete(name)
                del self._discarded[name]

    def _source(self, folder: str) -> SourceFolder:
        return SourceFolder(self.claim, self.folders["sources"], folder, self._discarded)

    # -- events and their files -----------------------------------------------------------------------------------

    def secure(self, event: Event) -> Secured:
        objects = self._upload(files_of_event(event))
        if isinstance(event, EpochCommitted):
            event = replace(event, seconds=(*event.seconds, StageSeconds("upload", round(self._upload_seconds, 6))))
        return Secured(event, objects)

    def _upload(self, names: Sequence[str]) -> dict[str, StoredObject]:
        """Local files, several at a time. They count when the record that lists them does: then `hold` them."""
        wanted = [name for name in names if not self._has(name)]
        if not wanted:
            return {}
        began = time.perf_counter()
        self.claim.check()
        objects = dict(zip(wanted, self._pool.map(self._upload_one, wanted), strict=True))
        self._upload_seconds = time.perf_counter() - began
        reach("tier.uploaded")
        return objects

    def _upload_one(self, name: str) -> StoredObject:
        object = f"{self.claim.term}/{name}"
        try:
            return StoredObject(object, self.tier.put_file(object, self.directory / name))
        except FileNotFoundError as e:  # like a damaged bucket: the epoch is run again
            raise InternalError(f"file {name} is missing before it was uploaded", reason="BUCKET_MISSING") from e

    def hold(self, objects: Mapping[str, StoredObject]) -> None:
        for name, folder in self.folders.items():
            mine = {n.partition("/")[2]: stored for n, stored in objects.items() if n.startswith(f"{name}/")}
            if mine:
                folder.hold(mine)
                folder.make_room()

    def _has(self, name: str) -> bool:
        folder, _, file = name.partition("/")
        return file in self.folders[folder].objects

    def save_progress(self, data: bytes) -> None:
        with suppress(Unavailable):
            self.tier.put(DELIVERED, data)

    def discard_buckets(self, names: Iterable[str]) -> None:
        self.discard("buckets", names)

    def discard(self, folder: str, names: Iterable[str]) -> None:
        """To be deleted with the next `sweep`."""
        self._discarded.update(dict.fromkeys(self.folders[folder].release(names)))

    def sweep(self) -> None:
        waiting = list(self._discarded)
        try:
            for name, _ in zip(waiting, self._pool.map(self.tier.delete, waiting), strict=True):
                del self._discarded[name]
                reach("tier.swept")
        except Unavailable as outage:
            logger.warning("%d objects wait to be deleted: %s", len(self._discarded), outage)

    # -- figures --------------------------------------------------------------------------------------------------

    def figures(self) -> TierFigures:
        fast = sum(sum(folder.local().values()) for folder in self.folders.values())
        durable = sum(stored.size for folder in self.folders.values() for stored in folder.objects.values())
        return TierFigures(fast, durable, self._upload_seconds)

    def close(self) -> None:
        self._pool.shutdown()


def newest_copies(claim: Claim) -> dict[str, dict[str, StoredObject]]:
    """Of every file the newest copy: a term's objects are newer than those of all terms before it."""
    newest: dict[str, dict[str, StoredObject]] = {folder: {} for folder in FOLDERS}
    if claim.truth is None:
        return newest  # nothing was ever acknowledged
    for name in sorted(claim.objects, key=lambda n: (n[:10], n.startswith(claim.truth or "-"), n)):
        term, _, rest = name.partition("/")
        folder, _, file = rest.partition("/")
        hidden = file.rpartition("/")[2].startswith(".")  # left by a put that was cut short
        if folder in newest and file and not hidden and term[:10] <= claim.truth[:10]:
            newest[folder].pop(file, None)
            newest[folder][file] = StoredObject(name, claim.objects[name])
    return newest
