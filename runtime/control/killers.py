"""Which tuples keep an epoch from ending: found by running the epoch without some of what it reads.

An epoch reads pieces of its streams (reads), and each piece brings rows. First it is run without any of them: if that
fails, no tuple is to blame. Then, with the reads in a fixed order, the shortest beginning that fails is found by
bisection; the last read of it holds a culprit. If that read alone, loaded and then emptied of its rows, fails as well,
loading it is what kills (a file that crashes the decoder, or unpacks to more than memory holds): nobody can say how
many rows it has, and the read is skipped whole. Otherwise the same bisection over its rows finds one row. Then the
epoch is tried without what was found, and the search goes on behind it, if need be.

That takes log2(reads) + log2(rows) + 3 runs per culprit. Nothing is committed while searching. A tuple that kills only
beside another one is blamed alone: without it, the other one is harmless.

The search is bounded, because what keeps being found is not the tuples' fault but something that they share. A read
with more than `ROWS_OF_A_READ` such rows is skipped whole, and if more than half of the reads would have to go, nothing
is found. (One read may always go: often it is all that an epoch reads.) With `only_rows`, the answer is at most that
many rows of all reads together, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from runtime.buckets.refs import Skip
from runtime.control.events import SkippedTuples
from runtime.control.quarantine import shortest_failing

ROWS_OF_A_READ = 5

EVERY_ROW = 1 << 62


class ReadName(NamedTuple):
    """Which of the reads of a stream in the epoch."""

    stream: str
    number: int


Trial = Callable[[Sequence[SkippedTuples]], Mapping[ReadName, int] | None]
"""Run the epoch without these tuples. None: it does not end; otherwise how many rows each read brought."""


def find_killers(
    reads: Sequence[ReadName], trial: Trial, reason: str, *, only_rows: bool = False
) -> tuple[SkippedTuples, ...] | None:
    """Tuples without which an epoch that fails ends; None: tuples are not to blame, or not few of them."""
    search = _Search(reads, trial, reason)
    found: tuple[SkippedTuples, ...] = ()
    if not reads or not search.ends(found, 0):
        return None
    harmless = skipped_reads = 0
    while harmless < len(reads) and not search.ends(found, len(reads)):
        harmless = shortest_failing(len(reads), partial(search.ends, found), harmless)
        rows = search.rows(found, harmless - 1)
        if rows is None:
            rows = search.whole(harmless - 1, harmless)
            skipped_reads += 1
        found += rows
        if only_rows and (skipped_reads or len(found) > ROWS_OF_A_READ):
            return None
        if skipped_reads > max(1, len(reads) // 2):
            return None
    return found


class _Search:
    def __init__(self, reads: Sequence[ReadName], trial: Trial, reason: str) -> None:
        self._reads, self._trial, self._reason = reads, trial, reason

    def whole(self, first: int, end: int | None = None) -> tuple[SkippedTuples, ...]:
        return tuple(SkippedTuples(*read, Skip(0, None, self._reason)) for read in self._reads[first:end])

    def _rows(self, read: int, first: int, end: int) -> SkippedTuples:
        return SkippedTuples(*self._reads[read], Skip(first, end, self._reason))

    def ends(self, found: Sequence[SkippedTuples], reads: int) -> bool:
        """With the first so many reads."""
        return self._trial((*found, *self.whole(reads))) is not None

    def rows(self, found: Sequence[SkippedTuples], read: int) -> tuple[SkippedTuples, ...] | None:
        """The rows to blame of a read that fails with the reads before it; None: loading it kills, or many rows do."""
        others = (*found, *self.whole(read + 1))
        loaded = self._trial((*others, self._rows(read, 0, EVERY_ROW)))
        if loaded is None:
            return None
        length, rows, harmless = loaded[self._reads[read]], list[SkippedTuples](), 0
        while harmless < length and (harmless == 0 or self._trial((*others, *rows)) is None):
            if len(rows) == ROWS_OF_A_READ:
                return None
            harmless = shortest_failing(length, partial(self._ends_with_rows, (*others, *rows), read), harmless)
            rows.append(self._rows(read, harmless - 1, harmless))
        return tuple(rows) or None

    def _ends_with_rows(self, without: Sequence[SkippedTuples], read: int, rows: int) -> bool:
        """With the first so many rows of the read."""
        return self._trial((*without, self._rows(read, rows, EVERY_ROW))) is not None
