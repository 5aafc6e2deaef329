"""The close operator: windows that the watermark has reached become rows, one task per range of hashes.

A task opens the partials of a fold in its range once for all queries of the fold. Every query then takes its own
entries by its bit, finds which of its windows are due (by kind of window: close_time, close_sessions, close_counts,
close_punctuated), and makes their rows. Groups never leave the task: nothing per group passes through the driver.

What aligned windows no longer need goes by buckets (runtime.control.retention). Of other windows only the task can tell
what is needed, so now and then it writes that into one bucket which replaces all of its range (`carry`): entries of
dead sessions, of count windows that are settled and of closed punctuated windows are left out, and every bit stands
where the plan of this epoch has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.model.windows import CountWindow, PunctuatedWindow, SessionWindow
from runtime.aggregates.bucket import Partials, Standing, concat_partials
from runtime.aggregates.states import fold as combine
from runtime.buckets.file import Buckets
from runtime.buckets.refs import PartialRef
from runtime.columns.coded_sets import coded
from runtime.columns.querysets import Words, add_slot, has
from runtime.execution.folding import FoldSpec, FoldUsers
from runtime.execution.shipped import ShippedOnce
from runtime.kernels.sets import nonempty
from runtime.operators.close_counts import close_counts, needed_counts
from runtime.operators.close_punctuated import close_punctuated, needed_punctuated
from runtime.operators.close_sessions import close_sessions, needed_sessions
from runtime.operators.close_time import close_time
from runtime.operators.close_together import close_together
from runtime.operators.closed_rows import ClosedRows
from runtime.operators.closing import Closed, ClosingFold, ClosingQuery, Having, NewBlock
from runtime.operators.fold import PartialTarget
from runtime.operators.groups import entries
from runtime.operators.open_partials import Open, StandingRow, nothing, open_partials
from runtime.results.segment import Delivered, SegmentTarget, SegmentWriter

I64 = npt.NDArray[np.int64]

Closer = Callable[[Open, I64, ClosingQuery, int, Having | None], Closed]

CLOSERS: Mapping[type[Any], Closer] = {
    SessionWindow: close_sessions,
    CountWindow: close_counts,
    PunctuatedWindow: close_punctuated,
}
"""All other windows are aligned."""


@dataclass(frozen=True)
class CloseShared:
    store: Buckets
    epoch: int
    version: int
    users: ShippedOnce[tuple[FoldUsers, ...]]
    folds: tuple[ClosingFold, ...]
    segments: SegmentTarget
    most: Mapping[str, int]
    """Rows that queries (uid) may make in a task; the others: any number."""


class CloseTask(NamedTuple):
    """The groups with hashes in the range of a partition. `segment`: the file for rows; others are named after it."""

    partition: int
    first_hash: int
    end_hash: int
    segment: str


@dataclass(frozen=True, slots=True)
class CloseReport:
    """`overflows`: integer sums that did not fit, per query (uid). `blocks`: parts of new blocks, by their names.
    `left_out`: queries (uid) that chose a sample and had more rows."""

    delivered: Delivered | None
    carried: tuple[PartialRef, ...]
    seconds: float
    overflows: Mapping[str, int]
    blocks: tuple[tuple[str, PartialRef], ...] = ()
    left_out: tuple[str, ...] = ()


def run_close(shared: CloseShared, task: CloseTask) -> CloseReport:
    began = time.perf_counter()
    writer = SegmentWriter(shared.segments, task.segment, shared.most)
    overflows: dict[str, int] = {}
    carried: list[PartialRef] = []
    blocks: list[tuple[str, PartialRef]] = []
    for fold in shared.folds:
        users = shared.users.value[fold.number]
        at = task.first_hash, task.end_hash
        open = open_partials(shared.store, fold.refs, users.spec.components, *at, fold.blocks, fold.times)
        if open is None:
            continue
        queries = fold.queries(users)
        for q in close_together(open, fold, queries, shared.epoch, writer, overflows):
            rows = ClosedRows(open, q, writer)
            close = CLOSERS.get(type(q.query.query.window), close_time)
            having = None if q.query.query.having is None else rows.having
            for windows in close(open, open.of(q.slots), q, shared.epoch, having):
                rows.write(windows)
            if rows.overflows:
                overflows[q.query.uid] = overflows.get(q.query.uid, 0) + rows.overflows
        for new in fold.make:
            made = combined_ahead(open, queries, new, users.spec.words, shared.epoch)
            if made is not None:
                file = f"{new.name}-{task.segment.removesuffix('.segment').rpartition('-')[2]}.bucket"
                target = PartialTarget(shared.store, file, shared.version, shared.epoch, task.first_hash, task.end_hash)
                blocks.append((new.name, target.write(users.spec, made, carried=True)))
        if fold.carry:
            file = f"{task.segment.removesuffix('.segment')}-{users.spec.name}-g{users.spec.group}.bucket"
            target = PartialTarget(shared.store, file, shared.version, shared.epoch, task.first_hash, task.end_hash)
            ref = _carry(open, users.spec, queries, writer, target)
            carried += [ref] if ref is not None else []
    delivered, left_out = writer.finish(), tuple(sorted(writer.left_out))
    seconds = time.perf_counter() - began
    return CloseReport(delivered, tuple(carried), seconds, overflows, tuple(blocks), left_out)


def combined_ahead(
    open: Open, queries: Sequence[ClosingQuery], new: NewBlock, words: int, epoch: int
) -> Partials | None:
    """The part of a new block that is in a task's range: one entry per group and query set. None: there is nothing."""
    p = open.partials
    sets = np.zeros((len(p), words), np.uint64)
    for number, cover in new.queries:
        q = queries[number]
        mine = open.of(q.slots, cover)
        add_slot(sets, mine[(p.lo[mine] >= new.lo) & (p.lo[mine] < new.hi)], q.slot)
    rows = np.flatnonzero(nonempty(sets))
    if not len(rows):
        return None
    none = np.zeros(len(rows), np.int64)
    known = coded(sets[rows])
    alike = entries(tuple(k.take(rows) for k in p.keys), p.hashes[rows], none, none, known)
    order, begins = rows[alike.order], alike.offsets[:-1]
    return replace(
        replace(p, states={}).take(order[begins]),
        lo=np.minimum.reduceat(p.lo[order], begins),
        hi=np.maximum.reduceat(p.hi[order], begins),
        sets=known.take(alike.order[begins]),
        epochs=np.full(len(begins), epoch, np.int64),
        states={c: combine(c, s, order.astype(np.int32), alike.offsets) for c, s in p.states.items()},
        edges={},
        firsts={},
        standing={},
    )


