"""The result log: what every query got, exactly once, in delivery order, for as long as retention lasts.

A row is in the log when the epoch that found it is committed: the commit record lists the segments, and what it does
not list does not exist. A batch's place is (epoch, sequence): the sequence counts a query's batches within the epoch,
in the order of the commit record. So a reader that continues after its last cursor misses nothing and sees nothing
twice, also across restarts.

Where a query's batches are in a segment is written at the segment's end. The indexes looked at last are held, because
all who follow the log look at the newest.

Damage stops only those who read what is damaged. A reader gets all batches before it, then RESULTS_DAMAGED with a
cursor after which it can go on. Behind a segment whose index cannot be read, nobody knows how many batches of a query
it held, so there a sequence does not count but names the place: from `BEYOND` on it is (number of the segment in its
epoch, number of the batch in the segment). Both kinds of cursor mean the same place for ever, also when the file has
been put back.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from optimizer.errors import InternalError
from optimizer.model.plan import id_of
from runtime.api import LAST_SEQUENCE, Cursor, ResultBatch
from runtime.crashpoints import reach
from runtime.results.segment import Segment, SegmentEntry, SegmentIndex

MAPPED_FROM = 1 << 16
"""Bytes from which mapping a file is cheaper than reading it."""

HELD = 50_000
"""Entries of indexes that are held."""

BEYOND, SPAN = 1 << 40, 1 << 20
"""Sequences that name a place begin here; a segment has so many of them."""


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
        """Of these epochs, which are in order, the next `limit` batches, or those before a damaged place.
        FileNotFoundError when retention removed a segment meanwhile."""
        out: list[ResultBatch] = []
        try:
            for epoch in epochs:
                for cursor, segment, entry in self._places(epoch, segments[epoch], uid, after):
                    out.append(ResultBatch(id, cursor, self._load(cursor, segment, entry)))
                    if len(out) == limit:
                        return out
        except (InternalError, FileNotFoundError):
            if not out:
                raise
        return out

    def _places(
        self, epoch: int, segments: Sequence[Segment], uid: str, after: Cursor | None
    ) -> Iterator[tuple[Cursor, Segment, SegmentEntry]]:
        """The query's batches of an epoch behind a cursor."""
        seen = -1 if after is None or after.epoch < epoch else after.sequence
        count = 0
        for number, segment in enumerate(segments):
            if seen >= BEYOND + (number + 1) * SPAN - 1:
                continue
            for i, entry in enumerate(self.index(epoch, segment, number).of(uid)):
                sequence = BEYOND + number * SPAN + i if seen >= BEYOND else count
                count += 1
                if sequence > seen:
                    yield Cursor(epoch, sequence), segment, entry

    def missing(self, segments: Mapping[int, Sequence[Segment]]) -> list[int]:
        """Epochs of which a segment is not there."""
        there = self._names()
        return [epoch for epoch, of_epoch in segments.items() if any(s.file not in there for s in of_epoch)]

    def lost(
        self, id: str, segments: Mapping[int, Sequence[Segment]], epochs: Sequence[int], file: str
    ) -> InternalError:
        """For a reader of these epochs that met a missing file: how much is missing, and where it can go on."""
        there = self._names()
        epoch, number = next((e, n) for e in epochs for n, s in enumerate(segments[e]) if s.file == file)
        gone = takewhile(lambda e: not any(s.file in there for s in segments[e]), epochs[epochs.index(epoch) :])
        last = max(gone, default=None)
        if last is None:
            return damaged(epoch, segments[epoch][number], "is missing", number, of=f" of query {id!r}")
        return InternalError(
            f"the results of query {id!r} of epochs {epoch} to {last} are lost: {file} and all other files of these "
            "epochs are missing",
            reason="RESULTS_DAMAGED",
            hint=f"{_COPY}, or read on after the cursor {last}:{LAST_SEQUENCE}",
        )

    def _names(self) -> Collection[str]:
        return {p.name for p in self.directory.iterdir()} if self.directory.exists() else ()

    def epoch(self, epoch: int, segments: Sequence[Segment]) -> Iterator[ResultBatch]:
        """Everything that one epoch delivered, in delivery order."""
        sequence: dict[str, int] = {}
        for segment in segments:
            pieces = self._pieces(segment)
            for entry in self._listed(epoch, segment):
                number = sequence.get(entry.uid, 0)
                sequence[entry.uid] = number + 1
                cursor = Cursor(epoch, number)
                data = pieces(entry)
                whole = entry.matches(data)  # else it is read again, and whatever is wrong with it is told
                batch = _batch(data) if whole else self._load_listed(cursor, segment, entry)
                yield ResultBatch(id_of(entry.uid), cursor, batch)

    def _pieces(self, segment: Segment) -> Callable[[SegmentEntry], memoryview]:
        """The batches of a segment that is read whole, opened once; not checked, and empty if it is missing."""
        try:
            rows = memoryview(self._part(segment, 0, segment.bytes))
        except FileNotFoundError:
            rows = memoryview(b"")
        return lambda entry: rows[entry.offset : entry.offset + entry.length]

    def of_query(self, epoch: int, segments: Sequence[Segment], uid: str) -> QueryTable | None:
        """What a query got in an epoch; None: nothing."""
        mine = [(segment, entry) for segment in segments for entry in self._listed(epoch, segment).of(uid)]
        if not mine:
            return None
        batches = [self._load_listed(Cursor(epoch, n), segment, entry) for n, (segment, entry) in enumerate(mine)]
        return QueryTable(pa.Table.from_batches(batches), sum(entry.rows for _, entry in mine))

    def index(self, epoch: int, segment: Segment, number: int | None = None) -> SegmentIndex:
        """What is in a segment, the `number`th of its epoch. FileNotFoundError when it is not there;
        RESULTS_DAMAGED."""
        with self._lock:
            held = self._indexes.get(segment.file)
            if held is not None:
                self._indexes.move_to_end(segment.file)
                return held
        index = SegmentIndex.of_bytes(self._tail(segment), segment)
        if index is None and self._refetch(segment.file):
            index = SegmentIndex.of_bytes(self._tail(segment), segment)
        if index is None:
            raise damaged(epoch, segment, "is damaged at its end, where its index is", number)
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

    def _tail(self, segment: Segment) -> bytes | memoryview:
        return self._part(segment, segment.bytes - segment.index, segment.index)

    def _part(self, segment: Segment, at: int, length: int) -> bytes | memoryview:
        """Bytes of a segment; one that is not there is named as the commit names it."""
        try:
            return self._read(segment, at, length)
        except FileNotFoundError as e:
            raise FileNotFoundError(e.errno, e.strerror, segment.file) from e

    def _read(self, segment: Segment, at: int, length: int) -> bytes | memoryview:
        with open(self.directory / segment.file, "rb") as file:
            return _view(file, at, length) if length >= MAPPED_FROM else _copy(file, at, length)

    def _listed(self, epoch: int, segment: Segment) -> SegmentIndex:
        """For an epoch whose results have not expired: a missing file is damage."""
        try:
            return self.index(epoch, segment)
        except FileNotFoundError as e:
            raise damaged(epoch, segment, "is missing") from e

    def _load_listed(self, cursor: Cursor, segment: Segment, entry: SegmentEntry) -> pa.RecordBatch:
        """For an epoch whose results have not expired: a missing file is damage."""
        try:
            return self._load(cursor, segment, entry)
        except FileNotFoundError as e:
            raise damaged_rows(cursor, segment, "is missing", entry) from e

    def _load(self, cursor: Cursor, segment: Segment, entry: SegmentEntry) -> pa.RecordBatch:
        data = self._part(segment, entry.offset, entry.length)
        if not entry.matches(data) and self._refetch(segment.file):
            data = self._part(segment, entry.offset, entry.length)
        if not entry.matches(data):
            raise damaged_rows(cursor, segment, "is damaged", entry)
        return _batch(data)

    def _refetch(self, name: str) -> bool:
        """Bring a damaged file back from a second place; a plain directory has none."""
        return False

    def drop(self, files: Iterable[str]) -> None:
        for name in files:
            with self._lock:
                if name in self._indexes:
                    self._held -= len(self._indexes.pop(name))
            self._remove(name)
            reach("segment.dropped")

    def _remove(self, name: str) -> None:
        (self.directory / name).unlink(missing_ok=True)


