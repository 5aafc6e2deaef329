"""EMIT FACTORIZED: a match is handed to the query as the lists it consists of, not as their product.

Two source views: every pair of entries gives two lists. A joined bucket is opened as far as a product needs it: each of
its items is one row, its carrier a list of one, its partners, if they are source rows, the closed list as it is.
Partners that are joined items themselves are a union of products, so they become rows of their own.

A list holds only items with the query's bit. Lists longer than LONGEST are cut, because a x (b + c) is a x b + a x c:
a row then stays small enough to travel in one message. Rows are laid out, per window they are in, so many at a time
that their lists have about FLUSH items together, fewer if their texts are long.

Queries that must look at single combinations (residual predicates, keys whose hash is no proof, outputs that read
several sources) do not come here: the sink operator gives them lists of length one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.model import expressions as ex
from optimizer.model.plan import Leaf
from optimizer.model.types import ColumnType
from runtime.buckets.views import RowRefs
from runtime.columns.column import ColumnData
from runtime.columns.evaluate import evaluate
from runtime.columns.querysets import Words, bitset, has, widen
from runtime.execution.physical import JoinSpec, SideSpec, SinkSpec, source_sides
from runtime.kernels.expand import cut, in_runs, unroll
from runtime.kernels.sets import nonempty
from runtime.operators.combinations import WINDOWED
from runtime.operators.inputs import Directory, gather
from runtime.operators.matches import Lists, Match, Side, chunks
from runtime.operators.opening import most_rows
from runtime.operators.row_widths import RowWidths
from runtime.results.factorized import BOUNDS, Layout, list_array
from runtime.results.segment import SegmentWriter
from runtime.windows.base import Holding
from runtime.windows.registry import logic_of

FLUSH = 1 << 18
"""Items in lists collected before anything is fetched."""

LONGEST = 1 << 16

Ints = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class LeafLists:
    """One leaf's list per row: positions [first, end) in the index of a bucket, or (not `listed`) items themselves."""

    buckets: Ints
    first: Ints
    end: Ints
    listed: npt.NDArray[np.bool_]

    def take(self, rows: Ints) -> LeafLists:
        return LeafLists(self.buckets[rows], self.first[rows], self.end[rows], self.listed[rows])

    @staticmethod
    def of(bucket: int | Ints, first: Ints, end: Ints, *, listed: bool) -> LeafLists:
        buckets = np.full(len(first), bucket, np.int64) if isinstance(bucket, int) else bucket
        begin = first.astype(np.int64)
        return LeafLists(buckets, begin, np.maximum(end.astype(np.int64), begin), np.full(len(first), listed))


def concat(parts: list[LeafLists]) -> LeafLists:
    return LeafLists(
        np.concatenate([p.buckets for p in parts]),
        np.concatenate([p.first for p in parts]),
        np.concatenate([p.end for p in parts]),
        np.concatenate([p.listed for p in parts]),
    )


Factors = dict[Leaf, LeafLists]


class _Products(NamedTuple):
    """Rows of lists, collected until they are worth a flush: who wants each, and the slices [lo, hi] it spans."""

    lists: Factors
    sets: Words
    lo: Ints
    hi: Ints


class _Opened(NamedTuple):
    """Items as products: which item (or pair of entries) each came from, its lists, who wants it."""

    origin: Ints
    lists: Factors
    sets: Words


class _Wanted(NamedTuple):
    """Items of lists that a query wants: the row whose list it is in, bucket and item."""

    row: Ints
    bucket: Ints
    item: Ints


