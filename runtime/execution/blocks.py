"""Blocks: pieces of time combined ahead, so that a long window which advances by little is not combined anew each time.

A window of 1 h that advances by 1 s has 3,600 slices, and one closes every second. So once the watermark has passed a
piece of time, its partials are combined into a *block*: one entry per group and query set. Pieces are BASE steps of the
window, BASE * BASE, and so on, always at multiples of their length. A window is then the largest blocks that fit into
it and the slices left over at its two ends: of 3,600 slices about 27 entries per group, for every function alike. Each
slice is combined once per size of block, for all windows together.

Why it is exact: an entry that is combined lies in a block by its time and epoch, and a block is used instead of these
entries only for windows that hold all of it. A late tuple is an entry of a later epoch than the block: it is combined
in addition, as if it were one more slice; so no block is ever wrong. Windows that late tuples change after they were
closed are combined from slices, because their revisions follow from single epochs.

Blocks are derived and immutable: any may be lost, then what is in it is combined from smaller blocks and slices. They
say whose they are by uid, so query groups, plans and partitions may change around them. Joined rows reach over pieces
of time, so there are none for joins.

Everything here is decided by the driver from references alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.model.combining import BASE
from optimizer.model.plan import RunningQuery
from optimizer.model.windows import PeriodicWindow
from optimizer.model.windows.base import NEVER
from runtime.buckets.refs import Block, PartialRef

I64 = npt.NDArray[np.int64]

MOST = 16
"""Blocks that a fold makes in one epoch; if many are missing, the others follow."""


class Need(NamedTuple):
    """A query needs its entries that begin in [since, until); these blocks stand for what is in them."""

    since: int
    until: int
    cover: tuple[Block, ...] = ()


def cover(blocks: Iterable[Block], since: int, until: int) -> tuple[Block, ...]:
    """Blocks within [since, until) that do not overlap: from left to right, the largest; of equals the newest."""
    chosen: list[Block] = []
    at = since
    for block in sorted(blocks, key=lambda b: (b.lo, -b.hi, -b.epoch)):
        if block.lo >= at and block.hi <= until:
            chosen.append(block)
            at = block.hi
    return tuple(chosen)


class Refs:
    """Partial buckets of a fold, as arrays, so that thousands can be asked at once."""

    def __init__(self, refs: Sequence[PartialRef]) -> None:
        self.refs = refs
        self._first = np.array([r.min_lo for r in refs], np.int64)
        self._last = np.array([r.max_lo for r in refs], np.int64)
        self._epochs = np.array([r.epoch for r in refs], np.int64)

    @property
    def first(self) -> int:
        """No entry begins before."""
        return int(self._first.min(initial=NEVER))

    def needed(self, need: Need) -> npt.NDArray[np.bool_]:
        """Which may have an entry that is needed and in no block of the cover."""
        found = np.zeros(len(self.refs), bool)
        for lo, hi in gaps(need):
            found |= (self._last >= lo) & (self._first < hi)
        for block in need.cover:
            found |= (self._last >= block.lo) & (self._first < block.hi) & (self._epochs > block.epoch)
        return found

    def steps(self, need: Need, unit: int) -> int:
        """How many entries a group may have that is everywhere: the blocks, and what is between them."""
        total = len(need.cover)
        for lo, hi in gaps(need):
            here = (self._last >= lo) & (self._first < hi)
            first, last = np.maximum(self._first[here], lo), np.minimum(self._last[here], hi - 1)
            total += int((last // unit - first // unit + 1).sum())
        return total


def gaps(need: Need) -> Iterator[tuple[int, int]]:
    """What the cover leaves."""
    at = need.since
    for block in need.cover:
        if block.lo > at:
            yield at, block.lo
        at = block.hi
    if at < need.until:
        yield at, need.until


def together(needs: Iterable[Need]) -> tuple[tuple[int, int], ...]:
    """All times that some of these leave to slices, as intervals in order that do not touch."""
    merged: list[tuple[int, int]] = []
    for lo, hi in sorted(gap for need in needs for gap in gaps(need)):
        if merged and lo <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], hi)
        else:
            merged.append((lo, hi))
    return tuple(merged)


def missing(query: RunningQuery, watermark: int, blocks: Sequence[Block], refs: Refs, unit: int) -> Iterator[Need]:
    """Pieces of which a long query should have a block, small ones first, with what they are made of. `blocks` and
    `refs` are the query's; `unit`: the step that pieces are multiples of."""
    window = query.query.window
    assert isinstance(window, PeriodicWindow)
    there = {(b.lo, b.hi) for b in blocks}
    since = max(window.first_alive(watermark), refs.first // unit * unit)
    width = unit * BASE
    while width <= window.size_ms:
        for lo in range(watermark // width * width - width, since - width, -width):
            if lo >= window.first_alive(watermark) and (lo, lo + width) not in there:
                need = Need(lo, lo + width, cover((b for b in blocks if lo <= b.lo < lo + width), lo, lo + width))
                steps = refs.steps(need, unit)
                left = sum(hi - lo for lo, hi in gaps(need))
                if steps >= max(BASE // 2, 1) and (left <= 2 * BASE * unit or steps <= 4 * BASE):
                    yield need
        width *= BASE
