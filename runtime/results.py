"""The result log: what every query got, exactly once, in delivery order, for as long as retention lasts.

A row is in the log when the epoch that found it is committed: the commit record lists the segments, and what it does
not list does not exist. A batch's place is (epoch, sequence): the sequence counts a query's batches within the epoch,
in the order of the commit record. So a reader that continues after its last cursor misses nothing and sees nothing
twice, also across restarts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from runtime.api import Cursor, ResultBatch
from runtime.operators.segment import Segment, SegmentEntry


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
                out.append(ResultBatch(id, cursor, self._load(segment, entry)))
                if len(out) == limit:
                    return out
        return out

    def epoch(self, epoch: int, segments: Sequence[Segment], ids: Mapping[str, str]) -> Iterator[ResultBatch]:
        sequence: dict[str, int] = {}
        for segment in segments:
            for entry in segment.entries:
                number = sequence.get(entry.uid, 0)
                sequence[entry.uid] = number + 1
                yield ResultBatch(
                    ids.get(entry.uid, entry.uid.rpartition("#")[0]), Cursor(epoch, number), self._load(segment, entry)
                )

    def by_query(self, epoch: int, segments: Sequence[Segment]) -> Iterator[QueryTable]:
        entries: dict[str, list[pa.RecordBatch]] = {}
        for segment in segments:
            for entry in segment.entries:
                entries.setdefault(entry.uid, []).append(self._load(segment, entry))
        for uid, batches in entries.items():
            yield QueryTable(uid, pa.Table.from_batches(batches))

    def _load(self, segment: Segment, entry: SegmentEntry) -> pa.RecordBatch:
        with open(self.directory / segment.file, "rb") as f:
            f.seek(entry.offset)
            data = f.read(entry.length)
        with pa.ipc.open_stream(data) as stream:
            return stream.read_next_batch()

    def has(self, segments: Sequence[Segment]) -> bool:
        return all((self.directory / s.file).exists() for s in segments)

    def drop(self, files: Iterable[str]) -> None:
        for name in files:
            (self.directory / name).unlink(missing_ok=True)

    def keep_only(self, files: set[str]) -> None:
        self.drop(p.name for p in self.directory.iterdir() if p.name not in files)