class FactorOperator:
    """Factorized rows of the queries in `spec.sinks`."""

    def __init__(
        self, directory: Directory, joins: Mapping[str, JoinSpec], spec: JoinSpec, writer: SegmentWriter
    ) -> None:
        self.directory, self.joins, self.spec, self.writer = directory, joins, spec, writer
        self.slots = bitset([s.slot for s in spec.sinks], spec.words)
        self._sides = source_sides(spec, joins)
        self._widths = RowWidths(spec.sinks)
        self._parts: list[_Products] = []
        self._held = 0

    # -- collecting -----------------------------------------------------------------------------------------------

    def add(self, match: Match) -> None:
        chosen = match.only(self.slots)
        if chosen is None:
            return
        l, r, spec = chosen.left, chosen.right, self.spec
        if spec.left.child is None and spec.right.child is None:
            lists = _closed(spec.left, l, chosen.left_lists()) | _closed(spec.right, r, chosen.right_lists())
            self._keep(_Products(lists, widen(chosen.sets, spec.words), chosen.lo, chosen.hi))
        elif spec.right.child is None:
            for first, (pair, items, sets) in chosen.carried_left(FLUSH):
                for p, lists, wanted in self._opened(spec.left, l, pair + first, items, sets):
                    lists |= _closed(spec.right, r, chosen.right_lists(p))
                    self._keep(_Products(lists, wanted, chosen.lo[p], chosen.hi[p]))
        elif spec.left.child is None:
            for first, (pair, items, sets) in chosen.carried_right(FLUSH):
                for p, lists, wanted in self._opened(spec.right, r, pair + first, items, sets):
                    lists |= _closed(spec.left, l, chosen.left_lists(p))
                    self._keep(_Products(lists, wanted, chosen.lo[p], chosen.hi[p]))
        else:
            for left, right, sets, lo, hi in chunks(chosen, self.slots):
                for p, lists, some in self._opened(spec.left, l, np.arange(len(left)), left, sets):
                    for again, more, wanted in self._opened(spec.right, r, np.arange(len(p)), right[p], some):
                        both = {leaf: x.take(again) for leaf, x in lists.items()} | more
                        self._keep(_Products(both, wanted, lo[p][again], hi[p][again]))

    def _opened(self, side: SideSpec, opened: Side, p: Ints, items: Ints, sets: Words) -> Iterator[_Opened]:
        """Items of one bucket, each in the pair of entries `p`."""
        buckets = np.full(len(items), opened.bucket, np.int64)
        for origin, lists, wanted in self._open(side, buckets, items, widen(sets, self.spec.words)):
            yield _Opened(p[origin], lists, wanted)

    def _keep(self, products: _Products) -> None:
        if len(products.lo):
            self._parts.append(products)
            self._held += int(_cost(products.lists).sum())
        if self._held >= FLUSH:
            self.flush()

    def _open(self, side: SideSpec, buckets: Ints, items: Ints, sets: Words) -> Iterator[_Opened]:
        """In pieces, as in opening.py."""
        n = len(items)
        if n == 0:
            return
        if side.child is None:
            lists = {leaf: LeafLists.of(buckets, items, items + 1, listed=False) for leaf in side.leaves}
            yield _Opened(np.arange(n), lists, sets)
            return
        d, spec = self.directory, self.joins[side.child]
        left_carries = gather(buckets, np.zeros(n, np.int64), lambda b: np.array([d.joined_bucket(b).carrier_left]))
        for carrier, partner, which in (
            (spec.left, spec.right, np.flatnonzero(left_carries)),
            (spec.right, spec.left, np.flatnonzero(~left_carries)),
        ):
            if len(which):
                for opened in self._open_joined(carrier, partner, buckets[which], items[which], sets[which]):
                    yield opened._replace(origin=which[opened.origin])

    def _open_joined(
        self, carrier: SideSpec, partner: SideSpec, buckets: Ints, items: Ints, sets: Words
    ) -> Iterator[_Opened]:
        d = self.directory
        first = gather(buckets, items, lambda b: d.joined_bucket(b).partner_from).astype(np.int64)
        end = gather(buckets, items, lambda b: d.joined_bucket(b).partner_to).astype(np.int64)
        partner_bucket = gather(buckets, items, lambda b: d.joined_bucket(b).partner_bucket)
        carrier_bucket = gather(buckets, items, lambda b: d.joined_bucket(b).carrier_bucket)
        carrier_item = gather(buckets, items, lambda b: d.joined_bucket(b).carrier_item)
        for which, lists, some in self._partners(partner, partner_bucket, first, end, sets):
            for origin, more, wanted in self._open(carrier, carrier_bucket[which], carrier_item[which], some):
                both = {leaf: x.take(origin) for leaf, x in lists.items()} | more
                yield _Opened(which[origin], both, wanted)

    def _partners(self, side: SideSpec, buckets: Ints, first: Ints, end: Ints, sets: Words) -> Iterator[_Opened]:
        """The lists [first, end) of partners: as they are if these are source rows, else opened."""
        d = self.directory
        if side.child is None:
            lists = {side.leaves[0]: LeafLists.of(buckets, first, end, listed=True)}
            yield _Opened(np.arange(len(first)), lists, sets)
            return
        for piece in cut(first, end, most_rows(self.spec.words)):
            which, position = unroll(piece.starts, piece.ends)
            which += piece.first
            b = buckets[which]
            item = gather(b, position, lambda b: d.joined_bucket(b).order)
            wanted = sets[which] & d.sets(b, item, None, side.group, self.spec.words)
            keep = np.flatnonzero(nonempty(wanted))
            for opened in self._open(side, b[keep], item[keep], wanted[keep]):
                yield opened._replace(origin=which[keep][opened.origin])

    # -- delivering -----------------------------------------------------------------------------------------------

    def flush(self) -> None:
        if not self._parts:
            return
        lists = {leaf: concat([p.lists[leaf] for p in self._parts]) for leaf in self._parts[0].lists}
        sets, lo, hi = (np.concatenate(column) for column in list(zip(*self._parts, strict=True))[1:])
        self._parts, self._held = [], 0
        cost = _cost(lists)
        refs = {leaf: RowRefs(x.buckets, x.first) for leaf, x in lists.items()}
        most = min(FLUSH, self._widths.most_rows(self.directory, refs))
        for sink in self.spec.sinks:
            rows = np.flatnonzero(has(sets, sink.slot))
            held = logic_of(sink.window).holding(lo[rows], hi[rows], sink.active_from)
            inside = np.flatnonzero(held.counts)
            rows, held = rows[inside], held.take(inside)
            for part in in_runs(cost[rows], most):
                mine = {leaf: x.take(rows[part]) for leaf, x in lists.items()}
                self._deliver(sink, mine, held.take(part), most)

    def _deliver(self, sink: SinkSpec, lists: Factors, held: Holding, most: int) -> None:
        n = len(held.counts)
        kept = {leaf: self._with_bit(sink, leaf, lists[leaf]) for _, leaf in sink.leaves}
        counts = {leaf: np.bincount(wanted.row, minlength=n) for leaf, wanted in kept.items()}
        full = np.flatnonzero(np.all([c > 0 for c in counts.values()], axis=0))
        if not len(full):
            return
        begin = {leaf: (np.cumsum(c) - c)[full] for leaf, c in counts.items()}
        end = {leaf: begin[leaf] + c[full] for leaf, c in counts.items()}
        row = _cut(begin, end, min(LONGEST, most))
        length = np.sum([end[leaf] - begin[leaf] for leaf in begin], axis=0)
        for which, starts in held.take(full[row]).pieces(WINDOWED):
            for part in in_runs(length[which], most):
                self._write(sink, kept, begin, end, which[part], starts[part])

    def _write(
        self,
        sink: SinkSpec,
        kept: dict[Leaf, _Wanted],
        begin: dict[Leaf, Ints],
        end: dict[Leaf, Ints],
        which: Ints,
        starts: Ints,
    ) -> None:
        """Row number `which` has, per leaf, items [begin, end) of those `kept`."""
        bounds = dict(zip(BOUNDS, (starts, logic_of(sink.window).ends(starts)), strict=True))
        layout = Layout.of([alias for alias, _ in sink.leaves], sink.outputs)
        arrays, total = [], np.ones(len(which), np.int64)
        leaves = dict(sink.leaves)
        for alias, outputs in layout.lists:
            leaf = leaves[alias]
            owner, at = unroll(begin[leaf][which], end[leaf][which])
            length = end[leaf][which] - begin[leaf][which]
            total *= length
            wanted = kept[leaf]
            values = self._values(leaf, wanted.bucket[at], wanted.item[at], {n: v[owner] for n, v in bounds.items()})
            columns = [evaluate(o.expr, values, len(at)).to_arrow() for o in outputs]
            offsets = np.concatenate(([0], np.cumsum(length)))
            arrays.append(list_array(offsets, columns, [o.name for o in outputs]))
        window = _window_columns(bounds)
        plain = [evaluate(o.expr, lambda e: window[e.which], len(which)).to_arrow() for o in layout.plain]
        batch = layout.batch([window[b].to_arrow() for b in BOUNDS], plain, arrays)
        self.writer.append(sink.uid, batch, int(total.sum()))

    def _with_bit(self, sink: SinkSpec, leaf: Leaf, lists: LeafLists) -> _Wanted:
        d, side = self.directory, self._sides[leaf]
        row, at = unroll(lists.first, lists.end)
        buckets = lists.buckets[row]
        item = at.copy()
        listed = np.flatnonzero(lists.listed[row])
        if len(listed):
            key = side.index_key
            item[listed] = gather(buckets[listed], at[listed], lambda b: d.view(b, leaf, side.group).order(key))
        keep = np.flatnonzero(has(d.sets(buckets, item, leaf, side.group, self.spec.words), sink.slot))
        return _Wanted(row[keep], buckets[keep], item[keep])

    def _values(self, leaf: Leaf, buckets: Ints, items: Ints, bounds: Mapping[str, Ints]) -> Any:
        rows = self.directory.rows(leaf, self.spec.group, buckets, items)
        window = _window_columns(bounds)

        def lookup(ref: ex.ColumnRef | ex.WindowBound) -> ColumnData:
            return window[ref.which] if isinstance(ref, ex.WindowBound) else rows.column(ref.column)

        return lookup


