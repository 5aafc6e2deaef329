"""The sink operator: the only place where rows come into being.

Combinations arrive as pairs of items with the queries they are for. Nested lists are opened (dropping, at every step,
what no query wants any more), and then each query, on its own rows only, checks what hashes and indexes could not
decide (residual predicates, equality of string and composite keys), is repeated per window, and fetches exactly the
columns it selects.

`Sinks` gives each query the cheapest way to what it asked for: rows are made here; counts and factorized results are
taken from closed lists where they can be (count.py, factorize.py), and only else from rows made here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.model.query import COUNT, FACTORIZED
from runtime.buckets.views import RowRefs
from runtime.columns.evaluate import truth
from runtime.columns.querysets import Words, bitset, widen
from runtime.execution.physical import JoinSpec, SideSpec, SinkSpec
from runtime.kernels.expand import unroll
from runtime.kernels.sets import nonempty
from runtime.operators.batches import Batches, lookup
from runtime.operators.combinations import Combinations, Refs
from runtime.operators.count import CountOperator, Tally
from runtime.operators.factorize import FactorOperator
from runtime.operators.inputs import Directory, all_of, gather, joined_up
from runtime.operators.matches import Chunk, Match, chunks
from runtime.results.segment import SegmentWriter

FLUSH = 1 << 18
"""Combinations collected before rows are made."""

ALONE = 1 << 15
"""A piece of this size is worth a flush of its own: all its tuples come from the same two buckets, one run each. Not
with many queries: every flush costs each of them something."""

LARGEST = 1 << 21
"""Rows that closed lists may open into at a time: bounds the memory of a hot key in a chain of joins."""


class Sinks:
    """All queries that end at one join, each in its mode."""

    def __init__(
        self, directory: Directory, joins: Mapping[str, JoinSpec], spec: JoinSpec, writer: SegmentWriter, tally: Tally
    ) -> None:
        opened = tuple(s for s in spec.sinks if s.needs_rows)
        closed = [s for s in spec.sinks if not s.needs_rows]
        counted = tuple(s for s in closed if s.mode == COUNT)
        factorized = tuple(s for s in closed if s.mode == FACTORIZED)
        self._operators: list[SinkOperator | CountOperator | FactorOperator] = []
        if opened:
            self._operators.append(SinkOperator(directory, joins, replace(spec, sinks=opened), writer, tally))
        if counted:
            self._operators.append(CountOperator(directory, joins, replace(spec, sinks=counted), tally))
        if factorized:
            self._operators.append(FactorOperator(directory, joins, replace(spec, sinks=factorized), writer))

    def add(self, match: Match) -> None:
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


class _Opened(NamedTuple):
    """Rows behind items: which item each came from, the row of every leaf, who wants it."""

    origin: npt.NDArray[np.int64]
    refs: Refs
    sets: Words


class SinkOperator:
    """Rows of queries that end at one join."""

    def __init__(
        self, directory: Directory, joins: Mapping[str, JoinSpec], spec: JoinSpec, writer: SegmentWriter, tally: Tally
    ) -> None:
        self.directory, self.joins, self.spec, self.writer, self.tally = directory, joins, spec, writer, tally
        self.slots = bitset([s.slot for s in spec.sinks], spec.words)
        self._many = len(spec.sinks) > 2
        self._flat = spec.left.child is None and spec.right.child is None  # no lists to open
        self._parts: list[_Rows] = []
        self._rows = 0

    def add(self, match: Match) -> None:
        """Items of joined buckets stand for more than themselves: what would open into too much is taken in pieces."""
        left_bucket, right_bucket = match.left.bucket, match.right.bucket
        for chunk in chunks(match, self.slots):
            if self._flat:
                l = RowRefs(all_of(left_bucket, len(chunk.left)), chunk.left)
                r = RowRefs(all_of(right_bucket, len(chunk.right)), chunk.right)
                refs = {self.spec.left.leaves[0]: l, self.spec.right.leaves[0]: r}
                self._collect(_Rows(refs, widen(chunk.sets, self.spec.words), chunk.lo, chunk.hi))
            else:
                for piece in self._pieces(left_bucket, right_bucket, chunk):
                    self._open_both(left_bucket, right_bucket, piece)

    def _pieces(self, left_bucket: int, right_bucket: int, chunk: Chunk) -> Iterator[Chunk]:
        weight = self._weight(self.spec.left, left_bucket, chunk.left)
        weight = weight * self._weight(self.spec.right, right_bucket, chunk.right)
        n, total = len(weight), int(weight.sum())
        if n == 1 or total <= LARGEST:
            yield chunk
            return
        cuts = np.searchsorted(np.cumsum(weight), np.arange(LARGEST, total, LARGEST))
        for rows in np.split(np.arange(n), np.unique(cuts[(cuts > 0) & (cuts < n)])):
            yield chunk.take(rows)

    def _weight(self, side: SideSpec, bucket: int, items: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Into how many rows each item opens, one level deep."""
        if side.child is None:
            return np.ones(len(items), np.int64)
        joined = self.directory.joined_bucket(bucket)
        lists: npt.NDArray[np.int64] = (joined.partner_to[items] - joined.partner_from[items]).astype(np.int64)
        return lists

    def _open_both(self, left_bucket: int, right_bucket: int, chunk: Chunk) -> None:
        spec, left, right = self.spec, chunk.left, chunk.right
        sets = widen(chunk.sets, spec.words)
        origin, refs, sets = self._open(spec.left, RowRefs(all_of(left_bucket, len(left)), left), sets)
        if not len(origin):
            return
        items = RowRefs(all_of(right_bucket, len(origin)), right[origin])
        again, more, sets = self._open(spec.right, items, sets)
        origin = origin[again]
        if len(origin):
            self._collect(_Rows(_at(refs, again) | more, sets, chunk.lo[origin], chunk.hi[origin]))

    def _collect(self, rows: _Rows) -> None:
        alone = len(rows.lo) >= ALONE and not self._many
        if alone:
            self.flush()
        self._parts.append(rows)
        self._rows += len(rows.lo)
        if alone or self._rows >= FLUSH:
            self.flush()

    def _open(self, side: SideSpec, refs: RowRefs, sets: Words) -> _Opened:
        """The rows behind items of one side's buckets."""
        buckets, items = refs
        n = len(items)
        if side.child is None:
            return _Opened(np.arange(n), {side.leaves[0]: refs}, sets)
        if n == 0:
            empty = np.empty(0, np.int32)
            return _Opened(np.empty(0, np.int64), dict.fromkeys(side.leaves, RowRefs(empty, empty)), sets)
        d, spec = self.directory, self.joins[side.child]
        carried_left = gather(buckets, np.zeros(n, np.int64), lambda b: np.array([d.joined_bucket(b).carrier_left]))
        pieces = []
        for left_carries in (True, False):
            chosen = np.flatnonzero(carried_left == left_carries)
            if len(chosen):
                carrier, partner = (spec.left, spec.right) if left_carries else (spec.right, spec.left)
                opened = self._open_joined(carrier, partner, RowRefs(buckets[chosen], items[chosen]), sets[chosen])
                pieces.append(opened._replace(origin=chosen[opened.origin]))
        if len(pieces) == 1:
            return pieces[0]
        (o1, r1, s1), (o2, r2, s2) = pieces
        both = {leaf: _joined_refs([r1[leaf], r2[leaf]]) for leaf in r1}
        return _Opened(np.concatenate((o1, o2)), both, np.concatenate((s1, s2)))

    def _open_joined(self, carrier: SideSpec, partner: SideSpec, refs: RowRefs, sets: Words) -> _Opened:
        """The same for items of joined buckets in which this side carries."""
        d, words = self.directory, self.spec.words
        buckets, items = refs
        first = gather(buckets, items, lambda b: d.joined_bucket(b).partner_from).astype(np.int64)
        end = gather(buckets, items, lambda b: d.joined_bucket(b).partner_to).astype(np.int64)
        which, position = unroll(first, end)
        partner_bucket = gather(buckets, items, lambda b: d.joined_bucket(b).partner_bucket)[which]
        partner_item = gather(partner_bucket, position, lambda b: self._order(partner, b))
        leaf = partner.leaves[0] if partner.child is None else None
        sets = sets[which] & d.sets(partner_bucket, partner_item, leaf, partner.group, words)
        keep = np.flatnonzero(nonempty(sets))
        which, sets = which[keep], sets[keep]
        partners = RowRefs(partner_bucket[keep], partner_item[keep])
        carriers = RowRefs(
            gather(buckets, items, lambda b: d.joined_bucket(b).carrier_bucket)[which],
            gather(buckets, items, lambda b: d.joined_bucket(b).carrier_item)[which],
        )
        origin, rows, sets = self._open(carrier, carriers, sets)
        again, more, sets = self._open(partner, RowRefs(partners.buckets[origin], partners.items[origin]), sets)
        return _Opened(which[origin][again], _at(rows, again) | more, sets)

    def _order(self, side: SideSpec, bucket: int) -> npt.NDArray[np.int32]:
        if side.child is None:
            return self.directory.view(bucket, side.leaves[0], side.group).order(side.index_key)
        return self.directory.joined_bucket(bucket).order

    def flush(self) -> None:
        if not self._parts:
            return
        refs = {leaf: _joined_refs([p.refs[leaf] for p in self._parts]) for leaf in self._parts[0].refs}
        sets = joined_up([p.sets for p in self._parts])
        lo, hi = joined_up([p.lo for p in self._parts]), joined_up([p.hi for p in self._parts])
        self._parts, self._rows = [], 0
        collected = Combinations(self.directory, self.spec.group, refs, sets, lo, hi, many=self._many)
        batches = Batches(collected, self.writer)
        for sink in self.spec.sinks:
            rows = collected.of(sink.slot)
            if len(rows):
                self._deliver(sink, collected, rows, batches)
        batches.flush()

    def _deliver(self, sink: SinkSpec, collected: Combinations, rows: npt.NDArray[Any], batches: Batches) -> None:
        part = collected.part(rows)
        for check in sink.checks:
            passed = truth(check, lookup(sink, part, {}), len(part.rows))
            if not passed.all():
                part = collected.part(part.rows[passed])
            if not len(part.rows):
                return
        rows, starts = collected.windows(part.rows, sink.window, sink.active_from)
        if not len(rows):
            return
        if sink.mode == COUNT:
            self.tally.add(sink.uid, starts, np.ones(len(starts), np.int64))
        else:
            batches.add(sink, part if rows is part.rows else collected.part(rows), starts)


def _at(refs: Refs, rows: npt.NDArray[Any]) -> Refs:
    return {leaf: RowRefs(r.buckets[rows], r.items[rows]) for leaf, r in refs.items()}


def _joined_refs(parts: list[RowRefs]) -> RowRefs:
    return RowRefs(joined_up([p.buckets for p in parts]), joined_up([p.items for p in parts]))
