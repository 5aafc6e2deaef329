"""The result log: what every query got, exactly once, in delivery order, for as long as retention lasts.

A row is in the log when the epoch that found it is committed: the commit record lists the segments, and what it does
not list does not exist. A batch's place is (epoch, sequence): the sequence counts a query's batches within the epoch,
in the order of the commit record. So a reader that continues after its last cursor misses nothing and sees nothing
twice, also across restarts.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from optimizer.errors import InternalError
from runtime.api import Cursor, ResultBatch
from runtime.crashpoints import reach
from runtime.operators.segment import Segment, SegmentEntry

MAPPED_FROM = 1 << 16
"""Bytes from which mapping a file is cheaper than reading it."""


@dataclass(frozen=True, slots=True)
class QueryTable:
    uid: str
    table: pa.Table


class ResultLog:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def read(
        self, id: str, uid: str, segments: Mapping[int, Sequence[Segment]], after: Cursor | None, limit: int
    ) -> list[ResultBatch]:
        """FileNotFoundError when retention removed a segment meanwhile."""
        out: list[ResultBatch] = []
        for epoch in sorted(e for e in segments if after is None or e >= after.epoch):
            mine = [(s, e) for s in segments[epoch] for e in s.entries if e.uid == uid]
            for sequence, (segment, entry) in enumerate(mine):
                cursor = Cursor(epoch, sequence)
                if after is not None and cursor <= after:
                    continue
                out.append(ResultBatch(id, cursor, self._load(epoch, segment, entry)))
                if len(out) == limit:
                    return out
        return out

    def epoch(self, epoch: int, segments: Sequence[Segment], ids: Mapping[str, str]) -> Iterator[ResultBatch]:
        sequence: dict[str, int] = {}
        for segment in segments:
            for entry in segment.entries:
                number = sequence.get(entry.uid, 0)
                sequence[entry.uid] = number + 1
                id = ids.get(entry.uid, entry.uid.rpartition("#")[0])
                yield ResultBatch(id, Cursor(epoch, number), self._load_listed(epoch, segment, entry))

    def by_query(self, epoch: int, segments: Sequence[Segment]) -> Iterator[QueryTable]:
        entries: dict[str, list[pa.RecordBatch]] = {}
        for segment in segments:
            for entry in segment.entries:
                entries.setdefault(entry.uid, []).append(self._load_listed(epoch, segment, entry))
        for uid, batches in entries.items():
            yield QueryTable(uid, pa.Table.from_batches(batches))

    def _load_listed(self, epoch: int, segment: Segment, entry: SegmentEntry) -> pa.RecordBatch:
        """Of an epoch that retention has certainly left alone."""
        try:
            return self._load(epoch, segment, entry)
        except FileNotFoundError as e:
            raise damaged(epoch, segment, entry, "is missing") from e

    def _load(self, epoch: int, segment: Segment, entry: SegmentEntry) -> pa.RecordBatch:
        data = self._bytes(segment, entry)
        if not entry.matches(data) and self._refetch(segment.file):
            data = self._bytes(segment, entry)
        if not entry.matches(data):
            raise damaged(epoch, segment, entry, "is damaged")
        with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
            return stream.read_next_batch()

    def _bytes(self, segment: Segment, entry: SegmentEntry) -> bytes | memoryview:
        with self._open(segment.file) as f:
            return _view(f, entry) if entry.length >= MAPPED_FROM else _read(f, entry)

    def _refetch(self, name: str) -> bool:
        """Bring a damaged file back from somewhere else; here there is no such place."""
        return False

    def _open(self, name: str) -> BinaryIO:
        return open(self.directory / name, "rb")

    def has(self, segments: Sequence[Segment]) -> bool:
        """Is anything of them left? Retention takes an epoch as a whole, so if a part is missing, it is damage."""
        return any((self.directory / s.file).exists() for s in segments)

    def drop(self, files: Iterable[str]) -> None:
        for name in files:
            (self.directory / name).unlink(missing_ok=True)
            reach("segment.dropped")

    def keep_only(self, files: set[str]) -> None:
        self.drop(p.name for p in self.directory.iterdir() if p.name not in files)


def _read(file: BinaryIO, entry: SegmentEntry) -> bytes:
    file.seek(entry.offset)
    return file.read(entry.length)


def _view(file: BinaryIO, entry: SegmentEntry) -> memoryview:
    """The rows where they are, not a copy; they stay there as long as somebody holds them, whoever deletes the name."""
    if entry.offset + entry.length > os.fstat(file.fileno()).st_size:
        return memoryview(b"")  # cut off: touching what lies behind the end would kill the process
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return memoryview(mapped)[entry.offset : entry.offset + entry.length]


def damaged(epoch: int, segment: Segment, entry: SegmentEntry, what: str) -> InternalError:
    """Rows cannot be made again: what led to them may be gone, and they must not come twice."""
    return InternalError(
        f"result segment {segment.file} {what}: {entry.rows} rows of query {entry.uid.rpartition('#')[0]!r} of epoch "
        f"{epoch} cannot be read",
        reason="RESULTS_DAMAGED",
        hint=f"put the file back from a copy of the state directory, or read on after epoch {epoch}",
    )
