"""The log in the state directory: what was decided, before it was done.

One JSON record a line, each with its checksum, appended and forced to disk before the caller goes on. The state of
the coordinator is the fold of this log, so recovery is reading it. Now and then the whole state is written as a
snapshot (`snapshot-N.json`, renamed into place) and a new log file is begun; recovery then reads the newest snapshot
and the log after it. Checksums form a chain through records and snapshots, so files that do not belong together are
noticed (snapshots.py).

With a store, the log is there instead: see runtime.store.log.

A torn last line (the machine died while writing it) was never acknowledged and is cut off. Any other damaged line is
an error: the platform would rather not start than start with a hole.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from optimizer.errors import FailedPrecondition
from runtime.crashpoints import reach
from runtime.execution.outage import as_outage
from runtime.files import sync_directory, write_atomically
from runtime.log.framing import checksum_of, frame, read_frames
from runtime.log.snapshots import (
    NO_SNAPSHOT,
    foreign,
    frame_snapshot,
    log_name,
    newest_snapshot,
    replaced,
    snapshot_name,
)

logger = logging.getLogger("ajoin.log")

FORMAT = 8


class LogContents(NamedTuple):
    """The newest snapshot (None: there is none yet) and the records after it, as JSON values."""

    snapshot: Any | None
    records: list[Any]


class Log:
    """Append-only records, to be read before anything is written. Owned by the engine's thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        version = directory / "format"
        if version.exists():
            check_format(str(directory), version.read_text().strip())
        else:
            write_atomically(version, f"{FORMAT}\n".encode())
        self._number, self._checksum = 0, NO_SNAPSHOT.checksum
        self._file: TextIO | None = None
        self.since_snapshot = 0

    def read(self) -> LogContents:
        """What was never acknowledged (a torn last line) is cut off, what a newer snapshot has replaced is removed."""
        snapshot = newest_snapshot(self.directory)
        records: list[Any] = []
        self._number, self._checksum = snapshot.number, snapshot.checksum
        if self._path.exists():
            raw, good = self._path.read_bytes(), 0
            for framed in read_frames(self._path.name, raw, after=self._checksum, torn=True):
                records.append(framed.record)
                good, self._checksum = framed.end, framed.checksum
            if good < len(raw):
                os.truncate(self._path, good)
        self.since_snapshot = len(records)
        self._tidy()
        for name in foreign(self.directory, self._number):
            logger.warning("%s is no file of this platform and is left alone", self.directory / name)
        return LogContents(snapshot.state, records)

    @property
    def is_new(self) -> bool:
        """Has nothing ever been written?"""
        return not self._number and not self.since_snapshot

    @property
    def _path(self) -> Path:
        return self.directory / log_name(self._number)

    def append(self, record: Any) -> None:
        """On disk when this returns."""
        line = frame(record, self._checksum)
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
        self._checksum = checksum_of(line)
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
        line = frame_snapshot(self._number + 1, self._checksum, state)
        path = self.directory / snapshot_name(self._number + 1)
        write_atomically(path, line.encode(), sync=True, point="snapshot.written")
        reach("snapshot.renamed")
        self.close()
        self._number, self._checksum, self.since_snapshot = self._number + 1, checksum_of(line), 0
        self._tidy()
        reach("snapshot.tidied")

    def _tidy(self) -> None:
        """Remove everything a newer snapshot has replaced, also what a crash in the middle of this left."""
        for path in replaced(self.directory, self._number):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def check_format(place: str, format: str, expected: str = str(FORMAT)) -> None:
    if format != expected:
        raise FailedPrecondition(
            f"{place} was written in format {format}, this version reads {expected}",
            reason="STATE_FORMAT",
            hint="start with an empty state directory, or use the version that wrote this one",
        )
