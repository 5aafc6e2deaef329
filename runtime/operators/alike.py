"""Entries that are the same to a bunch of queries are combined before they are dealt out to them.

A fold of many queries has an entry for every combination of their conditions. A few of these queries tell far fewer of
them apart: of a thousand sets of a fold, sixty queries may see a hundred different ones. To deal every entry out to
each of its queries takes a step per (entry, query). If entries of one group that lie in the same windows and have the
same of these queries are combined first, it takes a step per entry, and then one per (combined entry, query).

Nothing else changes: partials may be combined in any order.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from runtime.aggregates.states import fold
from runtime.columns.coded_sets import coded
from runtime.kernels.fetch import fetch
from runtime.kernels.grouping import fold_entries
from runtime.kernels.layout import listed
from runtime.operators.open_partials import Combined, Open

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

GAIN = 2
"""How many times fewer sets, and how many more steps than entries, make it worth a pass over the entries."""


class Dealt(NamedTuple):
    """What is dealt out to queries: entry i is of group numbers[i], lies in the windows of span spans[i], and belongs
    to the queries members[starts[codes[i]]:starts[codes[i] + 1]]."""

    numbers: I64
    spans: I32
    codes: I32
    starts: I64
    members: I32
    of: Combined | None
    """Their partials; None: they are the open entries themselves."""

    def combining(self, open: Open, order: I32, offsets: I64) -> Combined:
        of = self.of
        if of is None:
            return open.combining(order, offsets)
        return cache(lambda component: fold(component, of(component), order, offsets))


def dealt(open: Open, spans: I32, windows: U64, members: U64) -> Dealt:
    """`spans[i]`: a number for the times of entry i, which lies in the windows from windows[spans[i], 0] on, before
    windows[spans[i], 1]; `members`: per distinct set of entries, its queries."""
    codes = open.sets.codes
    fewer = coded(members)
    starts, listed_members = listed(fewer.table)
    if GAIN * len(fewer.table) <= len(members):
        codes = fetch(fewer.codes, codes)
        steps = int(np.diff(starts)[codes].sum())
        if steps > GAIN * len(codes):
            return _combined(open, spans, windows, codes, starts, listed_members)
        return Dealt(open.numbers, spans, codes, starts, listed_members, None)
    starts, listed_members = listed(members)
    return Dealt(open.numbers, spans, codes, starts, listed_members, None)


def _combined(open: Open, spans: I32, windows: U64, codes: I32, starts: I64, members: I32) -> Dealt:
    same = coded(windows).codes.astype(np.int64)
    due = (windows[:, 0] != windows[:, 1])[spans] & (np.diff(starts) > 0)[codes]
    rows = np.flatnonzero(due).astype(np.int32)
    if not len(rows):
        return Dealt(open.numbers[:0], spans[:0], codes[:0], starts, members, None)
    numbers, at = fetch(open.numbers, rows), same[fetch(spans, rows)]
    spread = np.uint64(64 - max(1, int(numbers[-1]).bit_length()))  # as hashes are, and still in the order of groups
    alike = fold_entries(numbers.astype(np.uint64) << spread, at, at, fetch(codes, rows))
    order = fetch(rows, alike.order)
    first = order[alike.offsets[:-1]]
    combined = open.combining(order, alike.offsets)
    return Dealt(fetch(open.numbers, first), fetch(spans, first), fetch(codes, first), starts, members, combined)
