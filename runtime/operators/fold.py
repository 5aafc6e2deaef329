"""The fold operator: tuples, or rows of a join, become the entries of a partial bucket.

A tuple is folded once for all queries of a fold: into the entry of its group, its piece of time and its query set. So
queries with different conditions share the work, and a query's part is found again by its bit. What a piece of time is
follows from the windows (runtime.execution.folding).

Cost per row: the key values, one hash, a pass that puts equal entries together (runtime.kernels.grouping), and a pass
per component. Where conditions are so different that nearly every row has a query set of its own, by_query.py goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.model.expressions import Expr
from optimizer.model.plan import FULL_RANGE
from optimizer.model.types import ColumnType
from runtime.aggregates.bucket import Partials, concat_partials, put_partials
from runtime.aggregates.components import Component
from runtime.aggregates.states import State, fold, lift_fold
from runtime.buckets.file import Buckets
from runtime.buckets.indexes import Arrays
from runtime.buckets.refs import PartialRef
from runtime.columns.coded_sets import CodedSets, coded
from runtime.columns.column import ColumnData
from runtime.columns.evaluate import Lookup, evaluate, truth
from runtime.columns.querysets import Words
from runtime.execution.folding import FoldSpec, Pieces, Slices, Times, Tuples
from runtime.kernels.coding import distinct_sets
from runtime.kernels.fetch import fetch
from runtime.kernels.grouping import Entries
from runtime.operators.groups import entries, group_hashes
from runtime.windows.registry import slice_starts

I64 = npt.NDArray[np.int64]

EVERY_BIT = np.full(1, ~np.uint64(0))

BATCHES = 20
"""Bits for the number of a read within its epoch."""

MOST_WAITING = 1 << 20
"""Entries of earlier flushes that are put together before more are collected."""


class Folded(NamedTuple):
    """Figures for the optimizer and for explain: tuples folded, and the entries, groups, pieces of time and query sets
    that came out. `by_query`: there were so many query sets that every query has entries of its own."""

    tuples: int
    entries: int
    groups: int
    pieces: int
    query_sets: int
    by_query: bool = False


def folded(tuples: int, partials: Partials) -> Folded:
    sets = int(np.count_nonzero(np.bincount(partials.sets.codes)))
    groups = int(np.count_nonzero(np.diff(partials.hashes))) + 1 if len(partials) else 0
    pieces, _ = distinct_sets(partials.lo.view(np.uint64).reshape(-1, 1), EVERY_BIT)
    return Folded(tuples, len(partials), groups, len(pieces), sets)


def fold_tuples(spec: FoldSpec, read: Lookup, times: I64, sets: CodedSets, epoch: int, batch: int) -> Partials:
    """`read` gives columns of the tuples that some query of the fold wants, in order of arrival; `times` are theirs.
    `batch`: which of the epoch's reads it is."""
    rows = len(times)
    keys = key_columns(spec, read, rows)
    hashes = group_hashes(keys, rows)
    match spec.cut:
        case Slices(windows):
            lo = hi = slice_starts(windows, times)
            found = entries(keys, hashes, lo, hi, sets)
        case Times():
            lo = hi = times
            found = entries(keys, hashes, lo, hi, sets)
        case Tuples():
            lo = hi = times
            order = np.lexsort((times, hashes)).astype(np.int32)
            found = Entries(order, np.arange(rows + 1, dtype=np.int64))
        case Pieces(gap):
            found = _pieces(keys, hashes, times, sets, gap)
            lo, hi = times, times
    first, last = found.order[found.offsets[:-1]], found.order[found.offsets[1:] - 1]
    came = (epoch << BATCHES) + batch
    states = {c: state_of(c, read, rows, times, found, came) for c in spec.components}
    n = len(first)
    begins = fetch(lo, first)
    return Partials(
        fetch(hashes, first),
        begins,
        fetch(hi, last) if isinstance(spec.cut, Pieces) else begins,
        CodedSets(sets.table, fetch(sets.codes, first)),
        np.full(n, epoch, np.int64),
        np.zeros(n, np.int64),
        tuple(k.take(first) for k in keys),
        states,
        {},
        {},
    )


def key_columns(spec: FoldSpec, read: Lookup, rows: int) -> tuple[ColumnData, ...]:
    """0.0 and -0.0 are one group, which is called 0.0."""
    return tuple(key_column(k, read, rows) for k in spec.keys)


def key_column(key: Expr, read: Lookup, rows: int) -> ColumnData:
    values = evaluate(key, read, rows)
    return replace(values, values=values.values + 0.0) if values.type is ColumnType.DOUBLE else values