def _carry(
    open: Open, spec: FoldSpec, queries: Sequence[ClosingQuery], writer: SegmentWriter, target: PartialTarget
) -> PartialRef | None:
    p, words, epoch = open.partials, spec.words, target.epoch
    sets = np.zeros((len(p), words), np.uint64)
    gone = np.zeros((len(p), words), np.uint64)
    edges: dict[int, I64] = {}
    firsts: dict[int, I64] = {}
    standing: dict[int, list[StandingRow]] = {}
    for q in queries:
        mine = open.of(q.slots)
        having = None if q.query.query.having is None else ClosedRows(open, q, writer).having
        match q.query.query.window:
            case SessionWindow():
                kept, standing[q.slot] = needed_sessions(open, mine, q, epoch, having)
            case CountWindow():
                kept, counted, standing[q.slot] = needed_counts(open, mine, q, epoch, having)
                add_slot(gone, counted, q.slot)
            case PunctuatedWindow():
                kept, left, standing[q.slot] = needed_punctuated(open, mine, q, epoch, having)
                if left.firsts.shape[1]:
                    edges[q.slot], firsts[q.slot] = left
            case _:
                raise AssertionError("aligned windows are never carried")
        add_slot(sets, kept, q.slot)
    kept_rows = nonempty(sets)
    stand = {slot: made for slot, rows in standing.items() if (made := _standing(rows, has(sets, slot))) is not None}
    sets[kept_rows] |= gone[kept_rows]  # a tuple that one query still needs counts for the others with it
    gone[kept_rows] = 0
    partials = _with_bits(p, sets)
    places = np.cumsum(kept_rows) - 1
    if gone.any():
        numbered = _standing_for(_with_bits(p, gone))
        partials = concat_partials([numbered, partials], words)
        order = np.argsort(partials.hashes, kind="stable")
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(len(order))
        partials = partials.take(order)
        places = number[places + len(numbered)]
    if not len(partials) and not firsts:
        return None
    stand = {slot: Standing(table, places[entries]) for slot, (table, entries) in stand.items()}
    carried = replace(partials, edges=edges, firsts=firsts, standing=stand)
    return target.write(spec, carried, carried=True)


def _standing(rows: Sequence[StandingRow], kept: npt.NDArray[np.bool_]) -> Standing | None:
    """Those whose entries are all kept."""
    mine = [row for row in rows if kept[list(row.entries)].all()]
    if not mine:
        return None
    table = np.array([(row.start, row.end, row.revision, len(row.entries)) for row in mine], np.int64).T
    return Standing(np.ascontiguousarray(table), np.array([e for row in mine for e in row.entries], np.int64))


def _with_bits(p: Partials, sets: Words) -> Partials:
    """The entries that somebody needs."""
    rows = np.flatnonzero(nonempty(sets))
    return replace(p.take(rows), sets=coded(sets[rows]), edges={}, firsts={}, standing={})


def _standing_for(p: Partials) -> Partials:
    """One entry per group and query set, for the number of tuples."""
    none = np.zeros(len(p), np.int64)
    alike = entries(p.keys, p.hashes, none, none, p.sets)
    first = alike.order[alike.offsets[:-1]]
    small = p.take(first)
    weights = np.add.reduceat(np.maximum(p.weights, 1)[alike.order], alike.offsets[:-1])
    lasts = np.maximum.reduceat(p.lo[alike.order], alike.offsets[:-1])
    states = {c: nothing(c, len(first)) for c in p.states}
    return replace(small, lo=lasts, hi=lasts, epochs=np.zeros(len(first), np.int64), weights=weights, states=states)
