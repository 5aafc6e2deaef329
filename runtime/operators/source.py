"""The source operator: read, drop what is too late or too far ahead, tag with query sets, cut into slices, index,
publish one bucket.

Guarantees: a tuple is accepted or dropped once, for all queries alike, by the watermark the previous epoch left and the
clock the epoch was planned with; every tuple ends up in exactly one of accepted, late, dead. Tuples that were found to
kill tasks (`Origin.skipped`) are dead letters, and nothing else of them is looked at; a whole read that was found to
kill is not loaded and counts as one. A bucket holds only tuples that some query joins, and only columns that some query
needs after selection. Queries over this stream alone need no bucket: their rows are delivered here (stream_rows.py), or
the tuples are folded here into partial buckets (fold.py).

Cost per tuple: tagging (tagging.py), and one sort per index.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from optimizer.errors import InternalError
from optimizer.model import expressions as ex
from optimizer.model.plan import Leaf, SourceNode
from optimizer.model.types import StreamSchema
from runtime.buckets.checked import checksum
from runtime.buckets.file import Buckets
from runtime.buckets.indexes import Arrays, put_times
from runtime.buckets.refs import Origin, PartialRef, Skip, SourceRef, ViewRef
from runtime.buckets.views import KeyedItems, put_column, put_view
from runtime.columns.coded_sets import CodedSets, coded
from runtime.columns.column import ColumnData, from_arrow
from runtime.columns.evaluate import Lookup
from runtime.columns.querysets import Words, bitset, has
from runtime.connectors.base import DeadLetter, Read, load, place_of
from runtime.execution.folding import FoldSpec, Times
from runtime.execution.physical import SourceSpec, ViewSpec
from runtime.execution.shipped import ShippedOnce
from runtime.kernels.csr import hash_order
from runtime.kernels.fetch import fetch
from runtime.kernels.sets import nonempty, take_rows
from runtime.operators.ahead import too_far
from runtime.operators.by_query import decided
from runtime.operators.floors import Floor, apply_floors
from runtime.operators.fold import Folded, PartialTarget, edges_of, fold_tuples
from runtime.operators.keys import key_hashes
from runtime.operators.stream_rows import deliver_tuples
from runtime.operators.tagging import coded_sets, query_sets
from runtime.results.segment import Delivered, SegmentTarget, SegmentWriter
from runtime.windows.registry import slice_starts

TIME_LIMIT = 1 << 60
"""Event times beyond this (36 million years) would overflow window arithmetic; they are dead letters."""

SAMPLED = 256

ORDERED_FROM = 4096
"""Smaller buckets fit into the processor's caches anyway."""

DEAD_KEPT = 100
"""Dead letters a task reports in full; all are counted."""


@dataclass(frozen=True, slots=True)
class SourceShared:
    """What all source tasks of an epoch share. `key` names the compiled selections in a worker's cache.

    `floors`: a stream that was idle may bring tuples for windows that the query's other streams closed long ago.
    """

    store: Buckets
    version: int
    epoch: int
    specs: ShippedOnce[Mapping[str, SourceSpec]]
    schemas: Mapping[str, StreamSchema]
    """Of all streams that are read; one that no query uses has no specification."""
    key: str
    segments: SegmentTarget
    floors: tuple[Floor, ...] = ()
    most: Mapping[str, int] = field(default_factory=dict)
    """Rows that queries over one stream (uid) may make in a task; the others: any number."""


class GroupSlots(NamedTuple):
    """Some queries of a group, as the words of a query set."""

    group: int
    words: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reread:
    """This read was done before, in `epoch`, but its bucket file `lost` is gone. It must bring the same tuples as then,
    and only for queries that ran then (`allowed`). Nothing else is made of it once more: the source bucket, or where a
    `fold` is named, the partial buckets of that."""

    epoch: int
    lost: str
    allowed: tuple[GroupSlots, ...]
    fold: str = ""


