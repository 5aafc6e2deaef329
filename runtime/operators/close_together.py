"""Closing the aligned windows of many queries in one pass over the entries of their fold.

Queries with the same window and output class differ only in which entries are theirs. So entries that are the same to
all of them are combined (runtime.operators.alike), their rows are laid out together (runtime.kernels.layout), every
component is combined once for all of them, the outputs are computed once, and each query gets its piece of the result.
What is left per query is to write that piece: no array is touched for a query that has no window due, and a thousand
queries with little in each cost about as much as their rows.

What this leaves to the closers of single queries: windows that follow from tuples, windows that overlap so much that
laying out every (entry, window) is not the way, and queries of which this epoch brought late tuples, whose rows come
again.

At most about PAIRS (entry, query, window) are laid out at a time; a query that has more alone is left to its own
closer, which cuts it or lets its windows share work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.model.combining import is_short
from runtime.columns.coded_sets import CodedSets, coded
from runtime.kernels.coding import renumbered
from runtime.kernels.layout import Laid, count_laid, lay_out, listed
from runtime.operators.alike import dealt
from runtime.operators.closed_rows import ClosedRows
from runtime.operators.closing import ClosingFold, ClosingQuery, Windows
from runtime.operators.open_partials import Combined, Open
from runtime.results.segment import SegmentWriter
from runtime.windows.base import WindowLogic
from runtime.windows.registry import aligned, logic_of

I64 = npt.NDArray[np.int64]

PAIRS = 1 << 22


class _Spans(NamedTuple):
    """The windows that hold the distinct (lo, hi) of the entries: from number `first` on, before `end`."""

    logic: WindowLogic
    first: I64
    end: I64

    def held_within(self, low: int, high: int) -> npt.NDArray[np.uint64]:
        """Which of the windows `low` to `high` hold each: equal rows for the same windows."""
        first = np.clip(self.first, low, high + 1)
        return np.stack([first, np.clip(self.end, first, high + 1)], axis=1).view(np.uint64)


@dataclass(frozen=True, slots=True)
class _Entries:
    """The entries of a fold, with their (lo, hi) numbered and their sets as they were written."""

    open: Open
    fold: ClosingFold
    spans: CodedSets

    @staticmethod
    def of(open: Open, fold: ClosingFold) -> _Entries:
        bounds = [open.lo] if open.hi is open.lo else [open.lo, open.hi]
        return _Entries(open, fold, coded(np.stack(bounds, axis=1).view(np.uint64)))

    def held(self, q: ClosingQuery) -> _Spans:
        table = self.spans.table.view(np.int64)
        lo, hi = table[:, 0], table[:, -1]
        logic = logic_of(q.query.query.window)
        return _Spans(logic, *logic.numbers(lo, hi, q.query.active_from))

    def members(self, queries: Sequence[int]) -> npt.NDArray[np.uint64]:
        """The distinct sets of entries with these queries of the fold as members 0, 1, 2, ..."""
        slots = {(at.group, at.version): np.array(at.slots, np.int64)[list(queries)] for at in self.fold.slots}
        nobody = np.full(len(queries), -1, np.int64)
        return np.concatenate(
            [renumbered(p.sets.table, slots.get((ref.group, ref.version), nobody)) for ref, p in self.open.parts]
        )


def close_together(
    open: Open,
    fold: ClosingFold,
    queries: Sequence[ClosingQuery],
    epoch: int,
    writer: SegmentWriter,
    overflows: dict[str, int],
) -> list[ClosingQuery]:
    """Writes the rows of the queries it can close, and answers the others."""
    others: list[ClosingQuery] = []
    bunches: dict[object, list[int]] = {}
    for i, q in enumerate(queries):
        window = q.query.query.window
        if not aligned(window) or not is_short(q.query):
            others.append(q)
        elif q.now is not None:
            bunches.setdefault((window, q.query.active_from, q.before, q.now, q.output_class), []).append(i)
    if not bunches:
        return others
    entries = _Entries.of(open, fold)
    alike: dict[object, tuple[_Spans, list[int]]] = {}
    for mine in bunches.values():
        q = queries[mine[0]]
        spans = entries.held(q)  # equal for all `active_from` that lie before everything that is open
        key = (q.query.query.window, q.before, q.now, q.output_class, spans.first.tobytes(), spans.end.tobytes())
        alike.setdefault(key, (spans, []))[1].extend(mine)
    for spans, mine in alike.values():
        q = queries[mine[0]]
        assert q.now is not None
        now = spans.logic.last_closed(q.now)
        done = None if q.before is None else spans.logic.last_closed(q.before)
        if done is not None:
            late = _late(entries, spans, mine, done, epoch)
            others += [queries[i] for i in sorted(late)]
            mine = [i for i in mine if i not in late]
        low = int(spans.first.min()) if done is None else max(int(spans.first.min()), done + 1)
        high = min(int(spans.end.max()) - 1, now)
        if mine and low <= high:
            for part, laid in _laid(entries, spans, low, high, mine):
                if laid is None:
                    others += [queries[i] for i in part]
                else:
                    _write(open, [queries[i] for i in part], spans.logic, *laid, writer, overflows)
    return others


def _late(entries: _Entries, spans: _Spans, mine: Sequence[int], done: int, epoch: int) -> set[int]:
    """The queries for which this epoch brought entries of windows that were closed before."""
    closed = (spans.first <= done) & (spans.first < spans.end)
    if not closed.any():
        return set()
    open = entries.open
    late = np.flatnonzero(closed[entries.spans.codes] & (open.epochs == epoch))
    if not len(late):
        return set()
    sets = entries.members(mine)[np.unique(open.sets.codes[late])]
    _, members = listed(sets)
    return {mine[m] for m in np.unique(members).tolist()}


def _laid(
    entries: _Entries, spans: _Spans, low: int, high: int, mine: Sequence[int]
) -> Iterator[tuple[Sequence[int], tuple[Laid, Combined] | None]]:
    d = dealt(entries.open, entries.spans.codes, spans.held_within(low, high), entries.members(mine))
    common = (d.codes, d.starts, d.members, d.spans, spans.first, spans.end, low, high - low + 1)
    counts = count_laid(*common, len(mine))
    if int(counts.sum()) <= PAIRS:
        laid = lay_out(*common, counts, d.numbers)
        yield mine, (laid, d.combining(entries.open, laid.order, laid.offsets))
        return
    if len(mine) == 1:
        yield mine, None
        return
    middle = len(mine) // 2
    yield from _laid(entries, spans, low, high, mine[:middle])
    yield from _laid(entries, spans, low, high, mine[middle:])


def _write(
    open: Open,
    queries: Sequence[ClosingQuery],
    logic: WindowLogic,
    laid: Laid,
    combined: Combined,
    writer: SegmentWriter,
    overflows: dict[str, int],
) -> None:
    starts = logic.starts_of(laid.windows)
    none = np.zeros(len(starts), np.int64)
    rows = Windows(laid.groups, starts, logic.ends(starts), none, laid.order, laid.offsets, combined)
    ClosedRows(open, queries[0], writer).write_pieces(rows, [q.query.uid for q in queries], laid.bounds, overflows)
