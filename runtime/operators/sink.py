"""The sink operator: the only place where rows come into being.

Combinations arrive as pairs of items with the queries they are for. Nested lists are opened (opening.py), and then
each query, on its own rows only, checks what hashes and indexes could not decide (residual predicates, equality of
string and composite keys), is repeated per window, and fetches exactly the columns it selects.

Everything goes in pieces: combinations (FLUSH), rows behind lists (opening.LARGEST), rows per window
(combinations.WINDOWED), and rows with long texts fewer at a time (row_widths.BYTES).

`Sinks` gives each query the cheapest way to what it asked for: folds and factorized results are taken from closed lists
where they can be (closed_fold.py, factorize.py), and only else from rows made here; those of queries that fold are
folded at once and go no further (fold.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.model.expressions import ColumnRef
from optimizer.model.query import FACTORIZED, FOLD
from runtime.buckets.views import RowRefs
from runtime.columns.column import ColumnData
from runtime.columns.evaluate import truth
from runtime.columns.querysets import Words, bitset, has, remove_slot, widen
from runtime.execution.physical import JoinSpec, SinkSpec
from runtime.kernels.sets import nonempty
from runtime.operators.batches import Batches, lookup
from runtime.operators.closed_fold import ClosedFolds
from runtime.operators.combinations import Combinations, Refs
from runtime.operators.factorize import FactorOperator
from runtime.operators.fold import RowFolder
from runtime.operators.inputs import Directory, all_of, joined_up
from runtime.operators.matches import Chunk, Match, chunks
from runtime.operators.opening import Opener, all_at
from runtime.operators.row_widths import RowWidths
from runtime.results.segment import SegmentWriter

FLUSH = 1 << 18
"""Combinations collected before rows are made."""

ALONE = 1 << 15
"""A piece of this size is worth a flush of its own: all its tuples come from the same two buckets, one run each. Not
with many queries: every flush costs each of them something."""


class Sinks:
    """All queries that end at one join, each in its mode."""

    def __init__(
        self,
        directory: Directory,
        joins: Mapping[str, JoinSpec],
        spec: JoinSpec,
        writer: SegmentWriter,
        folders: Sequence[RowFolder],
    ) -> None:
        folded = tuple(s for s in spec.sinks if not s.needs_rows and s.mode == FOLD)
        factorized = tuple(s for s in spec.sinks if not s.needs_rows and s.mode == FACTORIZED)
        opened = tuple(s for s in spec.sinks if s.needs_rows or s.mode != FACTORIZED)
        self._closed = ClosedFolds(directory, joins, spec, folded, folders) if folded else None
        self._operators: list[SinkOperator | FactorOperator] = []
        if opened:
            self._operators.append(SinkOperator(directory, joins, replace(spec, sinks=opened), writer, folders))
        if factorized:
            self._operators.append(FactorOperator(directory, joins, replace(spec, sinks=factorized), writer))

    def add(self, match: Match) -> None:
        if self._closed is not None:
            match = self._closed.add(match)
        for operator in self._operators:
            operator.add(match)

    def flush(self) -> None:
        for operator in self._operators:
            operator.flush()


class _Rows(NamedTuple):
    """Combinations of rows, collected until they are worth a flush."""

    refs: Refs
    sets: Words
    lo: npt.NDArray[Any]
    hi: npt.NDArray[Any]


class SinkOperator:
    """Rows of queries that end at one join."""

    def __init__(
        self,
        directory: Directory,
        joins: Mapping[str, JoinSpec],
        spec: JoinSpec,
        writer: SegmentWriter,
        folders: Sequence[RowFolder],
    ) -> None:
        self.directory, self.joins, self.spec, self.writer = directory, joins, spec, writer
        by_slot = {s.slot: s for s in spec.sinks}
        self._folding = [(f, [by_slot[s] for s in f.spec.users if s in by_slot]) for f in folders]
        self.slots = bitset([s.slot for s in spec.sinks], spec.words)
        self._leaves = {str(leaf): leaf for side in (spec.left, spec.right) for leaf in side.leaves}
        self._many = len(spec.sinks) > 2
        self._opener = Opener(directory, joins, spec.words)
        self._reads = RowWidths(spec.sinks)
        self._flat = spec.left.child is None and spec.right.child is None  # no lists to open
        self._parts: list[_Rows] = []
        self._rows = 0

    def add(self, match: Match) -> None:
        left_bucket, right_bucket = match.left.bucket, match.right.bucket
        for chunk in chunks(match, self.slots):
            if self._flat:
                l = RowRefs(all_of(left_bucket, len(chunk.left)), chunk.left)
                r = RowRefs(all_of(right_bucket, len(chunk.right)), chunk.right)
                refs = {self.spec.left.leaves[0]: l, self.spec.right.leaves[0]: r}
                self._collect(_Rows(refs, widen(chunk.sets, self.spec.words), chunk.lo, chunk.hi))
            else:
                self._open_both(left_bucket, right_bucket, chunk)

    def _open_both(self, left_bucket: int, right_bucket: int, chunk: Chunk) -> None:
        """Items of joined buckets stand for more than themselves."""
        spec, left, right = self.spec, chunk.left, chunk.right
        sets = widen(chunk.sets, spec.words)
        for origin, refs, some in self._opener.open(spec.left, RowRefs(all_of(left_bucket, len(left)), left), sets):
            items = RowRefs(all_of(right_bucket, len(origin)), right[origin])
            for again, more, wanted in self._opener.open(spec.right, items, some):
                rows = origin[again]
                self._collect(_Rows(all_at(refs, again) | more, wanted, chunk.lo[rows], chunk.hi[rows]))

    def _collect(self, rows: _Rows) -> None:
        alone = len(rows.lo) >= ALONE and not self._many
        if alone:
            self.flush()
        self._parts.append(rows)
        self._rows += len(rows.lo)
        if alone or self._rows >= FLUSH:
            self.flush()

    def flush(self) -> None:
        if not self._parts:
            return
        refs = {leaf: _joined_refs([p.refs[leaf] for p in self._parts]) for leaf in self._parts[0].refs}
        sets = joined_up([p.sets for p in self._parts])
        lo, hi = joined_up([p.lo for p in self._parts]), joined_up([p.hi for p in self._parts])
        self._parts, self._rows = [], 0
        most = self._reads.most_rows(self.directory, refs)
        for first in range(0, len(lo), most):
            piece = slice(first, first + most)
            part = (
                refs
                if most >= len(lo)
                else {leaf: RowRefs(r.buckets[piece], r.items[piece]) for leaf, r in refs.items()}
            )
            collected = Combinations(
                self.directory, self.spec.group, part, sets[piece], lo[piece], hi[piece], many=self._many, most=most
            )
            self._deliver_all(collected)

    def _deliver_all(self, collected: Combinations) -> None:
        batches = Batches(collected, self.writer)
        for sink in self.spec.sinks:
            rows = collected.of(sink.slot)
            if len(rows) and sink.mode != FOLD:
                self._deliver(sink, collected, rows, batches)
        batches.flush()
        for folder, sinks in self._folding:
            self._fold(folder, sinks, collected)

    def _fold(self, folder: RowFolder, sinks: Sequence[SinkSpec], collected: Combinations) -> None:
        """The combinations of all queries of a fold, without those that their checks refuse."""
        sets = collected.sets & bitset([s.slot for s in sinks], self.spec.words)
        for sink in sinks:
            rows = np.flatnonzero(has(sets, sink.slot)) if sink.checks else np.empty(0, np.int64)
            for check in sink.checks:
                if len(rows):
                    passed = truth(check, lookup(sink, collected.part(rows), {}), len(rows))
                    remove_slot(sets, rows[~passed], sink.slot)
                    rows = rows[passed]
        kept = np.flatnonzero(nonempty(sets))
        if not len(kept):
            return
        part = collected.part(kept)
        lo, hi = collected.spans
        leaves = self._leaves

        def read(ref: ColumnRef) -> ColumnData:
            return part.column(leaves[ref.alias], ref.column, ref.type)

        folder.add(read, lo[kept], hi[kept], sets[kept])

    def _deliver(self, sink: SinkSpec, collected: Combinations, rows: npt.NDArray[Any], batches: Batches) -> None:
        part = collected.part(rows)
        for check in sink.checks:
            passed = truth(check, lookup(sink, part, {}), len(part.rows))
            if not passed.all():
                part = collected.part(part.rows[passed])
            if not len(part.rows):
                return
        for rows, starts in collected.windows(part.rows, sink.window, sink.active_from):
            batches.add(sink, part if rows is part.rows else collected.part(rows), starts)


def _joined_refs(parts: list[RowRefs]) -> RowRefs:
    return RowRefs(joined_up([p.buckets for p in parts]), joined_up([p.items for p in parts]))