@dataclass(frozen=True, slots=True)
class SourceTask:
    """`origin.accept_from`: tuples with an earlier event time are dropped as late; None accepts everything.
    `origin.ahead`: which ones are dead letters because they are too far ahead."""

    stream: str
    bucket: int
    read: Read
    origin: Origin
    group: int | None = None
    """Only this group's views; None: all."""
    counts: bool = True
    """Does this task report what it read? Of several tasks over one read, only one does."""
    reread: Reread | None = None


@dataclass(frozen=True, slots=True)
class SourceReport:
    """`read`, `rows`: the number of the read, and how many rows it brought, before anything was left out."""

    stream: str
    tuples: int
    late: int
    dead: int
    letters: tuple[DeadLetter, ...]
    max_time: int | None
    bucket: SourceRef | None
    seconds: float
    samples: Mapping[tuple[Leaf, int], Words] = field(default_factory=dict)
    """Query sets of up to SAMPLED accepted tuples per (leaf, group); the same tuples for every view."""
    distinct: Mapping[tuple[Leaf, tuple[str, ...]], int] = field(default_factory=dict)
    """Distinct keys per (leaf, key columns)."""
    jumped: int = 0
    """How many of the dead were refused for their jump."""
    read: int = 0
    rows: int = 0
    partials: tuple[PartialRef, ...] = ()
    delivered: Delivered | None = None
    """Rows of queries over this stream alone."""
    row_seconds: float = 0.0
    """How long it took to make them."""
    left_out: tuple[str, ...] = ()
    """Queries (uid) that chose a sample and had more."""
    folded: Mapping[tuple[str, str], Folded] = field(default_factory=dict)
    """What was folded, per (node, fold)."""
    arrived_ms: int | None = None
    """When the first of its tuples could have been read; None: not known, or there are none."""


def run_source(shared: SourceShared, task: SourceTask) -> SourceReport:
    began = time.perf_counter()
    spec = shared.specs.value.get(task.stream) or SourceSpec(shared.schemas[task.stream], (), (), ())
    if task.group is not None:
        spec = _only(spec, {task.group})
    if task.reread is not None:
        spec = _once_more(spec, task.reread)
    place = place_of(task.read, f"read {task.origin.read}")
    for skip in task.origin.skipped:
        if skip.end is None:
            whole = (DeadLetter(place, skip.reason, ""),) if task.counts else ()
            seconds = time.perf_counter() - began
            return SourceReport(task.stream, 0, 0, len(whole), whole, None, None, seconds, read=task.origin.read)
    loaded = load(task.read, spec.schema, spec.reads | {spec.schema.time})
    given = _Given(loaded.table, task.origin.skipped, lambda: task.read.load(spec.schema).table)
    letters = [*loaded.dead, *given.letters(place)]
    times = from_arrow(given.table.column(spec.schema.time), spec.schema.column(spec.schema.time).type)  # type: ignore[union-attr]
    usable = times.mask & (times.values > -TIME_LIMIT) & (times.values < TIME_LIMIT)
    dead = len(loaded.dead) + given.skipped + int((~usable).sum())
    for row in np.flatnonzero(~usable)[:DEAD_KEPT]:
        letters.append(given.letter(row, f"event time {spec.schema.time} is NULL or out of range"))
    refused = too_far(spec.schema, task.origin.ahead, times.values, usable)
    for row in (*refused.clock[:DEAD_KEPT], *refused.jump[:DEAD_KEPT]):
        why = refused.reason(spec.schema, task.origin.ahead, int(times.values[row]))
        letters.append(given.letter(row, why))
    usable[refused.clock] = usable[refused.jump] = False
    dead += len(refused.clock) + len(refused.jump)
    accept_from = task.origin.accept_from
    accepted = usable if accept_from is None else usable & (times.values >= accept_from)
    late = int(usable.sum() - accepted.sum())
    rows = np.flatnonzero(accepted)
    event_times = times.values[rows].astype(np.int64)
    origin = replace(task.origin, tuples=len(rows), times=checksum(event_times.data))
    if task.reread is not None and origin != task.origin:
        said = f", and says: {letters[0].reason}" if letters else ""
        raise InternalError(
            f"the source brings {len(rows)} tuples that are not the {task.origin.tuples} of then{said}",
            reason="BUCKET_LOST",
        )
    made = _Made()
    samples: dict[tuple[Leaf, int], Words] = {}
    distinct: dict[tuple[Leaf, tuple[str, ...]], int] = {}
    if len(rows) and spec.views:
        table = given.table if len(rows) == len(times) else given.table.take(pa.array(rows))
        made = _Builder(shared, replace(task, origin=origin), spec, table, event_times).build(samples, distinct)
    if not task.counts:
        return SourceReport(
            task.stream, 0, 0, 0, (), None, made.bucket, time.perf_counter() - began, read=task.origin.read,
            partials=made.partials, **made.rows._asdict(),
        )  # fmt: skip
    return SourceReport(
        task.stream,
        len(rows),
        late,
        dead,
        tuple(letters[:DEAD_KEPT]),
        int(event_times.max()) if len(event_times) else None,
        made.bucket,
        time.perf_counter() - began,
        samples,
        distinct,
        len(refused.jump),
        task.origin.read,
        loaded.table.num_rows,
        made.partials,
        *made.rows,
        made.folded,
        loaded.arrived_ms if len(rows) else None,
    )


