"""Where state is kept: the one interface the engine sees, whether that is the state directory or a store (stored.py).

An event counts when it is in the `log`. Tasks have written the files it lists before, with what `for_tasks` and
`segments` gave them, where they survive as well as the log does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from runtime.buckets.file import Buckets
from runtime.buckets.runs import BucketFiles
from runtime.buckets.store import BucketStore
from runtime.connectors.base import Offset, Source
from runtime.control.state import State
from runtime.log.log import Log, LogContents
from runtime.results.log import ResultLog
from runtime.results.segment import SegmentFolder, SegmentTarget
from runtime.store.claim import Claim
from runtime.store.mark import check_alone


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """Bytes in the store and in this machine's cache of it; zero without one."""

    store_bytes: int = 0
    cache_bytes: int = 0


class Records(Protocol):
    """A log: the state when it began, and every event since. `since_snapshot` counts those."""

    since_snapshot: int

    def read(self) -> LogContents: ...

    def append(self, record: Any) -> None:
        """It counts when this returns."""
        ...

    def snapshot(self, state: Any) -> None: ...

    def close(self) -> None: ...


class Files(Protocol):
    """Buckets and results of one platform: opened when its id is known."""

    @property
    def buckets(self) -> BucketFiles: ...

    @property
    def results(self) -> ResultLog: ...

    def for_tasks(self) -> Buckets:
        """What the tasks of one run of a stage open and write buckets with."""
        ...

    def segments(self) -> SegmentTarget:
        """Where the tasks of one run of a stage put result segments."""
        ...

    def drop(self, name: str) -> None:
        """A bucket is not needed any more."""
        ...


class StateStore(Protocol):
    """Owned by the engine's thread. `claim`: on a store that other platforms could take; None: there is none."""

    @property
    def claim(self) -> Claim | None: ...

    @property
    def log(self) -> Records: ...

    @property
    def progress(self) -> Path:
        """The file that says how far the sinks have come."""
        ...

    def recover(self) -> LogContents:
        """The log that counts."""
        ...

    def files(self, platform: str) -> Files: ...

    def take_over(self, state: State) -> None:
        """From now on no other owner's writes count. Comes before anything is recorded."""
        ...

    def attach(self, source: Source, folder: str, offset: Offset) -> None:
        """What the source keeps in its folder survives, from here on."""
        ...

    def clear_source(self, folder: str, *, now: bool) -> None:
        """Nothing of a deleted stream is needed. `now`: it must be gone, because another one takes its name."""
        ...

    def save_progress(self, data: bytes) -> None:
        """How far the sinks have come. If that is lost, they get some epochs again."""
        ...

    def failed(self) -> None:
        """A run of a stage failed, or what it made is not used: it may have left debris."""
        ...

    def sweep(self, state: State, prepared: frozenset[str] = frozenset()) -> None:
        """After an epoch: delete what is not needed any more, as far as that is possible now. `prepared`: bucket files
        that are needed, although no record lists them yet."""
        ...

    def keep_only(self, state: State, source_folders: Iterable[str]) -> None:
        """On opening: remove all files that neither the state nor a source lists."""
        ...

    def figures(self, state: State) -> StoreFigures: ...

    def close(self) -> None: ...


class LocalState:
    """The state directory is all there is, and all tasks see it."""

    claim = None

    def __init__(self, directory: Path) -> None:
        check_alone(directory)
        self._directory = directory
        self.log = Log(directory / "log")
        self.progress = directory / "log" / "delivered"

    def recover(self) -> LogContents:
        return self.log.read()

    def files(self, platform: str) -> LocalFiles:
        return LocalFiles(self._directory, platform)

    def take_over(self, state: State) -> None:
        """The directory's lock keeps others out. A new state is written down at once, for its `platform`: the first
        file that belongs to it must not come before it."""
        if self.log.is_new:
            self.log.snapshot(state.to_json())

    def attach(self, source: Source, folder: str, offset: Offset) -> None:
        """Nothing to do: the source's folder is in the state directory."""

    def clear_source(self, folder: str, *, now: bool) -> None:
        """Nothing to do: there is no second copy."""

    def save_progress(self, data: bytes) -> None:
        """Nothing to do: the file is enough."""

    def failed(self) -> None:
        """Nothing to do: the next run writes under the same names, and what it does not write goes on opening."""

    def sweep(self, state: State, prepared: frozenset[str] = frozenset()) -> None:
        """Nothing to do: no deletion waits."""

    def keep_only(self, state: State, source_folders: Iterable[str]) -> None:
        remove_unlisted(self._directory / "buckets", state.bucket_files)
        remove_unlisted(self._directory / "results", state.segment_files)

    def figures(self, state: State) -> StoreFigures:
        return StoreFigures()

    def close(self) -> None:
        self.log.close()


class LocalFiles:
    def __init__(self, directory: Path, platform: str) -> None:
        self.buckets = BucketStore(directory / "buckets", platform)
        self.results = ResultLog(directory / "results")
        self._segments = SegmentFolder(str(directory / "results"), platform)

    def for_tasks(self) -> BucketStore:
        return self.buckets

    def segments(self) -> SegmentFolder:
        return self._segments

    def drop(self, name: str) -> None:
        self.buckets.drop(name)


def remove_unlisted(directory: Path, files: frozenset[str]) -> None:
    """Files that no committed epoch lists: left by a crash, or dropped just before one."""
    for path in directory.glob("*") if directory.exists() else ():
        if path.name not in files:
            path.unlink(missing_ok=True)
