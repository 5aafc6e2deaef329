"""Segments of the result log: one file per task, in it one Arrow stream per query and flush.

A segment appears by rename and counts only once the epoch's commit lists it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """`rows` rows of one query, as an Arrow stream at [offset, offset + length) of the segment."""

    uid: str
    offset: int
    length: int
    rows: int


@dataclass(frozen=True, slots=True)
class Segment:
    file: str
    bytes: int
    entries: tuple[SegmentEntry, ...]


class SegmentWriter:
    """Opens its file with the first row, so that a task without rows leaves nothing behind."""

    def __init__(self, directory: str, name: str) -> None:
        self._path = Path(directory) / name
        self._temporary = self._path.with_name(f".{name}.{os.getpid()}.tmp")
        self._file: pa.OSFile | None = None
        self._entries: list[SegmentEntry] = []

    def append(self, uid: str, batch: pa.RecordBatch, rows: int | None = None) -> None:
        """`rows`: how many rows the batch stands for, if it is not one each."""
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = pa.OSFile(str(self._temporary), "wb")
        at = self._file.tell()
        with pa.ipc.new_stream(self._file, batch.schema) as stream:
            stream.write_batch(batch)
        self._entries.append(SegmentEntry(uid, at, self._file.tell() - at, batch.num_rows if rows is None else rows))

    def finish(self) -> Segment | None:
        if self._file is None:
            return None
        size = self._file.tell()
        self._file.close()
        os.replace(self._temporary, self._path)
        return Segment(self._path.name, size, tuple(self._entries))
