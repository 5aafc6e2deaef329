"""How many rows the items of joined buckets stand for, without opening a list.

An item is a carrier and a list of partners, both perhaps items of joined buckets themselves. So the rows behind it are
the rows behind its carrier times the sum over its partners; with sums over each bucket's index in hand, a list of any
length is one subtraction. For one query, only items count that have its bit. Whether an item's window is shared, and
whatever rows are checked for at the end, is not looked at: it is an upper bound.

Cost: one pass over the items of a bucket, and of those it refers to; kept as long as the object lives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime.columns.querysets import Words, has
from runtime.execution.physical import JoinSpec, SideSpec
from runtime.operators.inputs import Directory, split_by_bucket

Floats = npt.NDArray[np.float64]

NONE = np.zeros(0)
"""Of a bucket that is not open any more."""


def within(prefix: Floats | None, first: npt.NDArray[Any], end: npt.NDArray[Any]) -> Floats:
    stop = np.maximum(end, first)
    rows: Floats = (stop - first).astype(np.float64) if prefix is None else prefix[stop] - prefix[first]
    return rows


class Behind:
    """How many rows the items of joined buckets stand for, at most. One pass over the lists of a bucket, kept. With a
    slot, only items count that have the query's bit."""

    def __init__(self, directory: Directory, joins: Mapping[str, JoinSpec], slot: int | None = None) -> None:
        self._directory, self._joins, self._slot = directory, joins, slot
        self._items: dict[int, Floats] = {}
        self._positions: dict[tuple[int, SideSpec], Floats] = {}

    def positions(self, side: SideSpec, bucket: int) -> Floats | None:
        """Rows before each position of the bucket's index; None for a source bucket, where every item is one row."""
        if side.child is None and self._slot is None:
            return None
        known = self._positions.get((bucket, side))
        if known is None:
            items = self._of_leaf(side, bucket) if side.child is None else self._of_join(side, bucket)
            if items is NONE:
                return NONE
            known = np.concatenate([[0.0], np.cumsum(items)])
            self._positions[(bucket, side)] = known
        return known

    def _of_leaf(self, side: SideSpec, bucket: int) -> Floats:
        """In the order of the index."""
        ref = self._directory.sources[bucket].view(side.leaves[0], side.group) if self._has_source(bucket) else None
        if ref is None:
            return NONE
        view = self._directory.view(bucket, side.leaves[0], side.group)
        return self._wanted(view.sets[view.order(side.index_key)], side.group, ref.version)

    def _of_join(self, side: SideSpec, bucket: int) -> Floats:
        assert side.child is not None
        items = self._of(side.child, bucket)
        if items is NONE:
            return NONE
        joined = self._directory.joined_bucket(bucket)
        in_order: Floats = items[joined.order]
        if self._slot is not None:
            version = self._directory.joined[bucket].version
            in_order = in_order * self._wanted(joined.sets[joined.order], side.group, version)
        return in_order

    def _has_source(self, bucket: int) -> bool:
        return bucket in self._directory.sources

    def _wanted(self, sets: Words, group: int, version: int) -> Floats:
        assert self._slot is not None
        alive = self._directory.alive(group, version, sets.shape[1])
        return has(sets & alive, self._slot).astype(np.float64)

    def _of(self, child: str, bucket: int) -> Floats:
        known = self._items.get(bucket)
        if known is not None:
            return known
        if bucket not in self._directory.joined:  # gone: its items are in dead windows, and who refers to them as well
            return NONE
        spec, joined = self._joins[child], self._directory.joined_bucket(bucket)
        carrier, partner = (spec.left, spec.right) if joined.carrier_left else (spec.right, spec.left)
        out = np.empty(len(joined.partner_from))
        for b, chosen in split_by_bucket(joined.partner_bucket) if len(out) else ():
            at = slice(None) if chosen is None else chosen
            before = self.positions(partner, b)
            gone = before is NONE
            out[at] = 0 if gone else within(before, joined.partner_from[at], joined.partner_to[at])
        if carrier.child is not None:
            for b, chosen in split_by_bucket(joined.carrier_bucket) if len(out) else ():
                at = slice(None) if chosen is None else chosen
                items = self._of(carrier.child, b)
                out[at] *= 0 if items is NONE else items[joined.carrier_item[at]]
        self._items[bucket] = out
        return out