def _only(spec: SourceSpec, groups: set[int]) -> SourceSpec:
    return replace(spec, views=tuple(v for v in spec.views if v.group in groups))


def _once_more(spec: SourceSpec, reread: Reread) -> SourceSpec:
    """What was lost, and no more."""
    allowed = {at.group: np.array(at.words, np.uint64) for at in reread.allowed}
    views = []
    for view in _only(spec, set(allowed)).views:
        folds = tuple(_only_edges(f, allowed[view.group]) for f in view.folds if f.name == reread.fold)
        views.append(replace(view, folds=folds, kept=() if reread.fold else view.kept))
    return replace(spec, views=tuple(views))


def _only_edges(fold: FoldSpec, slots: Words) -> FoldSpec:
    """Edges of punctuated windows belong to queries, whatever their tuples."""
    if not isinstance(fold.cut, Times):
        return fold
    return replace(fold, cut=Times(tuple(rule for rule in fold.cut.edges if has(slots[None], rule.slot)[0])))


class _Given:
    """What a read brings without the rows that are skipped: `numbers[i]` is the number of row i of `table` before.
    `whole`: the same with all columns, which only dead letters show."""

    def __init__(self, table: pa.Table, skipped: Sequence[Skip], whole: Callable[[], pa.Table]) -> None:
        self._rows, self._skips, self._whole = table.num_rows, skipped, cache(whole)
        left = np.ones(table.num_rows, bool)
        for skip in skipped:
            left[skip.first : skip.end] = False
        self.numbers = np.flatnonzero(left)
        self.skipped = table.num_rows - len(self.numbers)
        self.table = table.take(pa.array(self.numbers)) if self.skipped else table

    def letter(self, row: int, reason: str) -> DeadLetter:
        """For a row that was not skipped."""
        number = int(self.numbers[row])
        return DeadLetter(f"tuple {number}", reason, _row_text(self._whole(), number))

    def letters(self, place: str) -> Iterator[DeadLetter]:
        for skip in self._skips:
            for row in range(skip.first, min(skip.end or 0, self._rows, skip.first + DEAD_KEPT)):
                yield DeadLetter(f"{place} tuple {row}", skip.reason, _shown(self._whole(), row))


def _shown(table: pa.Table, row: int) -> str:
    try:
        return _row_text(table, row)
    except Exception:  # what kills a task may not be text at all
        return "<cannot be shown>"


def _row_text(table: pa.Table, row: int) -> str:
    one = table.slice(row, 1)
    plain = {f.name: one[f.name].cast(pa.int64()) if pa.types.is_timestamp(f.type) else one[f.name] for f in one.schema}
    text = json.dumps({name: column[0].as_py() for name, column in plain.items()}, ensure_ascii=False)
    return text[:200]


class _Rows(NamedTuple):
    """As SourceReport has them."""

    delivered: Delivered | None = None
    row_seconds: float = 0.0
    left_out: tuple[str, ...] = ()


