"""What the join found: pairs of matching entries of two buckets, and how to walk their combinations in bounded memory.

A `Match` is the hand-over from the join to those who use its results: outputs (joined buckets for the joins above) and
sinks. Entries stay closed in it; `chunks` lays out its combinations, at most about CHUNK at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from runtime.columns.querysets import Words
from runtime.kernels.csr import Csr, Entries, Items
from runtime.kernels.expand import Carried, ItemPairs, carry, count_pairs, pairs
from runtime.kernels.sets import nonempty

CHUNK = 1 << 18
"""Combinations laid out at a time: bounds the memory of a hot key."""

CHUNK_WORDS = 1 << 20
"""Words of query sets laid out at a time (8 MB). With many queries there are fewer combinations in a chunk: larger
blocks come fresh from the operating system every time, page by page."""

_END = int(np.iinfo(np.int32).max)


@dataclass(slots=True)
class Side:
    """One input bucket, opened: its index, the task's part of it (`entries`), and its items, which lie in slices up to
    `max_lo` and from `min_hi` on. `own`: the task has made it, and it is all the task's."""

    bucket: int
    index: Csr
    entries: Entries
    items: Items
    alive: Words
    max_lo: int
    min_hi: int
    own: bool = False


@dataclass(slots=True)
class Match:
    """Matching entries of two buckets, with the queries they can matter to and the slices [lo, hi] they span.

    Of the left bucket only the items at positions [l_from, l_to) of the index take part.
    """

    left: Side
    right: Side
    l_from: int
    l_to: int
    l_entries: npt.NDArray[np.int32]
    r_entries: npt.NDArray[np.int32]
    sets: Words
    lo: npt.NDArray[np.int64]
    hi: npt.NDArray[np.int64]

    def only(self, slots: Words) -> Match | None:
        """For these queries; None if no pair matters to them."""
        sets = self.sets & slots[: self.sets.shape[1]]
        keep = nonempty(sets)
        if keep.all():
            return replace(self, sets=sets)
        if not keep.any():
            return None
        return Match(
            self.left, self.right, self.l_from, self.l_to,
            self.l_entries[keep], self.r_entries[keep], sets[keep], self.lo[keep], self.hi[keep],
        )  # fmt: skip

    def with_partners(self, first: int, end: int) -> Match:
        """Of the right bucket only the items at positions [first, end) of the index take part."""
        side = self.right
        offsets = np.clip(side.index.offsets, first, end)
        items = side.items._replace(offsets=offsets)
        return replace(self, right=replace(side, index=replace(side.index, offsets=offsets), items=items))

    def carried_left(self, most: int = _END) -> Iterator[tuple[int, Carried]]:
        """The left items that take part, with the pair of entries each is in: about `most` at a time, with the number
        from which on the pairs are numbered."""
        for run in _runs(self.left_lists(), most):
            yield run.start, carry(self.l_entries[run], self.sets[run], self.left.items, self.l_from, self.l_to)

    def carried_right(self, most: int = _END) -> Iterator[tuple[int, Carried]]:
        for run in _runs(self.right_lists(), most):
            yield run.start, carry(self.r_entries[run], self.sets[run], self.right.items, 0, _END)

    def left_lists(self, pairs: npt.NDArray[Any] | slice = slice(None)) -> Lists:
        """Where the left items of the given pairs stand in the index."""
        entries, offsets = self.l_entries[pairs], self.left.index.offsets
        return Lists(np.maximum(offsets[entries], self.l_from), np.minimum(offsets[entries + 1], self.l_to))

    def right_lists(self, pairs: npt.NDArray[Any] | slice = slice(None)) -> Lists:
        entries, offsets = self.r_entries[pairs], self.right.index.offsets
        return Lists(offsets[entries], offsets[entries + 1])

    def counts(self) -> npt.NDArray[np.int64]:
        """How many combinations each pair of entries stands for."""
        counts: npt.NDArray[np.int64] = count_pairs(
            self.l_entries, self.left.index.offsets, self.l_from, self.l_to, self.r_entries, self.right.index.offsets
        )
        return counts


class Lists(NamedTuple):
    """Positions [first, end) of an index, per pair of entries."""

    first: npt.NDArray[np.int32]
    end: npt.NDArray[np.int32]


def _runs(lists: Lists, most: int) -> Iterator[slice]:
    """Consecutive pairs of entries whose lists have at most about `most` items together."""
    until = np.cumsum(np.maximum(lists.end - lists.first, 0), dtype=np.int64)
    at = 0
    while at < len(until):
        before = int(until[at - 1]) if at else 0
        end = max(at + 1, int(np.searchsorted(until, before + most, "right")))
        yield slice(at, end)
        at = end


class Piece(NamedTuple):
    """Part of a match that is laid out at once: some of its pairs of entries, cut to left positions [l_from, l_to)."""

    pairs: slice
    l_from: int
    l_to: int
    combinations: int


class Chunk(NamedTuple):
    """Combinations: left item, right item, who wants it, the slices [lo, hi] it spans."""

    left: npt.NDArray[Any]
    right: npt.NDArray[Any]
    sets: Words
    lo: npt.NDArray[np.int64]
    hi: npt.NDArray[np.int64]

    def take(self, rows: npt.NDArray[Any]) -> Chunk:
        return Chunk(self.left[rows], self.right[rows], self.sets[rows], self.lo[rows], self.hi[rows])


def chunks(match: Match, slots: Words) -> Iterator[Chunk]:
    """All combinations for the given slots, at most about CHUNK at a time, even inside one pair of entries."""
    chosen = match.only(slots)
    if chosen is None:
        return
    for piece in pieces(chosen):
        made = laid_out(chosen, piece)
        if len(made.pair):
            lo, hi = chosen.lo[piece.pairs], chosen.hi[piece.pairs]
            yield Chunk(made.left, made.right, made.sets, lo[made.pair], hi[made.pair])


def pieces(match: Match) -> Iterator[Piece]:
    """Runs of small pairs together, a huge pair in several pieces."""
    counts = match.counts()
    chunk = max(1, min(CHUNK, CHUNK_WORDS // match.sets.shape[1]))
    at = 0
    while at < len(counts):
        if counts[at] > chunk:
            offsets = match.left.index.offsets
            entry = match.l_entries[at]
            begin, stop = max(int(offsets[entry]), match.l_from), min(int(offsets[entry + 1]), match.l_to)
            width = int(counts[at]) // (stop - begin)
            step = max(1, chunk // width)
            for a in range(begin, stop, step):
                b = min(a + step, stop)
                yield Piece(slice(at, at + 1), a, b, (b - a) * width)
            at += 1
            continue
        end = at + max(1, int(np.searchsorted(np.cumsum(counts[at:]), chunk, "right")))
        yield Piece(slice(at, end), match.l_from, match.l_to, int(counts[at:end].sum()))
        at = end


def laid_out(match: Match, piece: Piece) -> ItemPairs:
    """Every combination of the piece; pairs are numbered from the piece's first one on."""
    return pairs(
        match.l_entries[piece.pairs], match.left.items, piece.l_from, piece.l_to,
        match.r_entries[piece.pairs], match.right.items, match.sets[piece.pairs], piece.combinations,
    )  # fmt: skip
