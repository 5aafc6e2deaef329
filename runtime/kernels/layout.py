"""Which entries make which rows, for many queries at once.

Entries lie in the order of groups. Each has a set of members (queries) and lies in a range of windows. `lay_out` puts
the entries of every (query, window) together, in two passes over the entries: count, then place. The order of entries
is kept, so those of one group stand next to each other and make one row.

Cost: a step per entry, and two per (entry, query, window) that belong together. No step per query otherwise, which is
what a loop over a thousand queries would cost.
"""

from __future__ import annotations

from typing import NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

from runtime.kernels.kinds import INTS, SETS, SHORTS

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]


class Laid(NamedTuple):
    """Row r is of group `groups[r]` and window `windows[r]` and combines entries order[offsets[r]:offsets[r + 1]];
    query q has the rows bounds[q] to bounds[q + 1] - 1, by window, then group."""

    order: I32
    offsets: I64
    groups: I64
    windows: I64
    bounds: I64


@nb.njit([(SETS,)], cache=True, nogil=True)
def listed(table: U64):  # type: ignore[no-untyped-def]
    """(offsets, members): members[offsets[s]:offsets[s + 1]] are those of set s, ascending."""
    n, words = table.shape
    offsets = np.zeros(n + 1, np.int64)
    for s in range(n):
        count = 0
        for w in range(words):
            rest = table[s, w]
            while rest != 0:
                rest &= rest - np.uint64(1)
                count += 1
        offsets[s + 1] = offsets[s] + count
    members = np.empty(offsets[n], np.int32)
    for s in range(n):
        at = offsets[s]
        for w in range(words):
            if table[s, w] != 0:
                for bit in range(64):
                    if (table[s, w] >> np.uint64(bit)) & np.uint64(1) != 0:
                        members[at] = 64 * w + bit
                        at += 1
    return offsets, members


@nb.njit([(SHORTS, INTS, SHORTS, SHORTS, INTS, INTS, nb.int64, nb.int64, nb.int64)], cache=True, nogil=True)
def count_laid(
    codes: I32, starts: I64, members: I32, spans: I32, first: I64, end: I64, low: int, windows: int, queries: int
) -> I64:
    """How many entries belong to each (query, window), in this order. Entry e has the set `codes[e]` (its members:
    `listed`) and lies in windows first[spans[e]] to end[spans[e]] - 1, of which `windows` from `low` on count."""
    counts = np.zeros(queries * windows, np.int64)
    for e in range(codes.shape[0]):
        a = max(first[spans[e]] - low, 0)
        b = min(end[spans[e]] - low, windows)
        if a >= b:
            continue
        for m in range(starts[codes[e]], starts[codes[e] + 1]):
            for w in range(a, b):
                counts[members[m] * windows + w] += 1
    return counts


@nb.njit([(SHORTS, INTS, SHORTS, SHORTS, INTS, INTS, nb.int64, nb.int64, INTS, INTS)], cache=True, nogil=True)
def _lay_out(
    codes: I32,
    starts: I64,
    members: I32,
    spans: I32,
    first: I64,
    end: I64,
    low: int,
    windows: int,
    counts: I64,
    numbers: I64,
) -> tuple[I32, I64, I64, I64, I64]:
    cells = counts.shape[0]
    at = np.empty(cells + 1, np.int64)
    at[0] = 0
    for c in range(cells):
        at[c + 1] = at[c] + counts[c]
    total = at[cells]
    order = np.empty(total, np.int32)
    for e in range(codes.shape[0]):
        a = max(first[spans[e]] - low, 0)
        b = min(end[spans[e]] - low, windows)
        if a >= b:
            continue
        for m in range(starts[codes[e]], starts[codes[e] + 1]):
            for w in range(a, b):
                c = members[m] * windows + w
                order[at[c]] = e
                at[c] += 1
    offsets = np.empty(total + 1, np.int64)
    groups = np.empty(total, np.int64)
    window = np.empty(total, np.int64)
    bounds = np.zeros(cells // windows + 1, np.int64)
    rows = 0
    k = 0
    for c in range(cells):
        last = np.int64(-1)
        for _ in range(counts[c]):
            g = numbers[order[k]]
            if g != last:
                offsets[rows], groups[rows], window[rows] = k, g, low + c % windows
                rows += 1
                last = g
            k += 1
        bounds[c // windows + 1] = rows
    offsets[rows] = total
    return order, offsets[: rows + 1].copy(), groups[:rows].copy(), window[:rows].copy(), bounds


def lay_out(
    codes: I32,
    starts: I64,
    members: I32,
    spans: I32,
    first: I64,
    end: I64,
    low: int,
    windows: int,
    counts: I64,
    numbers: I64,
) -> Laid:
    """`counts`: from `count_laid` with the same arguments; `numbers`: the group of each entry, ascending."""
    return Laid(*_lay_out(codes, starts, members, spans, first, end, low, windows, counts, numbers))
