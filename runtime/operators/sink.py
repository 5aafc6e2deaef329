"""The sink operator: the only place where rows come into being.

Combinations arrive as pairs of items with the queries they are for. Nested lists are opened (dropping, at every step,
what no query wants any more), and then each query, on its own rows only, checks what hashes and indexes could not
decide (residual predicates, equality of string and composite keys), is repeated per window, and fetches exactly the
columns it selects.

`Sinks` gives each query the cheapest way to what it asked for: rows are made here; counts and factorized results are
taken from closed lists where they can be (count.py, factorize.py), and only else from rows made here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from optimizer.model.query import COUNT, FACTORIZED
from runtime.columns.evaluate import truth
from runtime.columns.querysets import Words, bitset, widen
from runtime.execution.physical import JoinSpec, SideSpec, SinkSpec
from runtime.kernels.expand import unroll
from runtime.kernels.sets import some
from runtime.operators.batches import Batches, lookup
from runtime.operators.combinations import Combinations, Refs
from runtime.operators.count import CountOperator, Tally
from runtime.operators.factorize import FactorOperator
from runtime.operators.inputs import Directory, all_of, gather, joined_up
from runtime.operators.matches import Match, chunks
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


class SinkOperator:
    """Rows of queries that end at one join."""

    def __init__(
        self, directory: Directory, joins: Mapping[str, JoinSpec], spec: JoinSpec, writer: SegmentWriter, tally: Tally
    ) -> None:
        self.directory, self.joins, self.spec, self.writer, self.tally = directory, joins, spec, writer, tally
        self.slots = bitset([s.slot for s in spec.sinks], spec.words)
        self._many = len(spec.sinks) > 2
        self._flat = spec.left.child is None and spec.right.child is None  # no lists to open
        self._parts: list[tuple[Refs, Words, npt.NDArray[Any], npt.NDArray[Any]]] = []
        self._rows = 0

    def add(self, match: Match) -> None:
        for left, right, sets, lo, hi in chunks(match, self.slots):
            self._add(match.left.bucket, left, match.right.bucket, right, sets, lo, hi)

    def _add(
        self,
        left_bucket: int,
        left: npt.NDArray[Any],
        right_bucket: int,
        right: npt.NDArray[Any],
        sets: Words,
        lo: npt.NDArray[Any],
        hi: npt.NDArray[Any],
    ) -> None:
        """Combinations of items of two buckets; `lo` and `hi` span their slices.

        Items of joined buckets stand for more than themselves: what would open into too much is taken in pieces.
        """
        if self._flat:
            sets = widen(sets, self.spec.words)
            l, r = (all_of(left_bucket, len(left)), left), (all_of(right_bucket, len(right)), right)
            self._collect({self.spec.left.leaves[0]: l, self.spec.right.leaves[0]: r}, sets, lo, hi)
            return
        weight = self._weight(self.spec.left, left_bucket, left) * self._weight(self.spec.right, right_bucket, right)
        if len(left) > 1 and int(weight.sum()) > LARGEST:
            cuts = np.searchsorted(np.cumsum(weight), np.arange(LARGEST, int(weight.sum()), LARGEST))
            for part in np.split(np.arange(len(left)), np.unique(cuts[(cuts > 0) & (cuts < len(left))])):
                self._add_piece(left_bucket, left[part], right_bucket, right[part], sets[part], lo[part], hi[part])
            return
        self._add_piece(left_bucket, left, right_bucket, right, sets, lo, hi)

    def _weight(self, side: SideSpec, bucket: int, items: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Into how many rows each item opens, one level deep."""
        if side.child is None:
            return np.ones(len(items), np.int64)
        joined = self.directory.joined_bucket(bucket)
        lists: npt.NDArray[np.int64] = (joined.partner_to[items] - joined.partner_from[items]).astype(np.int64)
        return lists

    def _add_piece(
        self,
        left_bucket: int,
        left: npt.NDArray[Any],
        right_bucket: int,
        right: npt.NDArray[Any],
        sets: Words,
        lo: npt.NDArray[Any],
        hi: npt.NDArray[Any],
    ) -> None:
        sets = widen(sets, self.spec.words)
        origin, refs, sets = self._open(self.spec.left, all_of(left_bucket, len(left)), left, sets)
        if not len(origin):
            return
        again, more, sets = self._open(self.spec.right, all_of(right_bucket, len(origin)), right[origin], sets)
        refs = {leaf: (b[again], i[again]) for leaf, (b, i) in refs.items()} | more
        origin = origin[again]
        if len(origin):
            self._collect(refs, sets, lo[origin], hi[origin])

    def _collect(self, refs: Refs, sets: Words, lo: npt.NDArray[Any], hi: npt.NDArray[Any]) -> None:
        alone = len(lo) >= ALONE and not self._many
        if alone:
            self.flush()
        self._parts.append((refs, sets, lo, hi))
        self._rows += len(lo)
        if alone or self._rows >= FLUSH:
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
        keep = np.flatnonzero(some(sets))
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
            return self.directory.view(bucket, side.leaves[0], side.group).order(side.index_key)
        return self.directory.joined_bucket(bucket).order

    def flush(self) -> None:
        if not self._parts:
            return
        refs: Refs = {
            leaf: (joined_up([p[0][leaf][0] for p in self._parts]), joined_up([p[0][leaf][1] for p in self._parts]))
            for leaf in self._parts[0][0]
        }
        sets = joined_up([p[1] for p in self._parts])
        lo, hi = joined_up([p[2] for p in self._parts]), joined_up([p[3] for p in self._parts])
        self._parts, self._rows = [], 0
        found = Combinations(self.directory, self.spec.group, refs, sets, lo, hi, many=self._many)
        batches = Batches(found, self.writer)
        for sink in self.spec.sinks:
            rows = found.of(sink.slot)
            if len(rows):
                self._deliver(sink, found, rows, batches)
        batches.flush()

    def _deliver(self, sink: SinkSpec, found: Combinations, rows: npt.NDArray[Any], batches: Batches) -> None:
        part = found.part(rows)
        for check in sink.checks:
            passed = truth(check, lookup(sink, part, {}), len(part.rows))
            if not passed.all():
                part = found.part(part.rows[passed])
            if not len(part.rows):
                return
        rows, starts = found.windows(part.rows, sink.window, sink.active_from)
        if not len(rows):
            return
        if sink.mode == COUNT:
            self.tally.add(sink.uid, starts, np.ones(len(starts), np.int64))
        else:
            batches.add(sink, part if rows is part.rows else found.part(rows), starts)
