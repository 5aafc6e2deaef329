"""Query sets of many rows as numbers into a table of the distinct ones.

A thousand queries make 128 bytes of every query set, but conditions leave few distinct sets: what a fold copies, groups
by, writes and reads again is then a number of four bytes per row, and the words are looked at once per distinct set.
Where every row has a set of its own this costs the table and the numbers, a thirtieth more than the words alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime.columns.querysets import Words, has, widen
from runtime.kernels.coding import distinct_sets
from runtime.kernels.sets import nonempty

I32 = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CodedSets:
    """Row i has the set table[codes[i]]. Equal sets may stand in the table twice: that is only less compact."""

    table: Words
    codes: I32

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def words(self) -> int:
        return int(self.table.shape[1])

    def take(self, rows: npt.NDArray[Any] | slice) -> CodedSets:
        return CodedSets(self.table, self.codes[rows])

    def has(self, slot: int) -> Mask:
        """Rows whose sets contain the slot."""
        found: Mask = has(self.table, slot)[self.codes]
        return found

    @property
    def nonempty(self) -> Mask:
        found: Mask = nonempty(self.table)[self.codes]
        return found

    @property
    def matrix(self) -> Words:
        """One row of words per row."""
        rows: Words = self.table[self.codes]
        return rows

    def only(self, members: Words) -> CodedSets:
        """Without other members; equal sets stand in the table once."""
        table, numbers = distinct_sets(self.table, members)
        return CodedSets(table, numbers[self.codes])

    def compact(self) -> CodedSets:
        """With a table that has no more sets than there are rows."""
        if len(self.table) <= len(self.codes):
            return self
        used, codes = np.unique(self.codes, return_inverse=True)
        return CodedSets(self.table[used], codes.reshape(-1).astype(np.int32))

    def widened(self, words: int) -> CodedSets:
        return CodedSets(widen(self.table, words), self.codes)


def coded(sets: Words) -> CodedSets:
    return CodedSets(*distinct_sets(sets, np.full(sets.shape[1], ~np.uint64(0))))


def concat_sets(parts: Sequence[CodedSets], words: int) -> CodedSets:
    """One behind the other; at least one."""
    if len(parts) == 1:
        return parts[0].widened(words)
    table = np.concatenate([widen(p.table, words) for p in parts])
    bases = np.cumsum([0] + [len(p.table) for p in parts[:-1]])
    codes = np.concatenate([p.codes + np.int32(base) for p, base in zip(parts, bases, strict=True)])
    return CodedSets(table, codes)