def _batch(data: bytes | memoryview) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
        return stream.read_next_batch()


def _copy(file: BinaryIO, at: int, length: int) -> bytes:
    file.seek(at)
    return file.read(length)


def _view(file: BinaryIO, at: int, length: int) -> memoryview:
    """The rows in place, not a copy; they stay readable while they are referenced, even after the file is deleted."""
    if at + length > os.fstat(file.fileno()).st_size:
        return memoryview(b"")  # cut off: touching what lies behind the end would kill the process
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return memoryview(mapped)[at : at + length]


def is_past(after: Cursor, last: Cursor) -> bool:
    """Is nothing left for a reader that has seen `after`, of a log whose latest batch is at `last`?"""
    names_place = after.epoch == last.epoch and after.sequence >= BEYOND
    return after >= last and not names_place


_COPY = "put the file back from a copy of the state directory"
"""Rows cannot be made again: what led to them may be gone, and they must not come twice."""


def damaged(epoch: int, segment: Segment, what: str, number: int | None = None, of: str = "") -> InternalError:
    """A whole segment, the `number`th of its epoch."""
    after = f"epoch {epoch}" if number is None else f"the cursor {epoch}:{BEYOND + (number + 1) * SPAN - 1}"
    return InternalError(
        f"result segment {segment.file} {what}: the rows{of or ' of all queries'} in it ({segment.rows} of all) of "
        f"epoch {epoch} cannot be read",
        reason="RESULTS_DAMAGED",
        hint=f"{_COPY}, or read on after {after}",
    )


def damaged_rows(cursor: Cursor, segment: Segment, what: str, entry: SegmentEntry) -> InternalError:
    return InternalError(
        f"result segment {segment.file} {what}: {entry.rows} rows of query {id_of(entry.uid)!r} of epoch "
        f"{cursor.epoch} cannot be read",
        reason="RESULTS_DAMAGED",
        hint=f"{_COPY}, or read on after the cursor {cursor.epoch}:{cursor.sequence}",
    )
