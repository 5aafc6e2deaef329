"""Segments of the result log: one file per task, in it one Arrow stream per query and flush, at its end their index.

A segment appears whole and counts only once the epoch's commit lists it. Its target decides where it goes: into
a directory that all tasks see, or into a store (runtime.store).

The index says where each stream is, and its checksum; the commit knows the index's own. So rows that are not what the
task wrote are never delivered. The index also names the segment and its platform: two segments can be equal in
everything else, and one that lies in the place of another is noticed all the same.

What the platform remembers of an epoch does not grow with its queries: a thousand of them, over ten thousand epochs,
would fill the driver's memory and every snapshot.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import pyarrow as pa

from runtime.buckets.checked import Checksum, checksum
from runtime.buckets.runs import Run
from runtime.crashpoints import reach

SMALL = 1 << 18
"""Bytes, about, below which rows are better copied once than written piece by piece."""

END = b"\xff\xff\xff\xff\0\0\0\0"
"""The end of every Arrow stream."""


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """`rows` rows of one query, as an Arrow stream at [offset, offset + length) of the segment."""

    uid: str
    offset: int
    length: int
    rows: int
    checksum: int

    def matches(self, data: Any) -> bool:
        """Are these bytes, read at its place, what was written?"""
        return len(data) == self.length and checksum(data) == self.checksum


@dataclass(frozen=True, slots=True)
class Segment:
    """The last `index` of its `bytes` are the index, with this checksum; `rows` of all queries."""

    file: str
    bytes: int
    index: int
    rows: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """A segment, and what is in it per query."""

    segment: Segment
    queries: Mapping[str, Contents]


class Contents(NamedTuple):
    """Of one query in a segment: rows, in so many streams, of so many bytes."""

    rows: int
    streams: int
    bytes: int


class SegmentIndex:
    """The entries of a segment, in the order in which they were written."""

    def __init__(self, entries: Sequence[SegmentEntry]) -> None:
        self.entries = tuple(entries)
        self._by_query: dict[str, list[SegmentEntry]] = {}
        for entry in self.entries:
            self._by_query.setdefault(entry.uid, []).append(entry)

    def of(self, uid: str) -> Sequence[SegmentEntry]:
        return self._by_query.get(uid, ())

    def queries(self) -> dict[str, Contents]:
        """As in `Delivered`."""
        return {
            uid: Contents(sum(e.rows for e in mine), len(mine), sum(e.length for e in mine))
            for uid, mine in self._by_query.items()
        }

    def __iter__(self) -> Iterator[SegmentEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def to_bytes(self, name: str, platform: str) -> bytes:
        columns = zip(*((e.uid, e.offset, e.length, e.rows, e.checksum) for e in self.entries), strict=True)
        described = {"name": name, "platform": platform, "entries": list(columns)}
        return json.dumps(described, separators=(",", ":")).encode()

    @staticmethod
    def of_bytes(data: Any, segment: Segment) -> SegmentIndex | None:
        """None: these bytes, read from the segment's end, are not what was written."""
        if len(data) != segment.index or checksum(data) != segment.checksum:
            return None
        columns = json.loads(bytes(data))["entries"]
        return SegmentIndex([SegmentEntry(*row) for row in zip(*columns, strict=True)])


class Summed:
    """Passes on what is written and sums it up on the way: the rows are touched once more, but not copied."""

    closed = False

    def __init__(self, out: BinaryIO) -> None:
        self._out, self._sum = out, Checksum()
        self.length = 0

    def write(self, data: Any) -> int:
        self._sum.update(data)
        self.length += len(data)
        return self._out.write(data)

    def digest(self) -> int:
        return self._sum.digest()

    def flush(self) -> None:
        """The file behind is flushed when it is closed."""

    def close(self) -> None:
        """The file belongs to the caller."""


class SegmentTarget(Protocol):
    """Where a task's segments go. Picklable: it travels with the stage. `platform`: whose they are."""

    @property
    def platform(self) -> str: ...

    def named(self, name: str) -> str:
        """The name by which the segment can be read."""
        ...

    def begin(self, name: str) -> BinaryIO: ...

    def publish(self, name: str, file: BinaryIO) -> None:
        """The file is complete."""
        ...


@dataclass(frozen=True, slots=True)
class SegmentFolder:
    """A directory that all tasks see; a segment appears by rename. `run`: names are those of this run."""

    directory: str
    platform: str
    run: Run | None = None

    def named(self, name: str) -> str:
        return name if self.run is None else self.run.named(name)

    def begin(self, name: str) -> BinaryIO:
        path = self._temporary(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "wb")

    def publish(self, name: str, file: BinaryIO) -> None:
        file.close()
        reach("segment.written")
        os.replace(self._temporary(name), Path(self.directory) / self.named(name))
        reach("segment.renamed")

    def _temporary(self, name: str) -> Path:
        path = Path(self.directory) / self.named(name)
        return path.with_name(f".{path.name}.{os.getpid()}.tmp")


class SegmentWriter:
    """Begins with the first row, so that a task without rows leaves nothing behind. `most`: rows that queries (uid) may
    have here; what is more is left out, and `left_out` says of whom."""

    def __init__(self, target: SegmentTarget, name: str, most: Mapping[str, int] | None = None) -> None:
        self._target, self._name = target, name
        self._most = dict(most or {})
        self.left_out: set[str] = set()
        self._file: BinaryIO | None = None
        self._entries: list[SegmentEntry] = []
        self._schema: tuple[pa.Schema, bytes] | None = None

    def append(self, uid: str, batch: pa.RecordBatch, rows: int | None = None) -> None:
        """`rows`: how many rows the batch stands for, if it is not one each."""
        if uid in self._most:
            batch = self._within(uid, batch)
            if not batch.num_rows:
                return
        if self._file is None:
            self._file = self._target.begin(self._name)
        at, count = self._file.tell(), batch.num_rows if rows is None else rows
        if 8 * batch.num_rows * batch.num_columns < SMALL:
            data = b"".join((self._head(batch.schema), batch.serialize(), END))
            self._file.write(data)
            self._entries.append(SegmentEntry(uid, at, len(data), count, checksum(data)))
            return
        summed = Summed(self._file)
        with pa.PythonFile(summed, mode="w") as file, pa.ipc.new_stream(file, batch.schema) as stream:
            stream.write_batch(batch)
        self._entries.append(SegmentEntry(uid, at, summed.length, count, summed.digest()))

    def _within(self, uid: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        left = self._most[uid]
        self._most[uid] = max(0, left - batch.num_rows)
        if batch.num_rows > left:
            self.left_out.add(uid)
            return batch.slice(0, left)
        return batch

    def _head(self, schema: pa.Schema) -> bytes:
        """How a stream begins. Neighbours mostly have the same columns."""
        if self._schema is None or not self._schema[0].equals(schema, check_metadata=True):
            self._schema = schema, schema.serialize().to_pybytes()
        return self._schema[1]

    def finish(self) -> Delivered | None:
        if self._file is None:
            return None
        index = SegmentIndex(self._entries)
        file = self._target.named(self._name)
        tail = index.to_bytes(file, self._target.platform)
        self._file.write(tail)
        size = self._file.tell()
        self._target.publish(self._name, self._file)
        segment = Segment(file, size, len(tail), sum(e.rows for e in self._entries), checksum(tail))
        return Delivered(segment, index.queries())
