"""Closing aligned windows: rows of windows that the watermark has reached, and of closed ones that late tuples change.

Windows have numbers in the order in which they close, so an epoch closes a range of them. For each of these windows and
each group with an entry in it, the entries are combined. A closed window that gets entries in this epoch comes again:

    revision = deliveries before = (was there anything when it closed?) + epochs since then that brought something

which follows from the epochs of its entries. If HAVING held back some of these deliveries, they do not count; then
each is looked at again.

Two ways to combine windows that close together. Either every (entry, window) pair is laid out, at most about PAIRS at a
time, whatever the windows' overlap and the number that close; a single window is never cut. Or, where windows overlap
so much that the pairs were many times the entries, windows share work: entries that the same windows hold are combined
first, which gives a small table (pieces of time x groups) over which windows slide (runtime.aggregates.sliding).
How windows of different epochs share work: runtime.execution.blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.model.combining import SHARED
from runtime.aggregates.components import Component
from runtime.aggregates.sliding import Cells, slide
from runtime.aggregates.states import State
from runtime.kernels.expand import unroll
from runtime.kernels.sliding import present_in
from runtime.operators.closing import Closed, ClosingQuery, Having, Marks, Windows, offsets_of
from runtime.operators.open_partials import Open
from runtime.windows.base import WindowLogic
from runtime.windows.registry import logic_of

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

PAIRS = 1 << 22
FULL = 16
"""How many times the entries a table may have cells."""


class _Held(NamedTuple):
    """Entries and the ranges of window numbers that hold them."""

    entries: I64
    first: I64
    end: I64

    def within(self, low: int, high: int) -> _Held:
        first, end = np.maximum(self.first, low), np.minimum(self.end, high + 1)
        some = np.flatnonzero(end > first)
        return _Held(self.entries[some], first[some], end[some])

    @property
    def pairs(self) -> int:
        return int((self.end - self.first).sum())


def close_time(open: Open, mine: I64, q: ClosingQuery, epoch: int, having: Having | None) -> Closed:
    if q.now is None:
        return
    logic = logic_of(q.query.query.window)
    held = _held(open, logic, mine, q)
    now = logic.last_closed(q.now)
    done = None if q.before is None else logic.last_closed(q.before)
    if done is None or now > done:
        due = _held(open, logic, open.of(q.slots, q.cover), q) if q.cover else held
        yield from _first_rows(open, logic, due if done is None else due.within(done + 1, now), now)
    if done is None:
        return
    new = held.within(int(held.first.min(initial=0)), done)
    new = _only(new, open.epochs[new.entries] == epoch)
    if new.pairs:
        yield from _again(open, logic, held, new, q, epoch, having)


def _held(open: Open, logic: WindowLogic, entries: I64, q: ClosingQuery) -> _Held:
    lo = open.lo[entries]
    hi = lo if open.hi is open.lo else open.hi[entries]
    return _Held(entries, *logic.numbers(lo, hi, q.query.active_from))


def _first_rows(open: Open, logic: WindowLogic, held: _Held, last: int) -> Closed:
    """All rows of windows up to `last`; the fields of `held` reach no further back than they should."""
    if not len(held.entries):
        return
    held = held.within(int(held.first.min()), last)
    if len(held.entries) and held.pairs > SHARED * len(held.entries):
        table = _table(open, held)
        if table is not None:
            yield from _slid(open, logic, table)
            return
    for piece in _pieces(held, last):
        yield _rows(open, logic, piece)


class _Table(NamedTuple):
    """Entries order[offsets[i]:offsets[i + 1]] are in cell i. Piece p lies in the windows from first[p] on, before
    end[p]; both ascend. `groups`: the numbers of the groups of the table."""

    cells: Cells
    order: npt.NDArray[np.int32]
    offsets: I64
    first: I64
    end: I64
    groups: I64


def _table(open: Open, held: _Held) -> _Table | None:
    """None: pieces are not in order (joined rows of different spans), or the table would be nearly empty."""
    bounds, pieces = np.unique(np.stack([held.first, held.end], axis=1), axis=0, return_inverse=True)
    first, end = np.ascontiguousarray(bounds.T)
    groups, columns = np.unique(open.numbers[held.entries], return_inverse=True)
    shape = len(bounds), len(groups)
    if (np.diff(end) < 0).any() or shape[0] * shape[1] > FULL * len(held.entries):
        return None
    pieces, columns = pieces.reshape(-1), columns.reshape(-1)
    order = np.lexsort((columns, pieces))
    pieces, columns = pieces[order], columns[order]
    begins = np.ones(len(order), bool)
    begins[1:] = (pieces[1:] != pieces[:-1]) | (columns[1:] != columns[:-1])
    at = np.flatnonzero(begins)
    cells = Cells(pieces[at], columns[at], shape)
    offsets = np.append(at, len(order)).astype(np.int64)
    return _Table(cells, held.entries[order].astype(np.int32), offsets, first, end, groups)


def _slid(open: Open, logic: WindowLogic, table: _Table) -> Closed:
    """As many windows at a time as give about PAIRS rows."""
    cell = open.combining(table.order, table.offsets)
    width = len(table.groups)
    most = max(1, PAIRS // width)
    here = np.zeros(table.cells.shape, bool)
    here[table.cells.slices, table.cells.groups] = True
    for low in range(int(table.first[0]), int(table.end[-1]), most):
        numbers = np.arange(low, min(low + most, int(table.end[-1])), dtype=np.int64)
        first = np.searchsorted(table.end, numbers, "right").astype(np.int64)
        end = np.searchsorted(table.first, numbers, "right").astype(np.int64)
        end = np.maximum(first, end)
        rows = np.flatnonzero(present_in(here, first, end).reshape(-1))

        def combined(component: Component, first: I64 = first, end: I64 = end, rows: I64 = rows) -> State:
            whole, _ = slide(component, cell(component), table.cells, first, end)
            return whole.take(rows)

        starts = logic.starts_of(numbers[rows // width])
        none = np.zeros(len(rows), np.int64)
        ends = logic.ends(starts)
        yield Windows(
            table.groups[rows % width],
            starts,
            ends,
            none,
            np.empty(0, np.int32),
            np.zeros(1, np.int64),
            cache(combined),
        )


def _only(held: _Held, mask: Mask) -> _Held:
    return _Held(held.entries[mask], held.first[mask], held.end[mask])


def _pieces(held: _Held, last: int) -> Iterator[_Held]:
    """Ranges of windows with not too many pairs each."""
    if not len(held.entries):
        return
    low, high = int(held.first.min()), min(int(held.end.max()) - 1, last)
    held = held.within(low, high)
    if not len(held.entries):
        return
    if held.pairs <= PAIRS or low == high:
        yield held
        return
    middle = (low + high) // 2
    yield from _pieces(held.within(low, middle), middle)
    yield from _pieces(held.within(middle + 1, high), high)


def _rows(open: Open, logic: WindowLogic, held: _Held) -> Windows:
    """All groups and windows of a piece, revision 0."""
    which, numbers = unroll(held.first, held.end)
    entries = held.entries[which]
    groups = open.numbers[entries]
    if len(numbers) and (numbers != numbers[0]).any():
        order = np.lexsort((groups, numbers))
        entries, groups, numbers = entries[order], groups[order], numbers[order]
    begins = np.ones(len(entries), bool)
    begins[1:] = (groups[1:] != groups[:-1]) | (numbers[1:] != numbers[:-1])
    first = np.flatnonzero(begins)
    starts = logic.starts_of(numbers[first])
    offsets = np.append(first, len(entries)).astype(np.int64)
    none = np.zeros(len(first), np.int64)
    return Windows(groups[first], starts, logic.ends(starts), none, entries.astype(np.int32), offsets)


def _again(
    open: Open, logic: WindowLogic, held: _Held, new: _Held, q: ClosingQuery, epoch: int, having: Having | None
) -> Closed:
    marks = Marks(q.marks)
    for fresh in _pieces(new, int(new.end.max()) - 1):
        touched = _rows(open, logic, fresh)
        low, high = int(fresh.first.min()), int(fresh.end.max()) - 1
        near = held.within(low, high)
        for piece in _pieces(_only(near, np.isin(open.numbers[near.entries], touched.groups)), high):
            rows = _rows(open, logic, piece)
            wanted = np.isin(_pair(rows), _pair(touched))
            if wanted.any():
                rows = rows.take(np.flatnonzero(wanted))
                yield rows._replace(revisions=_revisions(open, rows, marks, epoch, having))


def _pair(rows: Windows) -> npt.NDArray[np.void]:
    """Group and start as one value each."""
    return np.ascontiguousarray(np.stack([rows.groups, rows.starts], axis=1)).view([("g", "i8"), ("s", "i8")]).ravel()


def _revisions(open: Open, rows: Windows, marks: Marks, epoch: int, having: Having | None) -> I64:
    """How often each row was delivered before `epoch`."""
    closed = marks.closing_epochs(rows.ends)
    row = np.repeat(np.arange(len(rows.groups)), np.diff(rows.offsets))
    epochs = open.epochs[rows.order]
    if having is None:
        base = np.zeros(len(rows.groups), np.int64)
        base[row[epochs <= closed[row]]] = 1
        pairs = np.unique(np.stack([row, epochs], axis=1)[(epochs > closed[row]) & (epochs < epoch)], axis=0)
        return base + np.bincount(pairs[:, 0], minlength=len(base))
    delivered = np.zeros(len(rows.groups), np.int64)
    for then in np.unique(np.concatenate([epochs, closed])):
        if then >= epoch:
            break
        there = epochs <= then
        changed = (then == closed) | ((then > closed) & _any(row[epochs == then], len(closed)))
        some = np.flatnonzero(changed & _any(row[there], len(closed)))
        if len(some):
            sizes = np.bincount(row[there], minlength=len(closed))
            past = rows._replace(order=rows.order[there], offsets=offsets_of(sizes)).take(some)
            delivered[some] += having(past)
    return delivered


def _any(rows: I64, count: int) -> Mask:
    out = np.zeros(count, bool)
    out[rows] = True
    return out
