"""State in a store: what tasks exchange, what survives and what is served are the same objects.

    buckets/<term>/b7.12.bucket        written by tasks, in the owner's term and the run of their stage
    results/<term>/e….12.segment       (runtime.buckets.runs), before the record that lists them, by their full names
    <term>/log/…                       the log (runtime.store.log), <term>/sources/… what sources keep
    owner, format, delivered           who may write; version of the format; how far the sinks have come

So at any moment the store alone holds all that was acknowledged, and nothing of it passes through the driver. Every
object that neither the log nor a source lists is debris: of a task that came too late, of a run that failed, of an
owner before. Deleting is never urgent. What a record has made useless goes after the epoch; debris of a failed run one
epoch later (so that what the next epoch has read ahead is spared); all other debris when the store is opened.

The local directory holds a lock, a cache, and what sources keep for themselves; it may be lost at any time. Nothing in
it is believed on opening: the cache begins empty, and sources get their files from here.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from optimizer.errors import Unavailable
from runtime.buckets.refs import BucketRef, PartialRef
from runtime.buckets.runs import BucketFiles, Run, RunBuckets, run_of
from runtime.buckets.store import BucketStore
from runtime.connectors.base import Offset, Source
from runtime.control.state import State
from runtime.crashpoints import reach
from runtime.execution.shipped import ShippedOnce
from runtime.files import write_atomically
from runtime.log.log import LogContents
from runtime.results.log import ResultLog
from runtime.results.segment import SegmentFolder, SegmentTarget
from runtime.store import adopt, buckets, results
from runtime.store.buckets import ObjectBuckets
from runtime.store.cache import Cache
from runtime.store.claim import Claim, is_term, take
from runtime.store.interface import StoreFigures
from runtime.store.log import StoreLog
from runtime.store.mark import mark, store_of
from runtime.store.objects import objects_at
from runtime.store.results import ObjectResults, ObjectSegments, PathResults
from runtime.store.source_folder import SourceFolder, SourceFolders

logger = logging.getLogger("ajoin.store")

THREADS = 8
DELIVERED = "delivered"
TOLD = 8
"""So many stages' worth of dropped files are named to executors: one that had no task meanwhile keeps its copies until
the bound of its cache."""


class StoredState:
    """Owned by the engine's thread; others may only read and count runs. `together`: all tasks run on one machine."""

    def __init__(self, uri: str, directory: Path, cache_bytes: int, id: str, together: bool = True) -> None:
        self._uri, self._directory, self._cache_bytes = uri, directory, cache_bytes
        self.together = together
        self.objects = objects_at(uri)
        self.claim: Claim = take(self.objects, id)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="ajoin-store")
        self.log = StoreLog(self.claim, self._pool.map)
        self.progress = directory / DELIVERED
        self._discarded: dict[str, None] = {}
        self._sources = SourceFolders(
            self.claim, self._discard, lambda object: self._discarded.pop(object, None), for_tasks=not together
        )
        self._runs, self._lock = 0, threading.Lock()
        self._failed_until, self._swept_until = 0, 0
        self._cannot_delete = False
        self._cache: Cache | None = None

    # -- opening --------------------------------------------------------------------------------------------------

    def recover(self) -> LogContents:
        contents = self.log.read()
        if self.claim.truth is None:
            return adopt.local_state(self._directory, self._uri)
        adopt.check_leftover(self._directory, self._uri, contents)
        ours = bool(store_of(self._directory)) or adopt.has_log(self._directory)
        mark(self._directory, self._uri)  # first: what is made here from now on is ours to remove
        if ours:
            shutil.rmtree(self._directory / "sources", ignore_errors=True)
        self.progress.unlink(missing_ok=True)
        if (data := self.objects.get(DELIVERED)) is not None:
            write_atomically(self.progress, data)
        return contents

    def files(self, platform: str) -> StoreFiles:
        return StoreFiles(self, platform)

    def take_over(self, state: State) -> None:
        """If the store is empty and the directory is not, everything is uploaded before the first snapshot."""
        if self.claim.truth is None:
            adopt.upload(self._directory, self.objects, self.progress, state, self._pool.map)
        self.log.snapshot(state.to_json())  # in this owner's term: from here on no other one's writes count
        mark(self._directory, self._uri)
        adopt.remove_local(self._directory)

    def keep_only(self, state: State, source_folders: Iterable[str]) -> None:
        self._sources.only(source_folders)
        kept = {*_listed(state), *self._sources.objects.values()}
        try:
            objects = self.objects.list()
            terms = {term for name in objects if is_term(term := name.partition("/")[0])} - {self.claim.term}
            for term in sorted(terms):
                self.objects.delete_folder(f"{term}/log")
            self._delete([name for name in objects if name not in kept and self._is_debris(name)])
        except Unavailable as outage:
            logger.warning("debris stays in the store: %s", outage)

    def _is_debris(self, name: str) -> bool:
        """Of what no record and no source lists. Names that are not the platform's are left alone."""
        top, _, rest = name.partition("/")
        folder = rest.partition("/")[0]
        return top in (buckets.FOLDER, results.FOLDER) or (is_term(top) and folder == "sources")

    # -- sources --------------------------------------------------------------------------------------------------

    def attach(self, source: Source, folder: str, offset: Offset) -> None:
        source.mirror(self._source(folder), offset)

    def clear_source(self, folder: str, *, now: bool) -> None:
        mine = self._source(folder)
        mine.discard(mine.names())
        if now:
            for name in [name for name in self._discarded if f"/sources/{folder}/" in name]:
                self.objects.delete(name)
                del self._discarded[name]

    def _source(self, folder: str) -> SourceFolder:
        return self._sources.of(folder)

    def save_progress(self, data: bytes) -> None:
        with suppress(Unavailable):
            self.objects.put(DELIVERED, data)

    # -- runs and what they leave -----------------------------------------------------------------------------------

    def next_run(self) -> Run:
        """From any thread: stages of two epochs run side by side."""
        with self._lock:
            self._runs += 1
            return Run(self.claim.term, self._runs)

    def failed(self) -> None:
        self._failed_until = self._runs

    def _discard(self, object: str) -> None:
        """To be deleted with the next `sweep`."""
        self._discarded[object] = None

    def discard(self, folder: str, name: str) -> None:
        self._discard(f"{folder}/{name}")

    def sweep(self, state: State, prepared: frozenset[str] = frozenset()) -> None:
        waiting = list(self._discarded)
        try:
            if self._cannot_delete and waiting:
                self.objects.delete(waiting[0])  # the others would wait for the same answer, one after the other
            for name, _ in zip(waiting, self._pool.map(self.objects.delete, waiting), strict=True):
                self._discarded.pop(name, None)
                reach("store.swept")
            if self._failed_until > 0:
                self._delete(self._left_by_failed_runs(state, prepared))
                if self._swept_until >= self._failed_until:
                    self._failed_until = 0
            self._swept_until = self._runs
            if self._cannot_delete:
                logger.info("what is not needed any more is deleted again")
            self._cannot_delete = False
        except Unavailable as outage:
            if not self._cannot_delete:
                logger.warning("what is not needed any more stays in the store until it can be deleted: %s", outage)
            self._cannot_delete = True

    def _left_by_failed_runs(self, state: State, prepared: frozenset[str]) -> list[str]:
        """Unlisted objects of runs that began before the last sweep."""
        listed, left = _listed(state) | {f"{buckets.FOLDER}/{f}" for f in prepared}, []
        for folder in (buckets.FOLDER, results.FOLDER):
            for name in self.objects.list(f"{folder}/{self.claim.term}"):
                run = run_of(name.removeprefix(f"{folder}/"))
                if name not in listed and run is not None and run.number <= self._swept_until:
                    left.append(name)
        return left

    def _delete(self, names: Iterable[str]) -> None:
        for _ in self._pool.map(self.objects.delete, names):
            pass

    # -- the rest -------------------------------------------------------------------------------------------------

    @property
    def cache(self) -> Cache:
        """Of the driver's machine; only for stores that cannot be mapped in place."""
        if self._cache is None:
            self._cache = Cache(self._directory / "cache", self._cache_bytes)
            self._cache.clear()  # marks of an earlier process may be on disk without what they mark
        return self._cache

    @property
    def address(self) -> tuple[str, int]:
        return self._uri, self._cache_bytes

    def figures(self, state: State) -> StoreFigures:
        refs: list[BucketRef | PartialRef] = [*state.sources.values(), *state.joined.values(), *state.partials.values()]
        stored = sum(ref.bytes for ref in refs) + sum(s.bytes for of in state.segments.values() for s in of)
        held = 0 if self._cache is None else sum(self._cache.held().values())
        return StoreFigures(stored, held)

    def close(self) -> None:
        self._pool.shutdown()


