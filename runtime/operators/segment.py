"""Segments of the result log: one file per task, in it one Arrow stream per query and flush.

A segment appears by rename and counts only once the epoch's commit lists it. Where tasks see no directory it is
built in memory and goes back with the task's answer.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from runtime.outbox import post


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
    """Opens its file with the first row, so that a task without rows leaves nothing behind.

    `directory` None: there is no file, the segment is posted.
    """

    def __init__(self, directory: str | None, name: str) -> None:
        self._name = name
        self._path = None if directory is None else Path(directory) / name
        self._file: pa.NativeFile | None = None
        self._entries: list[SegmentEntry] = []

    def append(self, uid: str, batch: pa.RecordBatch, rows: int | None = None) -> None:
        """`rows`: how many rows the batch stands for, if it is not one each."""
        if self._file is None:
            self._file = self._open()
        at = self._file.tell()
        with pa.ipc.new_stream(self._file, batch.schema) as stream:
            stream.write_batch(batch)
        self._entries.append(SegmentEntry(uid, at, self._file.tell() - at, batch.num_rows if rows is None else rows))

    def finish(self) -> Segment | None:
        if self._file is None:
            return None
        size = self._file.tell()
        if self._path is None:
            post("segment", self._name, self._file.getvalue().to_pybytes())
        else:
            self._file.close()
            os.replace(self._temporary(self._path), self._path)
        return Segment(self._name, size, tuple(self._entries))

    def _open(self) -> pa.NativeFile:
        if self._path is None:
            return pa.BufferOutputStream()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(self._temporary(self._path)), "wb")

    @staticmethod
    def _temporary(path: Path) -> Path:
        return path.with_name(f".{path.name}.{os.getpid()}.tmp")
