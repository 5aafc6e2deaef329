"""What the join found: pairs of matching entries of two buckets, and how to walk their combinations in bounded memory.

A `Match` is the hand-over from the join to those who use its results: outputs (joined buckets for the joins above) and
sinks. Entries stay closed in it; whoever needs combinations lays them out with `chunks`, at most about CHUNK at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime.columns.querysets import Words
from runtime.kernels.csr import Csr
from runtime.kernels.expand import count_pairs, pairs
from runtime.kernels.sets import some

CHUNK = 1 << 18
"""Combinations laid out at a time: bounds the memory of a hot key."""

CHUNK_WORDS = 1 << 20
"""Words of query sets laid out at a time (8 MB). With many queries there are fewer combinations in a chunk: larger
blocks come fresh from the operating system every time, page by page."""


@dataclass(slots=True)
class Side:
    """One input bucket, opened; its items lie in slices up to `max_lo` and from `min_hi` on."""

    bucket: int
    new: bool
    index: Csr
    sets: Words
    alive: Words
    first: int
    end: int
    max_lo: int
    min_hi: int


@dataclass(slots=True)
class Match:
    """Matching entries of two buckets, with the queries they can matter to and the slices they span."""

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
        sets = self.sets & slots[: self.sets.shape[1]]
        keep = some(sets)
        if keep.all():
            return replace(self, sets=sets)
        if not keep.any():
            return None
        return Match(
            self.left,
            self.right,
            self.l_from,
            self.l_to,
            self.l_entries[keep],
            self.r_entries[keep],
            sets[keep],
            self.lo[keep],
            self.hi[keep],
        )


def combinations(match: Match) -> int:
    counts = count_pairs(
        match.l_entries,
        match.left.index.offsets,
        match.l_from,
        match.l_to,
        match.r_entries,
        match.right.index.offsets,
    )
    return int(counts.sum())


def chunks(
    match: Match, slots: Words
) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any], Words, npt.NDArray[Any], npt.NDArray[Any]]]:
    """All combinations for the given slots, at most about CHUNK at a time, even inside one pair of entries."""
    chosen = match.only(slots)
    if chosen is None:
        return
    for part, l_from, l_to, capacity in pieces(chosen):
        p, left, right, _, sets = laid_out(chosen, part, l_from, l_to, capacity)
        if len(p):
            yield left, right, sets, chosen.lo[part][p], chosen.hi[part][p]


def pieces(match: Match) -> Iterator[tuple[slice, int, int, int]]:
    """(entry pairs, left positions, combinations): runs of small pairs together, a huge pair in pieces."""
    counts = count_pairs(
        match.l_entries,
        match.left.index.offsets,
        match.l_from,
        match.l_to,
        match.r_entries,
        match.right.index.offsets,
    )
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
                yield slice(at, at + 1), a, b, (b - a) * width
            at += 1
            continue
        end = at + max(1, int(np.searchsorted(np.cumsum(counts[at:]), chunk, "right")))
        yield slice(at, end), match.l_from, match.l_to, int(counts[at:end].sum())
        at = end


def laid_out(match: Match, part: slice, l_from: int, l_to: int, capacity: int) -> Any:
    l, r = match.left, match.right
    return pairs(
        match.l_entries[part], l.index.order, l.index.offsets, l.sets, l_from, l_to,
        match.r_entries[part], r.index.order, r.index.offsets, r.sets, match.sets[part], capacity,
    )  # fmt: skip
