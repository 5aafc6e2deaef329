"""Folding per query, where conditions are so different that queries share next to no entries.

A fold has an entry per group, slice and query set. Twenty queries with conditions of their own can have a million
different sets: then nearly every tuple is an entry, a window is combined from tuples again and again, and the state is
as large as the stream. Folded per query, there are at most as many entries as groups, slices and queries multiply to.

Which is better is counted, bucket by bucket: if the entries are more than GAIN times what they would be per query, at
most, each is dealt out to the queries in its set, and what is equal is combined. The bucket then has sets of one query
each. Readers do not notice: a query finds its entries by its bit, whatever other bits are in a set. So the decision
needs no plan, may differ from bucket to bucket, and is told with the figures of the fold.

Cost: one step per (entry, query in its set), about what closing one window from these entries takes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from runtime.aggregates.bucket import Partials, concat_partials
from runtime.aggregates.states import fold
from runtime.columns.coded_sets import CodedSets
from runtime.columns.querysets import Words
from runtime.execution.folding import FoldSpec, Slices
from runtime.kernels.expand import in_runs
from runtime.kernels.grouping import Entries
from runtime.kernels.layout import count_laid, lay_out, listed
from runtime.operators.fold import Folded, folded
from runtime.operators.groups import one_group_each, permuted

I64 = npt.NDArray[np.int64]

FEW = 1 << 10
"""Fewer entries are left as they are."""

GAIN = 4

DEALT = 1 << 24
"""(entry, query) pairs that are laid out at a time; those of one group and slice are never cut."""


def decided(spec: FoldSpec, tuples: int, partials: Partials) -> tuple[Partials, Folded]:
    """What is kept of so many tuples, and the figures of that."""
    figures = folded(tuples, partials)
    apart = by_query(partials) if isinstance(spec.cut, Slices) else None
    if apart is None:
        return partials, figures
    return apart, figures._replace(entries=len(apart), by_query=True)


def by_query(partials: Partials) -> Partials | None:
    """The same, folded per query. None: that would not be much less. Of slices, in the order of hashes."""
    if len(partials) < FEW:
        return None
    sets = partials.sets
    starts, members = listed(sets.table)
    there = np.zeros(64 * sets.words, bool)
    there[members] = True
    queries = np.flatnonzero(there)
    begins = _begins(partials)
    if begins is None or GAIN * len(queries) * len(begins) > len(partials):
        return None
    single = np.zeros((len(queries), sets.words), np.uint64)
    single[np.arange(len(queries)), queries >> 6] = np.uint64(1) << (queries & 63).astype(np.uint64)
    dealt = _Dealt(starts, (np.cumsum(there, dtype=np.int32) - np.int32(1))[members], single)
    cost = np.add.reduceat(np.diff(starts)[sets.codes], begins)
    parts = []
    for run in in_runs(cost, DEALT):
        end = begins[run.stop] if run.stop < len(begins) else len(partials)
        parts.append(_deal(partials, begins[run], int(end), dealt))
    return concat_partials(parts, sets.words)


class _Dealt(NamedTuple):
    """members[starts[s]:starts[s + 1]] are the queries of set s, by number; `single`: the set of each query alone."""

    starts: I64
    members: npt.NDArray[np.int32]
    single: Words


def _begins(partials: Partials) -> I64 | None:
    """Where the entries of each group and slice begin. None: two groups have one hash, and it is not worth the trouble
    to tell them apart here."""
    changes = np.ones(len(partials), bool)
    changes[1:] = (np.diff(partials.hashes) != 0) | (np.diff(partials.lo) != 0) | (np.diff(partials.hi) != 0)
    begins = np.flatnonzero(changes)
    return begins if one_group_each(partials.keys, begins) else None


def _deal(partials: Partials, begins: I64, end: int, dealt: _Dealt) -> Partials:
    """The entries from the first of `begins` to `end`: one per beginning and query."""
    low, cells, queries = int(begins[0]), len(begins), len(dealt.single)
    cell = np.repeat(np.arange(cells, dtype=np.int64), np.diff(np.append(begins, end)))
    each = np.arange(cells, dtype=np.int64)
    common = (
        partials.sets.codes[low:end],
        dealt.starts,
        dealt.members,
        cell.astype(np.int32),
        each,
        each + 1,
        0,
        cells,
    )
    laid = lay_out(*common, count_laid(*common, queries), cell)
    query = np.repeat(np.arange(queries, dtype=np.int32), np.diff(laid.bounds))
    by_cell = np.argsort(laid.groups, kind="stable")
    found = permuted(Entries(laid.order, laid.offsets), by_cell)
    order = found.order + np.int32(low)
    states = {c: fold(c, s, order, found.offsets) for c, s in partials.states.items()}
    first = begins[laid.groups[by_cell]]
    return replace(
        replace(partials, states={}).take(first), sets=CodedSets(dealt.single, query[by_cell]), states=states
    )
