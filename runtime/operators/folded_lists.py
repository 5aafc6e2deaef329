"""Closed lists, folded: what a list of items is worth to a fold, without opening what it will be combined with.

A fold over a join needs, of every combination, the group it belongs to and the values that are folded. Each of these
comes from one source (runtime.execution.folding.folds_closed). So a list is folded on its own, to one entry per group
values of its side and query set, with the number of rows and the partials of its side:

    list of a source's items      its tuples, folded
    item of a joined bucket       (its carrier) x (its list of partners)
    list of joined items          all entries of its items, folded

What products are, folded.py says; their rows are never made.

Cost: one pass over each list, however many items refer to it, and the pairs of entries. Where every item has a group of
its own, or a query set of its own, there are as many pairs as combinations, but never more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.model import expressions as ex
from optimizer.model.expressions import ColumnRef, Expr
from optimizer.model.plan import Leaf
from runtime.aggregates.components import Component
from runtime.buckets.views import RowRefs
from runtime.columns.column import ColumnData
from runtime.columns.querysets import Words, widen
from runtime.execution.folding import FoldSpec, folds_closed
from runtime.execution.physical import JoinSpec, SideSpec
from runtime.kernels.expand import cut, unroll
from runtime.kernels.grouping import Entries
from runtime.kernels.sets import nonempty
from runtime.operators.fold import key_column, state_of
from runtime.operators.folded import STAR, Folded, entries_of, grouped, most_sets, ordered, products, together
from runtime.operators.inputs import Directory, all_of, split_by_bucket
from runtime.operators.row_widths import most_tuples

I64 = npt.NDArray[np.int64]
Ints = npt.NDArray[Any]


class _Share(NamedTuple):
    """What one source gives to a fold."""

    keys: Mapping[int, Expr]
    components: Sequence[Component]

    @property
    def expressions(self) -> list[Expr]:
        return [*self.keys.values(), *(e for c in self.components for e in c.expressions)]


class ListFolder:
    """Folds the lists under one join. What reads no source at all belongs to the first one; components that cannot be
    folded this way are left out, because whoever wants them has its rows made."""

    def __init__(self, directory: Directory, joins: Mapping[str, JoinSpec], spec: JoinSpec, fold: FoldSpec) -> None:
        self._directory, self._joins, self._words = directory, joins, spec.words
        leaves = [*spec.left.leaves, *spec.right.leaves]
        self.components = tuple(c for c in fold.components if folds_closed(c))

        def mine(leaf: Leaf, exprs: Sequence[Expr]) -> bool:
            return ({a for e in exprs for a in ex.aliases_of(e)} or {str(leaves[0])}) == {str(leaf)}

        self._shares = {
            leaf: _Share(
                {i: key for i, key in enumerate(fold.keys) if mine(leaf, [key])},
                [STAR, *(c for c in self.components if c != STAR and mine(leaf, c.expressions))],
            )
            for leaf in leaves
        }

    def lists(self, side: SideSpec, bucket: int, first: Ints, end: Ints, wanted: Words) -> Folded | None:
        """The items at positions [first, end) of a bucket's index, per list; `wanted`: for whom. None if there are
        none."""
        return together(self._lists(side, bucket, first.astype(np.int64), end.astype(np.int64), wanted))

    def _lists(self, side: SideSpec, bucket: int, first: I64, end: I64, wanted: Words) -> Iterator[Folded]:
        d, words = self._directory, self._words
        most = most_sets(words)
        if side.child is None:
            leaf = side.leaves[0]
            ref = d.sources[bucket].view(leaf, side.group)
            assert ref is not None
            view = d.view(bucket, leaf, side.group)
            order, raw, version = view.order(side.index_key), view.sets, ref.version
            most = min(most, most_tuples(d, bucket, self._shares[leaf].expressions))
        else:
            joined = d.joined_bucket(bucket)
            order, raw, version = joined.order, joined.sets, d.joined[bucket].version
        alive = d.alive(side.group, version, words)
        for piece in cut(first, np.maximum(end, first), most):
            which, positions = unroll(piece.starts, piece.ends)
            which += piece.first
            items = order[positions]
            sets = widen(raw[items], words) & alive & wanted[which]
            kept = np.flatnonzero(nonempty(sets))
            if len(kept):
                refs = RowRefs(all_of(bucket, len(kept)), items[kept])
                yield from self._items(side, refs, which[kept], sets[kept])

    def _items(self, side: SideSpec, refs: RowRefs, of: I64, sets: Words) -> Iterator[Folded]:
        """The rows behind items, per list `of` that they are in; there is at least one item."""
        if side.child is None:
            yield self._tuples(side, refs, of, sets)
            return
        for bucket, positions in split_by_bucket(refs.buckets):
            at = slice(None) if positions is None else positions
            yield from self._joined(side, bucket, refs.items[at], of[at], sets[at])

    def _tuples(self, side: SideSpec, refs: RowRefs, of: I64, sets: Words) -> Folded:
        leaf = side.leaves[0]
        share, n = self._shares[leaf], len(of)
        rows = self._directory.rows(leaf, side.group, *refs)

        def read(ref: ColumnRef) -> ColumnData:
            return rows.column(ref.column, ref.type)

        keys = {i: key_column(key, read, n) for i, key in share.keys.items()}
        if n == 1 or (of[1:] > of[:-1]).all():  # every list has one item
            found = Entries(np.arange(n, dtype=np.int32), np.arange(n + 1, dtype=np.int64))
        else:
            found = entries_of(keys, of, sets)
        states = {c: state_of(c, read, n, of, found) for c in share.components}
        return ordered(keys, of, sets, found, states)

    def _joined(self, side: SideSpec, bucket: int, items: Ints, of: I64, sets: Words) -> Iterator[Folded]:
        assert side.child is not None
        spec, joined = self._joins[side.child], self._directory.joined_bucket(bucket)
        carrier, partner = (spec.left, spec.right) if joined.carrier_left else (spec.right, spec.left)
        found = _distinct(joined.carrier_bucket[items], joined.carrier_item[items], np.zeros(1, np.int64))
        refs = RowRefs(found.buckets, found.first)
        carriers = together(self._items(carrier, refs, np.arange(len(found.first)), unions(sets, found.at)))
        lists = _distinct(joined.partner_bucket[items], joined.partner_from[items], joined.partner_to[items])
        partners = self._partners(partner, lists, unions(sets, lists.at))
        if carriers is not None and partners is not None:
            for part in products(carriers, found.at, partners, lists.at, sets):
                yield grouped(replace(part, of=of[part.of]))

    def _partners(self, side: SideSpec, lists: _Distinct, wanted: Words) -> Folded | None:
        """Lists of one or several buckets."""

        def parts() -> Iterator[Folded]:
            for bucket, positions in split_by_bucket(lists.buckets):
                at = np.arange(len(lists.first)) if positions is None else positions
                found = self.lists(side, bucket, lists.first[at], lists.end[at], wanted[at])
                if found is not None:
                    yield replace(found, of=at[found.of])

        return together(parts())


def unions(sets: Words, at: Ints) -> Words:
    """All sets of one number together, per number; each number occurs."""
    order = np.argsort(at, kind="stable")
    begins = np.flatnonzero(np.diff(at[order], prepend=-1))
    return np.bitwise_or.reduceat(sets[order], begins, axis=0)


class _Distinct(NamedTuple):
    """Distinct (bucket, first, end), and which of them each row has."""

    buckets: I64
    first: I64
    end: I64
    at: I64


def _distinct(buckets: Ints, first: Ints, end: Ints) -> _Distinct:
    table = np.stack(np.broadcast_arrays(buckets, first, end), axis=1).astype(np.int64)
    order = np.lexsort(table.T[::-1])
    ordered = table[order]
    begins = np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)])
    at = np.empty(len(order), np.int64)
    at[order] = np.cumsum(begins) - 1
    each = ordered[begins]
    return _Distinct(each[:, 0], each[:, 1], each[:, 2], at)
