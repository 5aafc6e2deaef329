"""From items to rows: the closed lists behind items of joined buckets, opened in pieces.

An item of a joined bucket is a carrier and a list of partners, and both may be items of joined buckets themselves: a
few items can stand for any number of rows. So lists are laid out at most `most_rows` positions at a time, at every
level, and what a level makes goes down to the next one before the level continues. What is held at any moment is at
most that many rows per level of the join tree, however long the lists are and however deep they lie.

What no query wants any more is dropped at every step. As long as everything fits into one piece, rows come in the
order of the items they are behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from runtime.buckets.views import RowRefs
from runtime.columns.querysets import Words
from runtime.execution.physical import JoinSpec, SideSpec
from runtime.kernels.expand import cut, unroll
from runtime.kernels.sets import nonempty
from runtime.operators.combinations import Refs
from runtime.operators.inputs import Directory, gather

LARGEST = 1 << 21
"""Rows that closed lists open into at a time: bounds the memory of a hot key in a chain of joins."""

LARGEST_WORDS = 1 << 23
"""Words of query sets of these rows (64 MB): with many queries there are fewer rows in a piece."""


def most_rows(words: int) -> int:
    return max(1, min(LARGEST, LARGEST_WORDS // words))


class Opened(NamedTuple):
    """Rows behind items: which item each came from, the row of every leaf, who wants it."""

    origin: npt.NDArray[np.int64]
    refs: Refs
    sets: Words


class Opener:
    def __init__(self, directory: Directory, joins: Mapping[str, JoinSpec], words: int) -> None:
        self._directory, self._joins, self._words = directory, joins, words

    def open(self, side: SideSpec, refs: RowRefs, sets: Words) -> Iterator[Opened]:
        """The rows behind items of one side's buckets; not more at a time than `most_rows`, or than there are items."""
        buckets, items = refs
        n = len(items)
        if n == 0:
            return
        if side.child is None:
            yield Opened(np.arange(n), {side.leaves[0]: refs}, sets)
            return
        d, spec = self._directory, self._joins[side.child]
        carried_left = gather(buckets, np.zeros(n, np.int64), lambda b: np.array([d.joined_bucket(b).carrier_left]))
        for left_carries in (True, False):
            chosen = np.flatnonzero(carried_left == left_carries)
            if len(chosen):
                carrier, partner = (spec.left, spec.right) if left_carries else (spec.right, spec.left)
                for opened in self._joined(carrier, partner, RowRefs(buckets[chosen], items[chosen]), sets[chosen]):
                    yield opened._replace(origin=chosen[opened.origin])

    def _joined(self, carrier: SideSpec, partner: SideSpec, refs: RowRefs, sets: Words) -> Iterator[Opened]:
        """The same for items of joined buckets in which this side carries."""
        d = self._directory
        buckets, items = refs
        first = gather(buckets, items, lambda b: d.joined_bucket(b).partner_from).astype(np.int64)
        end = gather(buckets, items, lambda b: d.joined_bucket(b).partner_to).astype(np.int64)
        partner_bucket = gather(buckets, items, lambda b: d.joined_bucket(b).partner_bucket)
        carriers = RowRefs(
            gather(buckets, items, lambda b: d.joined_bucket(b).carrier_bucket),
            gather(buckets, items, lambda b: d.joined_bucket(b).carrier_item),
        )
        for piece in cut(first, end, most_rows(self._words)):
            which, position = unroll(piece.starts, piece.ends)
            which += piece.first
            which, partners, wanted = self._partners(partner, which, partner_bucket[which], position, sets)
            for origin, rows, both in self.open(carrier, at(carriers, which), wanted):
                for again, more, all_three in self.open(partner, at(partners, origin), both):
                    yield Opened(which[origin][again], all_at(rows, again) | more, all_three)

    def _partners(
        self,
        side: SideSpec,
        which: npt.NDArray[np.int64],
        buckets: npt.NDArray[Any],
        positions: npt.NDArray[np.int64],
        sets: Words,
    ) -> tuple[npt.NDArray[np.int64], RowRefs, Words]:
        """Of the partners at these positions, those that some query wants: whose partners, which, who wants them."""
        d = self._directory
        items = gather(buckets, positions, lambda b: self._order(side, b))
        leaf = side.leaves[0] if side.child is None else None
        wanted = sets[which] & d.sets(buckets, items, leaf, side.group, self._words)
        keep = np.flatnonzero(nonempty(wanted))
        return which[keep], RowRefs(buckets[keep], items[keep]), wanted[keep]

    def _order(self, side: SideSpec, bucket: int) -> npt.NDArray[np.int32]:
        if side.child is None:
            return self._directory.view(bucket, side.leaves[0], side.group).order(side.index_key)
        return self._directory.joined_bucket(bucket).order


def at(refs: RowRefs, rows: npt.NDArray[Any]) -> RowRefs:
    return RowRefs(refs.buckets[rows], refs.items[rows])


def all_at(refs: Refs, rows: npt.NDArray[Any]) -> Refs:
    return {leaf: at(r, rows) for leaf, r in refs.items()}
