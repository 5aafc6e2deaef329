"""Several tasks on one partition: which part of a meeting of two buckets is whose.

The join distributes over union, so one side of a meeting can be dealt out among the ways of a split partition while all
of them read the other side. A hot key may have all its items on either side: a hundred thousand views of one video meet
the one row that describes it. Dealing out the side with the one row would give everything to one way. So the side is
chosen meeting by meeting: the one of which a single item stands for less work, that is, where the heaviest key has more
items. And positions are not counted but weighed: an item's weight is the number of items of the other side under its
key, so a way's part is as many *combinations* as another's, wherever in the range the hot key lies. What cannot be
balanced is one item against its partners; a key with few items on both sides has little to balance.

Weights are whole numbers, taken from hashes and offsets of the two indexes in the partition's range and from nothing
else: not from query sets, watermarks or who is still there. So every way comes to the same decision by itself, and so
does a task that goes on later where one was stopped (runtime.operators.pace), over the same buckets with the same ways.

The right side is dealt out by cutting its lists, as if what lies outside were not in the bucket; of the left side the
positions [l_from, l_to) take part. Cost, only where a partition is split: a pass over the entries of both sides in the
range, and a copy of the right side's offsets.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from runtime.operators.matches import Side

Ints = npt.NDArray[Any]


class Dealt(NamedTuple):
    """A way's part: left positions [l_from, l_to) with what is left of the right side."""

    l_from: int
    l_to: int
    right: Side


class _Keys(NamedTuple):
    """The keys of one side in the range: their hashes, how many items each has, and which one an entry belongs to."""

    hashes: Ints
    items: Ints
    of_entry: Ints


def deal(left: Side, right: Side, way: int, ways: int) -> Dealt | None:
    """The part of this way; None: it has none."""
    begin, stop = _span(left)
    if ways == 1:
        return Dealt(begin, stop, right)
    l, r = _keys(left), _keys(right)
    r_of_l, l_of_r = _partners(l, r), _partners(r, l)
    if int(r_of_l.max(initial=0)) <= int(l_of_r.max(initial=0)):
        l_from, l_to = _part(left, r_of_l[l.of_entry], way, ways)
        return Dealt(l_from, l_to, right) if l_from < l_to else None
    r_from, r_to = _part(right, l_of_r[r.of_entry], way, ways)
    return Dealt(begin, stop, _cut(right, r_from, r_to)) if r_from < r_to else None


def _span(side: Side) -> tuple[int, int]:
    offsets, entries = side.index.offsets, side.entries
    return int(offsets[entries.first]), int(offsets[entries.end])


def _offsets(side: Side) -> Ints:
    """Of the entries in the range; what lies around them need not be there."""
    return side.index.offsets[side.entries.first : side.entries.end + 1].astype(np.int64)


def _keys(side: Side) -> _Keys:
    hashes = side.index.hashes[side.entries.first : side.entries.end]
    first = np.empty(len(hashes), bool)
    first[:1] = True
    np.not_equal(hashes[1:], hashes[:-1], out=first[1:])
    begins = np.flatnonzero(first)
    items = np.add.reduceat(np.diff(_offsets(side)), begins)
    return _Keys(hashes[begins], items, np.cumsum(first) - 1)


def _partners(mine: _Keys, others: _Keys) -> Ints:
    """Per key of one side the items that the other side has under it: 0 where it has none."""
    at = np.minimum(np.searchsorted(others.hashes, mine.hashes), len(others.hashes) - 1)
    return np.where(others.hashes[at] == mine.hashes, others.items[at], 0)


def _part(side: Side, weights: Ints, way: int, ways: int) -> tuple[int, int]:
    """Positions with a `ways`-th of the work; `weights`: of one position, per entry. At most 2^62 altogether, because
    an index has less than 2^31 positions."""
    offsets = _offsets(side)
    until = np.cumsum(np.diff(offsets) * weights)
    return _position(offsets, weights, until, way, ways), _position(offsets, weights, until, way + 1, ways)


def _position(offsets: Ints, weights: Ints, until: Ints, way: int, ways: int) -> int:
    """Where the work before it is `way` `ways`-ths of all of it, or the first position after that."""
    if way == 0:
        return int(offsets[0])
    if way == ways:
        return int(offsets[-1])
    goal = int(until[-1]) * way // ways
    entry = int(np.searchsorted(until, goal, "left"))
    before = int(until[entry - 1]) if entry else 0
    return int(offsets[entry]) + -(-(goal - before) // max(int(weights[entry]), 1))


def _cut(side: Side, first: int, end: int) -> Side:
    """The side as if it had only the positions [first, end)."""
    a, b = side.entries.first, side.entries.end
    mine = side.index.offsets[a : b + 1]
    entries = side.index.entries(
        a + max(int(np.searchsorted(mine, first, "right")) - 1, 0), a + int(np.searchsorted(mine, end, "left"))
    )
    offsets = np.clip(side.index.offsets, first, end)
    index = replace(side.index, offsets=offsets)
    return replace(side, index=index, entries=entries, items=side.items._replace(offsets=offsets))