_NO_ROWS = _Rows()


@dataclass(frozen=True, slots=True)
class _Made:
    bucket: SourceRef | None = None
    partials: tuple[PartialRef, ...] = ()
    rows: _Rows = _NO_ROWS
    folded: Mapping[tuple[str, str], Folded] = field(default_factory=dict)


class _Builder:
    """What becomes of the accepted tuples of one read: a bucket of those that are joined, a partial bucket per fold,
    and the rows of queries that need nothing else."""

    def __init__(
        self,
        shared: SourceShared,
        task: SourceTask,
        spec: SourceSpec,
        table: pa.Table,
        times: npt.NDArray[np.int64],
    ) -> None:
        self.shared, self.task, self.spec, self.table, self.times = shared, task, spec, table, times
        self._columns: dict[str, ColumnData] = {}

    def column(self, name: str) -> ColumnData:
        data = self._columns.get(name)
        if data is None:
            type = self.spec.schema.column(name).type  # type: ignore[union-attr]
            data = self._columns[name] = from_arrow(self.table.column(name), type)
        return data

    def build(self, samples: dict[tuple[Leaf, int], Words], distinct: dict[tuple[Leaf, tuple[str, ...]], int]) -> _Made:
        n = len(self.times)
        some = slice(None, None, max(1, n // SAMPLED))
        kept: list[tuple[ViewSpec, Words]] = []
        alone: list[tuple[ViewSpec, CodedSets]] = []
        for view in self.spec.views:
            at = (view.leaf, view.group)
            if view.kept:
                sets = self._query_sets(view)
                kept.append((view, sets))
                samples[at] = sets[some].copy()
                if view.folds or view.rows:
                    alone.append((view, coded(sets)))
            else:
                numbered = self._coded_sets(view)
                alone.append((view, numbered))
                samples[at] = numbered.take(some).matrix
        figures: dict[tuple[str, str], Folded] = {}
        partials = tuple(self._fold(alone, figures))
        rows = self._deliver(alone) if self.task.reread is None else _NO_ROWS
        return _Made(self._bucket(kept, distinct), partials, rows, figures)

    def _fold(
        self, tagged: Sequence[tuple[ViewSpec, CodedSets]], figures: dict[tuple[str, str], Folded]
    ) -> Iterator[PartialRef]:
        number, batch = 0, 0 if self.task.origin is None else self.task.origin.read
        for view, sets in tagged:
            for spec in view.folds:
                file = f"b{self.task.bucket}-f{number}.bucket"
                number += 1
                mine = sets.only(bitset(spec.users, view.words))
                rows = np.flatnonzero(mine.nonempty)
                edges, firsts = edges_of(spec, self._lookup(None), self.times, self._epoch)
                if not len(rows) and not firsts:
                    continue
                partials = replace(
                    fold_tuples(spec, self._lookup(rows), self.times[rows], mine.take(rows), self._epoch, batch),
                    edges=edges,
                    firsts=firsts,
                )
                partials, counted = decided(spec, len(rows), partials)
                figures[SourceNode(view.leaf, view.group).name, spec.name] = counted
                target = PartialTarget(self.shared.store, file, self.shared.version, self._epoch)
                yield target.write(spec, partials, stream=self.spec.schema.name, origin=self.task.origin)

    def _lookup(self, rows: npt.NDArray[Any] | None) -> Lookup:
        """Columns of these tuples (None: of all)."""
        every = rows is None or len(rows) == len(self.times)

        def read(ref: ex.ColumnRef) -> ColumnData:
            whole = self.column(ref.column)
            return whole if every or rows is None else whole.take(rows)

        return read

    @property
    def _epoch(self) -> int:
        return self.shared.epoch if self.task.reread is None else self.task.reread.epoch

    def _deliver(self, tagged: Sequence[tuple[ViewSpec, CodedSets]]) -> _Rows:
        began = time.perf_counter()
        name = f"e{self.shared.epoch:010d}-0-{self.task.bucket}.segment"
        writer = SegmentWriter(self.shared.segments, name, self.shared.most)
        for view, sets in tagged:
            for sink in view.rows:
                deliver_tuples(sink, sets.has(sink.slot), self.times, self.column, writer)
        delivered = writer.finish()
        return _Rows(delivered, time.perf_counter() - began if delivered else 0.0, tuple(sorted(writer.left_out)))

    def _bucket(
        self, all_tagged: Sequence[tuple[ViewSpec, Words]], distinct: dict[tuple[Leaf, tuple[str, ...]], int]
    ) -> SourceRef | None:
        spec, n = self.spec, len(self.times)
        tagged = [(view, sets & bitset(view.kept, view.words)) for view, sets in all_tagged]
        wanted = np.zeros(n, bool)
        for _, sets in tagged:
            wanted |= nonempty(sets)
        kept = np.flatnonzero(wanted)
        if not len(kept):
            return None
        slices = slice_starts(spec.shapes, self.times if len(kept) == n else self.times[kept])
        order = self._primary_order(kept, slices)
        if order is not None:
            kept, slices = fetch(kept, order), fetch(slices, order)
        arrays: Arrays = {}
        put_times(arrays, "slice", slices)
        for name in spec.columns:
            put_column(arrays, name, self.column(name).take(kept))
        views = []
        for view, sets in tagged:
            mine = take_rows(sets, kept)
            items = np.flatnonzero(nonempty(mine))
            whole = len(items) == len(kept)
            rows = kept if whole else kept[items]
            indexes = [
                KeyedItems(key, *key_hashes([(self.column(c).take(rows), type) for c, type in key]))
                for key in view.keys
            ]
            if not whole:
                mine = take_rows(mine, items)
            when = slices if whole else fetch(slices, items)
            counts = put_view(arrays, view.leaf, view.group, items, mine, when, indexes)
            for key, count in zip(view.keys, counts, strict=True):
                at = (view.leaf, tuple(c for c, _ in key))
                distinct[at] = max(count, distinct.get(at, 0))
            views.append(view)
        meta = {
            "stream": spec.schema.name,
            "epoch": self._epoch,
            "version": self.shared.version,
            "types": {c: spec.schema.column(c).type for c in spec.columns},  # type: ignore[union-attr]
        }
        file, size = self.shared.store.write(f"b{self.task.bucket}.bucket", meta, arrays)
        return SourceRef(
            self.task.bucket,
            spec.schema.name,
            self._epoch,
            file,
            len(kept),
            size,
            int(slices.min()),
            int(slices.max()),
            tuple(ViewRef(v.leaf, v.group, file, self.shared.version, v.keys) for v in views),
            self.task.origin,
        )

    def _primary_order(self, kept: npt.NDArray[Any], slices: npt.NDArray[np.int64]) -> npt.NDArray[np.int32] | None:
        """Rows lie in the order of the first index: walking two such indexes walks memory forwards on both sides."""
        keys = next(view.keys for view in self.spec.views if view.kept)
        if len(kept) < ORDERED_FROM or not keys:
            return None
        every = len(kept) == len(self.times)
        hashes, _ = key_hashes([(self.column(c) if every else self.column(c).take(kept), t) for c, t in keys[0]])
        order: npt.NDArray[np.int32] = hash_order(np.arange(len(kept)), hashes, slices, slices)
        return order

    def _coded_sets(self, view: ViewSpec) -> CodedSets:
        if any(floor.group == view.group for floor in self.shared.floors):
            return coded(self._query_sets(view))
        sets = coded_sets(self.shared.key, view, self.column, self.times)
        if self.task.reread is not None:
            sets = sets.only(np.array(dict(self.task.reread.allowed)[view.group], np.uint64))
        return sets

    def _query_sets(self, view: ViewSpec) -> Words:
        sets = query_sets(self.shared.key, view, self.column, self.times)
        apply_floors(self.shared.floors, view.group, sets, self.times)
        if self.task.reread is not None:
            sets &= np.array(dict(self.task.reread.allowed)[view.group], np.uint64)
        return sets