def _closed(side: SideSpec, opened: Side, lists: Lists) -> Factors:
    """Lists of items of a source view, as they are."""
    return {side.leaves[0]: LeafLists.of(opened.bucket, lists.first, lists.end, listed=True)}


def _cost(lists: Factors) -> Ints:
    cost: Ints = np.sum([x.end - x.first for x in lists.values()], axis=0)
    return cost


def _cut(begin: dict[Leaf, Ints], end: dict[Leaf, Ints], longest: int) -> Ints:
    """Cuts long lists in place; returns the row that each (piece of a) row came from."""
    row = np.arange(len(next(iter(begin.values()))))
    for leaf in begin:
        pieces = -(-(end[leaf] - begin[leaf]) // longest)
        if (pieces > 1).any():
            which, number = unroll(np.zeros(len(pieces), np.int64), pieces)
            row = row[which]
            for other in begin:
                begin[other], end[other] = begin[other][which], end[other][which]
            begin[leaf] = begin[leaf] + number * longest
            end[leaf] = np.minimum(end[leaf], begin[leaf] + longest)
    return row


def _window_columns(bounds: Mapping[str, Ints]) -> dict[str, ColumnData]:
    return {name: ColumnData(ColumnType.TIMESTAMP, values) for name, values in bounds.items()}