class StoreFiles:
    """Buckets and results in a store: mapped where they lie if it is a path, else through the cache."""

    buckets: BucketFiles
    results: ResultLog

    def __init__(self, state: StoredState, platform: str) -> None:
        self._state, self._platform = state, platform
        uri, bound = state.address
        bucket_path, result_path = state.objects.path(buckets.FOLDER), state.objects.path(results.FOLDER)
        self._path = result_path
        self._dropped: list[str] = []
        self._told: tuple[ShippedOnce[tuple[str, ...]], ...] = ()
        self._lock = threading.Lock()
        if bucket_path is not None and result_path is not None:
            self.buckets = BucketStore(bucket_path, platform)
            self.results = PathResults(result_path, self._drop_segment)
        else:
            self.buckets = ObjectBuckets(uri, platform, state.cache, bound, keeps=state.together)
            self.results = ObjectResults(uri, state.cache, self._drop_segment)

    def for_tasks(self) -> RunBuckets:
        return RunBuckets(self.buckets, self._state.next_run(), self._gone())

    def _gone(self) -> tuple[ShippedOnce[tuple[str, ...]], ...]:
        """What was dropped lately: executors need not keep copies of it."""
        with self._lock:
            if self._dropped and self._path is None:
                self._told = (*self._told[1 - TOLD :], ShippedOnce(tuple(self._dropped)))
            self._dropped = []
            return self._told

    def segments(self) -> SegmentTarget:
        run = self._state.next_run()
        if self._path is not None:
            return SegmentFolder(str(self._path), self._platform, run)
        return ObjectSegments(self._state.address[0], self._platform, run)

    def drop(self, name: str) -> None:
        self.buckets.forget(name)
        with self._lock:
            self._dropped.append(name)
        self._state.discard(buckets.FOLDER, name)

    def _drop_segment(self, name: str) -> None:
        self._state.discard(results.FOLDER, name)


def _listed(state: State) -> set[str]:
    """The objects that a state lists."""
    return {f"{buckets.FOLDER}/{f}" for f in state.bucket_files} | {
        f"{results.FOLDER}/{f}" for f in state.segment_files
    }
