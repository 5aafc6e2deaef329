"""The result log: what every query got, exactly once, in delivery order, for as long as retention lasts.

A row is in the log when the epoch that found it is committed: the commit record lists the segments, and what it does
not list does not exist. A batch's place is (epoch, sequence): the sequence counts a query's batches within the epoch,
in the order of the commit record. So a reader that continues after its last cursor misses nothing and sees nothing
twice, also across restarts.

Where a query's batches are in a segment is written at the segment's end. The indexes looked at last are held, because
all who follow the log look at the newest.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from optimizer.errors import InternalError
from optimizer.model.plan import id_of
from runtime.api import Cursor, ResultBatch
from runtime.crashpoints import reach
from runtime.results.segment import Segment, SegmentEntry, SegmentIndex

MAPPED_FROM = 1 << 16
"""Bytes from which mapping a file is cheaper than reading it."""

HELD = 50_000
"""Entries of indexes that are held."""


@dataclass(frozen=True, slots=True)
class QueryTable:
    """`rows`: how many rows the table stands for."""

    table: pa.Table
    rows: int


class ResultLog:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._indexes: OrderedDict[str, SegmentIndex] = OrderedDict()
        self._held = 0
        self._lock = threading.Lock()

    def read(
        self,
        id: str,
        uid: str,
        segments: Mapping[int, Sequence[Segment]],
        epochs: Iterable[int],
        after: Cursor | None,
        limit: int,
    ) -> list[ResultBatch]:
        """Of these epochs, which are in order. FileNotFoundError when retention removed a segment meanwhile."""
        out: list[ResultBatch] = []
        for epoch in epochs:
            mine = [(s, e) for s in segments[epoch] for e in self.index(epoch, s).of(uid)]
            for sequence, (segment, entry) in enumerate(mine):
                cursor = Cursor(epoch, sequence)
                if after is not None and cursor <= after:
                    continue
                out.append(ResultBatch(id, cursor, self._load(epoch, segment, entry)))
                if len(out) == limit:
                    return out
        return out

    def epoch(self, epoch: int, segments: Sequence[Segment]) -> Iterator[ResultBatch]:
        """Everything that one epoch delivered, in delivery order."""
        sequence: dict[str, int] = {}
        for segment in segments:
            for entry in self._listed(epoch, segment):
                number = sequence.get(entry.uid, 0)
                sequence[entry.uid] = number + 1
                yield ResultBatch(id_of(entry.uid), Cursor(epoch, number), self._load_listed(epoch, segment, entry))

    def of_query(self, epoch: int, segments: Sequence[Segment], uid: str) -> QueryTable | None:
        """What a query got in an epoch; None: nothing."""
        mine = [(segment, entry) for segment in segments for entry in self._listed(epoch, segment).of(uid)]
        if not mine:
            return None
        batches = [self._load_listed(epoch, segment, entry) for segment, entry in mine]
        return QueryTable(pa.Table.from_batches(batches), sum(entry.rows for _, entry in mine))

    def index(self, epoch: int, segment: Segment) -> SegmentIndex:
        """What is in a segment. FileNotFoundError when it is not there; RESULTS_DAMAGED."""
        with self._lock:
            held = self._indexes.get(segment.file)
            if held is not None:
                self._indexes.move_to_end(segment.file)
                return held
        index = SegmentIndex.of_bytes(self._tail(segment), segment)
        if index is None and self._refetch(segment.file):
            index = SegmentIndex.of_bytes(self._tail(segment), segment)
        if index is None:
            raise damaged(epoch, segment, "is damaged at its end, where its index is")
        with self._lock:
            if segment.file not in self._indexes:
                self._indexes[segment.file] = index
                self._held += len(index)
            while self._held > HELD and len(self._indexes) > 1:
                self._held -= len(self._indexes.popitem(last=False)[1])
        return index

    def indexes(self, epoch: int, segments: Sequence[Segment]) -> list[SegmentIndex] | None:
        """Of all segments of an epoch; None if one of them is damaged or missing."""
        try:
            return [self.index(epoch, s) for s in segments]
        except (InternalError, FileNotFoundError):
            return None

    def _tail(self, segment: Segment) -> bytes:
        with self._open(segment.file) as file:
            return read_tail(file, segment)

    def _listed(self, epoch: int, segment: Segment) -> SegmentIndex:
        """For an epoch whose results have not expired: a missing file is damage."""
        try:
            return self.index(epoch, segment)
        except FileNotFoundError as e:
            raise damaged(epoch, segment, "is missing") from e

    def _load_listed(self, epoch: int, segment: Segment, entry: SegmentEntry) -> pa.RecordBatch:
        """Of an epoch that retention has certainly left alone."""
        try:
            return self._load(epoch, segment, entry)
        except FileNotFoundError as e:
            raise damaged(epoch, segment, "is missing", entry) from e

    def _load(self, epoch: int, segment: Segment, entry: SegmentEntry) -> pa.RecordBatch:
        data = self._bytes(segment, entry)
        if not entry.matches(data) and self._refetch(segment.file):
            data = self._bytes(segment, entry)
        if not entry.matches(data):
            raise damaged(epoch, segment, "is damaged", entry)
        with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
            return stream.read_next_batch()

    def _bytes(self, segment: Segment, entry: SegmentEntry) -> bytes | memoryview:
        with self._open(segment.file) as f:
            return _view(f, entry) if entry.length >= MAPPED_FROM else _read(f, entry)

    def _refetch(self, name: str) -> bool:
        """Bring a damaged file back from a second place; a plain directory has none."""
        return False

    def _open(self, name: str) -> BinaryIO:
        return open(self.directory / name, "rb")

    def drop(self, files: Iterable[str]) -> None:
        for name in files:
            with self._lock:
                if name in self._indexes:
                    self._held -= len(self._indexes.pop(name))
            (self.directory / name).unlink(missing_ok=True)
            reach("segment.dropped")

    def keep_only(self, files: Collection[str]) -> None:
        there = self.directory.iterdir() if self.directory.exists() else ()
        self.drop([p.name for p in there if p.name not in files])


def read_tail(file: BinaryIO, segment: Segment) -> bytes:
    file.seek(segment.bytes - segment.index)
    return file.read()


def _read(file: BinaryIO, entry: SegmentEntry) -> bytes:
    file.seek(entry.offset)
    return file.read(entry.length)


def _view(file: BinaryIO, entry: SegmentEntry) -> memoryview:
    """The rows in place, not a copy; they stay readable while they are referenced, even after the file is deleted."""
    if entry.offset + entry.length > os.fstat(file.fileno()).st_size:
        return memoryview(b"")  # cut off: touching what lies behind the end would kill the process
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return memoryview(mapped)[entry.offset : entry.offset + entry.length]


def damaged(epoch: int, segment: Segment, what: str, entry: SegmentEntry | None = None) -> InternalError:
    """Rows cannot be made again: what led to them may be gone, and they must not come twice."""
    if entry is None:
        rows = f"the rows of all queries in it ({segment.rows})"
    else:
        rows = f"{entry.rows} rows of query {id_of(entry.uid)!r}"
    return InternalError(
        f"result segment {segment.file} {what}: {rows} of epoch {epoch} cannot be read",
        reason="RESULTS_DAMAGED",
        hint=f"put the file back from a copy of the state directory, or read on after epoch {epoch}",
    )
