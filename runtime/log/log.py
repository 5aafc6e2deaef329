"""The log in the state directory: what was decided, before it was done.

One JSON record a line, each with its checksum, appended and forced to disk before the caller goes on. The state of
the coordinator is the fold of this log, so recovery is reading it. Now and then the whole state is written as a
snapshot (`snapshot-N.json`, renamed into place) and a new log file is begun; recovery then reads the newest snapshot
and the log after it.

With a durable tier, snapshots and records go there first and come here second (`follow`): see runtime.durable.

A torn last line (the machine died while writing it) was never acknowledged and is cut off. A damaged line anywhere
else is an error: the platform would rather not start than start with a hole.
"""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TextIO

from optimizer.errors import FailedPrecondition, InternalError
from runtime.crashpoints import reach
from runtime.execution.outage import as_outage

FORMAT = 3


class StateLock:
    """One process per state directory. The operating system releases it when the process dies, however it dies."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = open(directory / "lock", "a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            self._file.close()
            raise FailedPrecondition(
                f"the state directory {directory} is used by another running platform",
                reason="STATE_LOCKED",
                hint="stop it first, or choose another --state-dir",
            ) from e

    def release(self) -> None:
        self._file.close()


class Objects(Protocol):
    """The same log somewhere else: `number` counts snapshots, `sequence` the records after one."""

    def append(self, number: int, sequence: int, line: str) -> None: ...

    def snapshot(self, number: int, line: str) -> None: ...

    def tidy(self, number: int) -> None: ...


class Log:
    """Append-only records. Owned by the engine's thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        version = directory / "format"
        if version.exists() and version.read_text().strip() != str(FORMAT):
            raise FailedPrecondition(
                f"{directory} was written in format {version.read_text().strip()}, this version reads {FORMAT}",
                reason="STATE_FORMAT",
            )
        if not version.exists():
            temporary = directory / "format.tmp"
            temporary.write_text(f"{FORMAT}\n")
            os.replace(temporary, version)
        self._number = max((int(p.stem.split("-")[1]) for p in directory.glob("snapshot-*.json")), default=0)
        self._tidy()
        self._file: TextIO | None = None
        self._objects: Objects | None = None
        self.since_snapshot = 0

    def follow(self, objects: Objects, number: int) -> None:
        """From the next snapshot on, which must come first, nothing is written here that is not there already."""
        self.close()
        self._objects, self._number = objects, max(number, self._number)

    def read(self) -> tuple[Any | None, list[Any]]:
        """(snapshot, records after it)."""
        path = self.directory / f"snapshot-{self._number}.json"
        snapshot = None
        if path.exists():
            snapshot = next(_lines(path, torn=False), None)
            if snapshot is None:
                raise InternalError(f"{path.name} is damaged", reason="LOG_CORRUPT")
        records = list(_lines(self._path, torn=True)) if self._path.exists() else []
        self.since_snapshot = len(records)
        return snapshot, records

    @property
    def _path(self) -> Path:
        return self.directory / f"log-{self._number}.jsonl"

    def append(self, record: Any) -> None:
        """On disk when this returns."""
        line = _line(record)
        if self._objects is not None:
            self._objects.append(self._number, self.since_snapshot, line)
        if self._file is None:
            self._file = open(self._path, "a", encoding="utf-8")
            _sync_directory(self.directory)
        size = os.fstat(self._file.fileno()).st_size
        reach("log.append.before")
        try:
            reach("log.append.torn", lambda: self._tear(line))
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as e:
            self._take_back(size)
            raise as_outage(e) or e from e
        reach("log.append.after")
        self.since_snapshot += 1

    def _tear(self, line: str) -> None:
        """What a process leaves that dies while it writes."""
        assert self._file is not None
        self._file.write(line[: len(line) // 2])
        self._file.flush()

    def _take_back(self, size: int) -> None:
        """A record that is not wholly on disk was never written; its beginning must not stand before the next one."""
        assert self._file is not None
        with suppress(OSError):  # what is buffered does not fit either
            self._file.close()
        self._file = None
        os.truncate(self._path, size)

    def snapshot(self, state: Any) -> None:
        """Begin a new log whose start is `state`; the old one is removed once the new start is safe."""
        temporary, line = self.directory / "snapshot.tmp", _line(state)
        if self._objects is not None:
            self._objects.snapshot(self._number + 1, line)
        with open(temporary, "w", encoding="utf-8") as f:
            f.write(line)
            f.flush()
            os.fsync(f.fileno())
        reach("snapshot.written")
        os.replace(temporary, self.directory / f"snapshot-{self._number + 1}.json")
        reach("snapshot.renamed")
        _sync_directory(self.directory)
        self.close()
        self._number, self.since_snapshot = self._number + 1, 0
        self._tidy()
        if self._objects is not None:
            self._objects.tidy(self._number)
        reach("snapshot.tidied")

    def _tidy(self) -> None:
        """Remove everything a newer snapshot has replaced, also what a crash in the middle of this left."""
        current = {f"snapshot-{self._number}.json", f"log-{self._number}.jsonl"}
        for path in [*self.directory.glob("snapshot-*.json"), *self.directory.glob("log-*.jsonl")]:
            if path.name not in current:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _line(record: Any) -> str:
    text = json.dumps(record, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x} {text}\n"


def _lines(path: Path, *, torn: bool) -> Iterator[Any]:
    raw = path.read_bytes()
    lines = raw.split(b"\n")
    good = 0
    for number, line in enumerate(lines[:-1]):
        body = line[9:]
        if len(line) < 10 or line[:9] != b"%08x " % zlib.crc32(body):
            if torn and number == len(lines) - 2 and not lines[-1]:
                break
            raise InternalError(f"{path.name}, line {number + 1} is damaged", reason="LOG_CORRUPT")
        good += len(line) + 1
        yield json.loads(body)
    if torn and good < len(raw):
        with open(path, "r+b") as f:
            f.truncate(good)


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
