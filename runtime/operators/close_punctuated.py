"""Closing punctuated windows: between neighbouring edges, which all groups of a query share.

Edges are the time of the query's first tuple and of every punctuation. As long as nothing came behind the watermark, a
window is delivered when the watermark reaches its end, or in the epoch that brings its end. After a late tuple or
punctuation the query is replayed, epoch by epoch, over what is still open: a part of a split window that keeps its
start is its next revision, another one begins at 0.

What lies before the last edge at or before the horizon can go: no acceptable tuple can fall there.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from runtime.operators.closing import (
    Closed,
    ClosingQuery,
    Having,
    Marks,
    Replayed,
    Windows,
    replayed_epochs,
    window_rows,
)
from runtime.operators.open_partials import Open, StandingRow

I64 = npt.NDArray[np.int64]


class Edges(NamedTuple):
    """(time, epoch) of punctuations and of first tuples, in two rows each."""

    marks: I64
    firsts: I64

    def until(self, epoch: int) -> I64:
        """All edges as this epoch left them, ascending."""
        times = self.marks[0][self.marks[1] <= epoch]
        firsts = self.firsts[0][self.firsts[1] <= epoch]
        return np.unique(np.append(times, firsts.min()) if len(firsts) else times)


def close_punctuated(open: Open, mine: I64, q: ClosingQuery, epoch: int, having: Having | None) -> Closed:
    edges = Edges(*open.edges(q.slots))
    if q.now is None or not edges.firsts.shape[1]:
        return
    p = open.partials
    if _changed(open, mine, edges, q):
        yield window_rows(_replayed(open, mine, edges, q, epoch, having).rows)
        return
    times = edges.until(epoch)
    known = edges.until(epoch - 1)
    window = np.searchsorted(times, p.lo[mine], "right") - 1
    inside = (window >= 0) & (window < len(times) - 1)
    entries, window = mine[inside], window[inside]
    ends = times[window + 1]
    due = ends <= q.now
    if q.before is not None:
        due &= (ends > q.before) | ~np.isin(ends, known)
    entries, window = entries[due], window[due]
    groups = open.numbers[entries]
    order = np.lexsort((groups, window))
    entries, window, groups = entries[order], window[order], groups[order]
    begins = np.ones(len(entries), bool)
    begins[1:] = (groups[1:] != groups[:-1]) | (window[1:] != window[:-1])
    first = np.flatnonzero(begins)
    offsets = np.append(first, len(entries)).astype(np.int64)
    bounds = times[window[first]], times[window[first] + 1]
    yield Windows(groups[first], *bounds, np.zeros(len(first), np.int64), entries.astype(np.int32), offsets)


def _changed(open: Open, mine: I64, edges: Edges, q: ClosingQuery) -> bool:
    """Do the entries alone not say what was delivered?"""
    p, marks = open.partials, Marks(q.marks)
    pairs = (p.lo[mine], p.epochs[mine]), (edges.marks[0], edges.marks[1]), (edges.firsts[0], edges.firsts[1])
    return bool(open.standing(q.slots)) or any(_late(times, epochs, marks) for times, epochs in pairs)


def _late(times: I64, epochs: I64, marks: Marks) -> bool:
    before, known = marks.before(epochs)
    return bool((known & (times < before)).any())


def _replayed(open: Open, mine: I64, edges: Edges, q: ClosingQuery, epoch: int, having: Having | None) -> Replayed:
    p = open.partials
    lo, epochs, groups = p.lo[mine], p.epochs[mine], open.numbers[mine]
    standing = {(row.group, row.start): row for row in open.standing(q.slots)}
    out: list[StandingRow] = []
    came = np.concatenate([epochs, edges.marks[1], edges.firsts[1]])
    for then, mark in replayed_epochs(open, came, Marks(q.marks), epoch):
        for start, end in pairwise(edges.until(then).tolist()):
            if end > mark:
                break
            there = np.flatnonzero((lo >= start) & (lo < end) & (epochs <= then))
            for group in np.unique(groups[there]).tolist():
                content = tuple(mine[there[groups[there] == group]].tolist())
                known = standing.get((group, start))
                if known is not None and (known.end, known.entries) == (end, content):
                    continue
                row = StandingRow(group, start, end, 0 if known is None else known.revision + 1, content)
                if having is None or having(window_rows([row]))[0]:
                    standing[(group, start)] = row
                    if then == epoch:
                        out.append(row)
    return Replayed(out, list(standing.values()))


def needed_punctuated(
    open: Open, mine: I64, q: ClosingQuery, epoch: int, having: Having | None
) -> tuple[I64, Edges, list[StandingRow]]:
    """The entries and edges that later epochs may need, and what stands of rows that may be revised."""
    edges = Edges(*open.edges(q.slots))
    changed = bool(edges.firsts.shape[1]) and q.now is not None and _changed(open, mine, edges, q)
    rows = _replayed(open, mine, edges, q, epoch, having).standing if changed else []
    if q.horizon is None or not edges.firsts.shape[1]:
        return mine, edges, rows
    every = np.unique(np.concatenate([edges.marks[0], [edges.firsts[0].min()]]))
    before = every[every <= q.horizon]
    if not len(before):
        return mine, edges, rows
    since = int(before[-1])
    marks = edges.marks[:, edges.marks[0] >= since]
    # what is before it cannot change any more, so it serves as the first tuple
    firsts = edges.firsts[:, edges.firsts[0] >= since]
    earliest = int(np.concatenate([edges.marks[1], edges.firsts[1]]).min())
    firsts = np.concatenate([np.array([[since], [earliest]], np.int64), firsts], axis=1)
    return mine[open.partials.lo[mine] >= since], Edges(marks, firsts), rows