def _pieces(
    keys: tuple[ColumnData, ...], hashes: npt.NDArray[np.uint64], times: I64, sets: CodedSets, gap: int
) -> Entries:
    """Runs of a group and query set whose neighbours in time are at most `gap` apart, each in order of time."""
    none = np.zeros(len(times), np.int64)
    if (times[1:] >= times[:-1]).all():
        found = entries(keys, hashes, none, none, sets)
        order = found.order
    else:
        by_time = np.argsort(times, kind="stable")
        found = entries(tuple(k.take(by_time) for k in keys), hashes[by_time], none, none, sets.take(by_time))
        order = by_time[found.order].astype(np.int32)
    sorted_times = fetch(times, order)
    begins = np.zeros(len(order), bool)
    begins[found.offsets[:-1]] = True
    begins[1:] |= sorted_times[1:] - sorted_times[:-1] > gap
    return Entries(order, np.append(np.flatnonzero(begins), len(order)).astype(np.int64))


def state_of(component: Component, read: Lookup, rows: int, times: I64, found: Entries, batch: int = 0) -> State:
    """Of the rows of each entry, which `read` gives the columns of."""
    arguments = tuple(evaluate(a, read, rows) for a in component.arguments)
    passed = None if component.where is None else truth(component.where, read, rows)
    return lift_fold(component, arguments, passed, times, found.order, found.offsets, batch)


def edges_of(spec: FoldSpec, read: Lookup, times: I64, epoch: int) -> tuple[dict[int, I64], dict[int, I64]]:
    """Of punctuated windows: the times of punctuations and of the first tuple, per slot, over all accepted tuples."""
    edges: dict[int, I64] = {}
    firsts: dict[int, I64] = {}
    if not isinstance(spec.cut, Times):
        return edges, firsts
    for rule in spec.cut.edges:
        seen = np.ones(len(times), bool) if rule.active_from is None else times >= rule.active_from
        if seen.any():
            firsts[rule.slot] = np.array([[times[seen].min()], [epoch]], np.int64)
            found = np.unique(times[seen & truth(rule.condition, read, len(times))])
            edges[rule.slot] = np.stack([found, np.full(len(found), epoch, np.int64)])
    return edges, firsts


class RowFolder:
    """Folds the rows of a join, flush by flush; what was folded is put together again now and then."""

    def __init__(self, spec: FoldSpec, epoch: int) -> None:
        self.spec, self.epoch = spec, epoch
        self._parts: list[Partials] = []
        self._waiting = 0
        self.rows = 0

    def add(self, read: Lookup, lo: I64, hi: I64, sets: Words) -> None:
        rows = len(lo)
        if not rows:
            return
        self.rows += rows
        keys = key_columns(self.spec, read, rows)
        hashes = group_hashes(keys, rows)
        known = coded(sets)
        found = entries(keys, hashes, lo, hi, known)
        first = found.order[found.offsets[:-1]]
        n = len(first)
        self.put(
            Partials(
                hashes[first],
                lo[first],
                hi[first],
                known.take(first),
                np.full(n, self.epoch, np.int64),
                np.zeros(n, np.int64),
                tuple(k.take(first) for k in keys),
                {c: state_of(c, read, rows, lo, found) for c in self.spec.components},
                {},
                {},
            )
        )

    def put(self, part: Partials) -> None:
        self._parts.append(part)
        self._waiting += len(part)
        if len(self._parts) > 1 and self._waiting > MOST_WAITING:
            self._together()

    def finish(self) -> Partials | None:
        if not self._parts:
            return None
        self._together()
        return self._parts[0]

    def _together(self) -> None:
        if len(self._parts) > 1:
            self._parts = [together(concat_partials(self._parts, self.spec.words))]
            self._waiting = len(self._parts[0]) // 2


def together(partials: Partials) -> Partials:
    """Equal entries of one epoch as one."""
    partials = replace(partials, sets=partials.sets.only(np.full(partials.sets.words, ~np.uint64(0))))
    found = entries(partials.keys, partials.hashes, partials.lo, partials.hi, partials.sets)
    first = found.order[found.offsets[:-1]]
    states = {c: fold(c, s, found.order, found.offsets) for c, s in partials.states.items()}
    return replace(replace(partials, states={}).take(first), states=states)


@dataclass(frozen=True, slots=True)
class PartialTarget:
    """Where a partial bucket goes, and what its reference says of it."""

    store: Buckets
    file: str
    version: int
    epoch: int
    first_hash: int = 0
    end_hash: int = FULL_RANGE

    def write(self, spec: FoldSpec, partials: Partials, **more: Any) -> PartialRef:
        arrays: Arrays = {}
        meta: dict[str, Any] = {
            "fold": spec.name,
            "epoch": self.epoch,
            "version": self.version,
            "cut": type(spec.cut).__name__,
            "components": [c.kind for c in partials.states],
        }
        put_partials(arrays, meta, partials, self.epoch)
        file, size = self.store.write(self.file, meta, arrays)
        edges = (times for of in (partials.edges, partials.firsts) for times, _ in of.values())
        begins = np.concatenate([partials.lo, *edges])
        return PartialRef(
            file,
            spec.name,
            spec.group,
            self.version,
            self.epoch,
            len(partials),
            size,
            int(begins.min()) if len(begins) else 0,
            int(begins.max()) if len(begins) else 0,
            self.first_hash,
            self.end_hash,
            **more,
        )
