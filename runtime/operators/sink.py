"""The sink operator: the only place where rows come into being.

Combinations arrive as pairs of items with the queries they are for. Nested lists are opened (dropping, at every step,
what no query wants any more), and then each query, on its own rows only, checks what hashes and indexes could not
decide (residual predicates, equality of string and composite keys), is repeated per window, and fetches exactly the
columns it selects.

Rows go into a segment: one file per task, in it one Arrow stream per query and flush. A segment counts only once the
epoch's commit lists it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from optimizer import expressions as ex
from optimizer.types import ColumnType
from runtime.columns import ColumnData
from runtime.evaluate import evaluate, truth
from runtime.kernels.expand import unroll
from runtime.operators.combinations import Combinations, Refs
from runtime.operators.inputs import Directory, gather
from runtime.physical import JoinSpec, SideSpec, SinkSpec
from runtime.querysets import Words, bitset, widen

FLUSH = 1 << 18
"""Combinations collected before rows are made."""


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

    def append(self, uid: str, batch: pa.RecordBatch) -> None:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = pa.OSFile(str(self._temporary), "wb")
        at = self._file.tell()
        with pa.ipc.new_stream(self._file, batch.schema) as stream:
            stream.write_batch(batch)
        self._entries.append(SegmentEntry(uid, at, self._file.tell() - at, batch.num_rows))

    def finish(self) -> Segment | None:
        if self._file is None:
            return None
        size = self._file.tell()
        self._file.close()
        os.replace(self._temporary, self._path)
        return Segment(self._path.name, size, tuple(self._entries))


class SinkOperator:
    """Rows of all queries that end at one join."""

    def __init__(
        self, directory: Directory, joins: Mapping[str, JoinSpec], spec: JoinSpec, writer: SegmentWriter
    ) -> None:
        self.directory, self.joins, self.spec, self.writer = directory, joins, spec, writer
        self.slots = bitset([s.slot for s in spec.sinks], spec.words)
        self._parts: list[tuple[Refs, Words, npt.NDArray[Any], npt.NDArray[Any]]] = []
        self._rows = 0

    def add(
        self,
        left_bucket: int,
        left: npt.NDArray[Any],
        right_bucket: int,
        right: npt.NDArray[Any],
        sets: Words,
        lo: npt.NDArray[Any],
        hi: npt.NDArray[Any],
    ) -> None:
        """Combinations of items of two buckets; `lo` and `hi` span their slices."""
        sets = widen(sets, self.spec.words)
        lb = np.full(len(left), left_bucket, np.int64)
        origin, refs, sets = self._open(self.spec.left, lb, left, sets)
        rb = np.full(len(origin), right_bucket, np.int64)
        again, more, sets = self._open(self.spec.right, rb, right[origin], sets)
        refs = {leaf: (b[again], i[again]) for leaf, (b, i) in refs.items()} | more
        origin = origin[again]
        if len(origin):
            self._parts.append((refs, sets, lo[origin], hi[origin]))
            self._rows += len(origin)
        if self._rows >= FLUSH:
            self.flush()

    def _open(
        self, side: SideSpec, buckets: npt.NDArray[Any], items: npt.NDArray[Any], sets: Words
    ) -> tuple[npt.NDArray[np.int64], Refs, Words]:
        """Rows behind items: (which item each row came from, row references per leaf, query sets)."""
        n = len(items)
        if side.child is None:
            return np.arange(n), {side.leaves[0]: (buckets, items)}, sets
        if n == 0:
            empty = np.empty(0, np.int32)
            return np.empty(0, np.int64), dict.fromkeys(side.leaves, (empty, empty)), sets
        d, spec = self.directory, self.joins[side.child]
        carried_left = gather(buckets, np.zeros(n, np.int64), lambda b: np.array([d.joined_bucket(b).carrier_left]))
        pieces = []
        for left_carries in (True, False):
            chosen = np.flatnonzero(carried_left == left_carries)
            if len(chosen):
                carrier, partner = (spec.left, spec.right) if left_carries else (spec.right, spec.left)
                origin, refs, found = self._open_joined(carrier, partner, buckets[chosen], items[chosen], sets[chosen])
                pieces.append((chosen[origin], refs, found))
        if len(pieces) == 1:
            return pieces[0]
        (o1, r1, s1), (o2, r2, s2) = pieces
        refs = {
            leaf: (np.concatenate((r1[leaf][0], r2[leaf][0])), np.concatenate((r1[leaf][1], r2[leaf][1])))
            for leaf in r1
        }
        return np.concatenate((o1, o2)), refs, np.concatenate((s1, s2))

    def _open_joined(
        self,
        carrier: SideSpec,
        partner: SideSpec,
        buckets: npt.NDArray[Any],
        items: npt.NDArray[Any],
        sets: Words,
    ) -> tuple[npt.NDArray[np.int64], Refs, Words]:
        d, words = self.directory, self.spec.words
        first = gather(buckets, items, lambda b: d.joined_bucket(b).partner_from).astype(np.int64)
        end = gather(buckets, items, lambda b: d.joined_bucket(b).partner_to).astype(np.int64)
        which, position = unroll(first, end)
        partner_bucket = gather(buckets, items, lambda b: d.joined_bucket(b).partner_bucket)[which]
        partner_item = gather(partner_bucket, position, lambda b: self._order(partner, b))
        leaf = partner.leaves[0] if partner.child is None else None
        sets = sets[which] & d.sets(partner_bucket, partner_item, leaf, partner.group, words)
        keep = np.flatnonzero(sets.any(axis=1))
        which, sets = which[keep], sets[keep]
        partner_bucket, partner_item = partner_bucket[keep], partner_item[keep]
        carrier_bucket = gather(buckets, items, lambda b: d.joined_bucket(b).carrier_bucket)[which]
        carrier_item = gather(buckets, items, lambda b: d.joined_bucket(b).carrier_item)[which]
        origin, refs, sets = self._open(carrier, carrier_bucket, carrier_item, sets)
        again, more, sets = self._open(partner, partner_bucket[origin], partner_item[origin], sets)
        refs = {leaf: (b[again], i[again]) for leaf, (b, i) in refs.items()} | more
        return which[origin][again], refs, sets

    def _order(self, side: SideSpec, bucket: int) -> npt.NDArray[np.int32]:
        if side.child is None:
            return self.directory.view(bucket, side.leaves[0], side.group).index(side.index_key).order
        return self.directory.joined_bucket(bucket).index.order

    def flush(self) -> None:
        if not self._parts:
            return
        refs: Refs = {
            leaf: (
                np.concatenate([p[0][leaf][0] for p in self._parts]),
                np.concatenate([p[0][leaf][1] for p in self._parts]),
            )
            for leaf in self._parts[0][0]
        }
        sets = np.concatenate([p[1] for p in self._parts])
        lo = np.concatenate([p[2] for p in self._parts])
        hi = np.concatenate([p[3] for p in self._parts])
        self._parts, self._rows = [], 0
        many = len(self.spec.sinks) > 2
        found = Combinations(self.directory, self.spec.group, refs, sets, lo, hi, many=many)
        for sink in self.spec.sinks:
            rows = found.of(sink.slot)
            if len(rows):
                self._deliver(sink, found, rows)

    def _deliver(self, sink: SinkSpec, found: Combinations, rows: npt.NDArray[Any]) -> None:
        leaves = dict(sink.leaves)
        bounds: dict[str, npt.NDArray[np.int64]] = {}
        part = found.part(rows)

        def lookup(ref: ex.ColumnRef | ex.WindowBound) -> ColumnData:
            if isinstance(ref, ex.WindowBound):
                return ColumnData(ColumnType.TIMESTAMP, bounds[ref.which])
            return part.column(leaves[ref.alias], ref.column)

        for check in sink.checks:
            passed = truth(check, lookup, len(part.rows))
            if not passed.all():
                part = found.part(part.rows[passed])
            if not len(part.rows):
                return
        rows, start = found.windows(part.rows, sink.window, sink.active_from)
        if not len(rows):
            return
        if rows is not part.rows:
            part = found.part(rows)
        bounds |= {"window_start": start, "window_end": start + sink.window.size_ms}
        names = list(bounds)
        columns = [ColumnData(ColumnType.TIMESTAMP, v).to_arrow() for v in bounds.values()]
        for output in sink.outputs:
            if output.name not in bounds:  # a selected window bound keeps its one column
                names.append(output.name)
                columns.append(evaluate(output.expr, lookup, len(rows)).to_arrow())
        self.writer.append(sink.uid, pa.RecordBatch.from_arrays(columns, names))
