"""Where a files source finds its files, and how a task gets at one.

    Directory      a path. The driver lists it. Tasks open the files by their paths if they see them: because they run
                   on the driver's machine, or because the path is said to be one that all machines see (`shared`)
    ObjectFolder   a URI of an object store (s3, gcs, abfs, hdfs). The driver lists it, tasks fetch the objects

A listing that fails is no news, and said in the log. An object store that does not answer is looked at again after a
pause that doubles up to 30 s, because waiting for it holds up all streams. A task that cannot reach what the driver has
listed meets an outage, and its epoch waits.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from optimizer.errors import AJoinError, Unavailable
from runtime.connectors.base import Kept
from runtime.connectors.options import bad_option
from runtime.store.objects import objects_at, shown

_LOG = logging.getLogger(__name__)
_PAUSES_MS = (500, 30_000)
_ASK_S = 2.0
"""How long the driver waits for a list. It serves all streams, so not long."""

Listing = list[tuple[str, int]]
"""Names and sizes, in any order."""
Takes = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class OnDisk:
    """A file by its path. `shared`: the task's machine may be another one than that which listed it."""

    path: str
    shared: bool = False

    def size(self) -> int:
        try:
            return os.stat(self.path).st_size
        except FileNotFoundError:
            folder = os.path.dirname(self.path)
            if self.shared and not os.path.isdir(folder):
                raise Unavailable(
                    f"a machine that runs tasks does not see the folder {folder}",
                    reason="SOURCE_UNAVAILABLE",
                    hint="mount it there, or declare the stream without the option shared; nothing is lost, and the "
                    "epoch waits",
                ) from None
            raise


@dataclass(frozen=True, slots=True)
class InObjectStore:
    """An object by its name. The URI may hold credentials."""

    uri: str = field(repr=False)
    name: str

    def get(self) -> bytes | None:
        return objects_at(self.uri).get(self.name)


class Folder(Protocol):
    @property
    def everywhere(self) -> bool:
        """Do tasks on other machines see it?"""
        ...

    @property
    def far(self) -> bool:
        """Is it behind a network that may not answer?"""
        ...

    def check(self) -> None:
        """BAD_CONNECTOR_OPTION if it is not there. Asked once, when the stream is created: one that goes away later
        must not stop anything."""
        ...

    def list(self, takes: Takes, now_ms: int) -> Listing:
        """Complete files with such names that are directly in it. OSError or Unavailable if nobody can tell."""
        ...

    def content(self, name: str) -> OnDisk | Kept: ...


@dataclass(frozen=True, slots=True)
class Directory:
    path: Path
    settle_ms: int = 0
    everywhere: bool = False
    far = False

    def __str__(self) -> str:
        return str(self.path)

    def check(self) -> None:
        if not self.path.is_dir():
            raise bad_option(
                f"option path of connector files: there is no directory {self.path}",
                "create it on the machine that runs the platform, or correct the path",
            )

    def list(self, takes: Takes, now_ms: int) -> Listing:
        with os.scandir(self.path) as listing:
            new = [entry for entry in listing if takes(entry.name)]
        return [(e.name, size) for e in new if (size := self._complete_size(e, now_ms)) > 0]

    def _complete_size(self, entry: os.DirEntry[str], now_ms: int) -> int:
        """0 when the file is not to be taken (yet)."""
        try:
            if not entry.is_file():
                return 0
            status = entry.stat()
        except FileNotFoundError:
            return 0
        settled = now_ms - status.st_mtime_ns // 1_000_000 >= self.settle_ms or not self.settle_ms
        return status.st_size if settled else 0

    def content(self, name: str) -> OnDisk:
        return OnDisk(str(self.path / name), self.everywhere)


@dataclass(frozen=True, slots=True)
class ObjectFolder:
    """Objects appear whole, so there is nothing to wait for."""

    uri: str = field(repr=False)
    everywhere = True
    far = True

    def __str__(self) -> str:
        return shown(self.uri)

    def check(self) -> None:
        """Folders of an object store are parts of names: one without objects looks like one that does not exist."""
        try:
            objects_at(self.uri).list()
        except AJoinError as why:
            raise bad_option(f"option path of connector files: {why.message}", why.hint) from why

    def list(self, takes: Takes, now_ms: int) -> Listing:
        found = objects_at(self.uri).list()
        return [(name, size) for name, size in found.items() if "/" not in name and size > 0 and takes(name)]

    def content(self, name: str) -> InObjectStore:
        return InObjectStore(self.uri, name)


class Looks:
    """At one folder; owned by its source. One that is far away is listed on a thread of its own, because nobody knows
    how long that takes: what comes too late for one look is what the next one gets."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._again_ms = self._pause_ms = 0
        self._asked: Future[Listing] | None = None

    def list(self, takes: Takes, now_ms: int) -> Listing:
        """Empty if nobody can tell."""
        if self._pause_ms and now_ms < self._again_ms:
            return []
        try:
            found = self._ask(takes, now_ms)
        except OSError as why:
            _LOG.warning("cannot list %s: %s", self._folder, why.strerror or why)
            return []
        except Unavailable as why:
            least, most = _PAUSES_MS
            self._pause_ms = min(most, max(least, 2 * self._pause_ms))
            self._again_ms = now_ms + self._pause_ms
            _LOG.warning("no new files, next try in %.1f s: %s", self._pause_ms / 1000, why.message)
            return []
        self._pause_ms = 0
        return found

    def _ask(self, takes: Takes, now_ms: int) -> Listing:
        if not self._folder.far:
            return self._folder.list(takes, now_ms)
        patience = 0.0
        if self._asked is None:
            patience, self._asked = _ASK_S, Future()
            threading.Thread(target=self._list, args=(self._asked, takes, now_ms), daemon=True).start()
        wait([self._asked], patience)
        if not self._asked.done():
            return []
        asked, self._asked = self._asked, None
        return asked.result()

    def _list(self, asked: Future[Listing], takes: Takes, now_ms: int) -> None:
        try:
            asked.set_result(self._folder.list(takes, now_ms))
        except BaseException as why:
            asked.set_exception(why)
