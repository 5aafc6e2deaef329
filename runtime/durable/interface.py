"""Where state survives: the one interface the engine sees, whether the state directory is all there is or only the
fast one of two tiers (tiered.py).

An event counts when it is in the log. `secure` comes before that and puts every file the event lists where it must
survive; `hold` comes after it. `LocalState` has nothing to do in between: the directory is the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from runtime.buckets.store import BucketStore
from runtime.connectors.base import Offset, Source
from runtime.control.events import Event
from runtime.control.state import State
from runtime.durable.cached_folder import StoredObject
from runtime.durable.claim import Claim
from runtime.durable.mark import check_alone
from runtime.log.log import Log, LogContents
from runtime.results.log import ResultLog


class Secured(NamedTuple):
    """The event to append, and the copies that were made for it."""

    event: Event
    objects: Mapping[str, StoredObject]


@dataclass(frozen=True, slots=True)
class TierFigures:
    """Bytes in the state directory and in the durable tier, seconds of the last upload; zero without such a tier."""

    fast_bytes: int = 0
    durable_bytes: int = 0
    upload_seconds: float = 0.0


class Durability(Protocol):
    """Owned by the engine's thread. `claim`: on a tier that other platforms could take; None: there is none."""

    @property
    def claim(self) -> Claim | None: ...

    def buckets(self, platform: str) -> BucketStore:
        """The bucket files of that platform."""
        ...

    @property
    def results(self) -> ResultLog: ...

    def recover(self, log: Log) -> LogContents:
        """The log that counts; afterwards the directory holds no file that does not belong to it."""
        ...

    def take_over(self, state: State, log: Log) -> None:
        """From now on no other owner's writes count. Comes before anything is recorded."""
        ...

    def attach(self, source: Source, folder: str, offset: Offset) -> None:
        """What the source keeps in its folder survives, from here on."""
        ...

    def clear_source(self, folder: str, *, now: bool) -> None:
        """Nothing of a deleted stream is needed. `now`: it must be gone, because another one takes its name."""
        ...

    def secure(self, event: Event) -> Secured: ...

    def hold(self, objects: Mapping[str, StoredObject]) -> None:
        """The record that lists these copies is in the log."""
        ...

    def save_progress(self, data: bytes) -> None:
        """How far the sinks have come. If that is lost, they get some epochs again."""
        ...

    def discard_buckets(self, names: Iterable[str]) -> None: ...

    def sweep(self) -> None:
        """Delete what was discarded, as far as that is possible now."""
        ...

    def keep_only(self, state: State, source_folders: Iterable[str]) -> None:
        """On opening: remove all files that neither the state nor a source lists."""
        ...

    def figures(self) -> TierFigures: ...

    def close(self) -> None: ...


class LocalState:
    """The state directory is all there is."""

    claim = None

    def __init__(self, directory: Path) -> None:
        check_alone(directory)
        self._buckets = directory / "buckets"
        self.results = ResultLog(directory / "results")

    def buckets(self, platform: str) -> BucketStore:
        return BucketStore(self._buckets, platform)

    def recover(self, log: Log) -> LogContents:
        return log.read()

    def take_over(self, state: State, log: Log) -> None:
        """The directory's lock keeps others out. A new state is written down at once, for its `platform`: the first
        file that belongs to it must not come before it."""
        if log.is_new:
            log.snapshot(state.to_json())

    def attach(self, source: Source, folder: str, offset: Offset) -> None:
        """Nothing to do: the source's folder is in the state directory."""

    def clear_source(self, folder: str, *, now: bool) -> None:
        """Nothing to do: there is no second copy."""

    def secure(self, event: Event) -> Secured:
        return Secured(event, {})

    def hold(self, objects: Mapping[str, StoredObject]) -> None:
        """Nothing to do: there are no copies."""

    def save_progress(self, data: bytes) -> None:
        """Nothing to do: the file log/delivered is enough."""

    def discard_buckets(self, names: Iterable[str]) -> None:
        """Nothing to do: the exchange deletes the files."""

    def sweep(self) -> None:
        """Nothing to do: no deletion waits."""

    def keep_only(self, state: State, source_folders: Iterable[str]) -> None:
        remove_unlisted(self._buckets, state.bucket_files)
        self.results.keep_only(state.segment_files)

    def figures(self) -> TierFigures:
        return TierFigures()

    def close(self) -> None:
        """Nothing is open."""


def remove_unlisted(directory: Path, files: frozenset[str]) -> None:
    """Files that no committed epoch lists: left by a crash, or dropped just before one."""
    for path in directory.glob("*") if directory.exists() else ():
        if path.name not in files:
            path.unlink(missing_ok=True)
