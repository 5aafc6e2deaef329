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

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO

from optimizer.errors import FailedPrecondition
from runtime.crashpoints import reach
from runtime.execution.outage import as_outage
from runtime.files import sync_directory, write_atomically
from runtime.log.framing import frame, read_frame, read_frames

FORMAT = 5


class LogContents(NamedTuple):
    """The newest snapshot (None: there is none yet) and the records after it, as JSON values."""

    snapshot: Any | None
    records: list[Any]


class Objects(Protocol):
    """A second place for the same log: `number` counts snapshots, `sequence` the records after one."""

    def append(self, number: int, sequence: int, line: str) -> None: ...

    def snapshot(self, number: int, line: str) -> None: ...

    def tidy(self, number: int) -> None: ...


class Log:
    """Append-only records. Owned by the engine's thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        version = directory / "format"
        if version.exists():
            check_format(str(directory), version.read_text().strip())
        else:
            write_atomically(version, f"{FORMAT}\n".encode())
        self._number = newest_snapshot(directory)
        self._tidy()
        self._file: TextIO | None = None
        self._objects: Objects | None = None
        self.since_snapshot = 0

    def follow(self, objects: Objects, number: int) -> None:
        """From the next snapshot on, which must come first, nothing is written here that is not there already."""
        self.close()
        self._objects, self._number = objects, max(number, self._number)

    def read(self) -> LogContents:
        """What was never acknowledged (a torn last line) is cut off."""
        snapshot, records = None, []
        path = self.directory / f"snapshot-{self._number}.json"
        if path.exists():
            snapshot = read_frame(path.name, path.read_bytes())
        if self._path.exists():
            raw, good = self._path.read_bytes(), 0
            for framed in read_frames(self._path.name, raw, torn=True):
                records.append(framed.record)
                good = framed.end
            if good < len(raw):
                os.truncate(self._path, good)
        self.since_snapshot = len(records)
        return LogContents(snapshot, records)

    @property
    def _path(self) -> Path:
        return self.directory / f"log-{self._number}.jsonl"

    def append(self, record: Any) -> None:
        """On disk when this returns."""
        line = frame(record)
        if self._objects is not None:
            self._objects.append(self._number, self.since_snapshot, line)
        if self._file is None:
            self._file = open(self._path, "a", encoding="utf-8")
            sync_directory(self.directory)
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
        """Write half a line, like a process that dies while it writes."""
        assert self._file is not None
        self._file.write(line[: len(line) // 2])
        self._file.flush()

    def _take_back(self, size: int) -> None:
        """Cut off a record that is not wholly on disk, so that its beginning does not stand before the next one."""
        assert self._file is not None
        with suppress(OSError):  # what is buffered does not fit either
            self._file.close()
        self._file = None
        os.truncate(self._path, size)

    def snapshot(self, state: Any) -> None:
        """Begin a new log whose start is `state`; the old one is removed once the new start is safe."""
        line = frame(state)
        if self._objects is not None:
            self._objects.snapshot(self._number + 1, line)
        path = self.directory / f"snapshot-{self._number + 1}.json"
        write_atomically(path, line.encode(), sync=True, point="snapshot.written")
        reach("snapshot.renamed")
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


def newest_snapshot(directory: Path) -> int:
    return max((int(p.stem.split("-")[1]) for p in directory.glob("snapshot-*.json")), default=0)


def check_format(place: str, format: str, expected: str = str(FORMAT)) -> None:
    if format != expected:
        raise FailedPrecondition(
            f"{place} was written in format {format}, this version reads {expected}",
            reason="STATE_FORMAT",
            hint="start with an empty state directory, or use the version that wrote this one",
        )
