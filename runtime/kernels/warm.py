"""Run every kernel once on tiny arrays, so that compiled code is loaded before the first tuple.

Compilation happens once per machine (the cache on disk); loading it takes a second or so per process. A Spark daemon
does it before it forks its workers, so that workers have it from the start. Kernels that are declared for one kind of
arrays (runtime.kernels.kinds) are compiled or loaded when they are imported; naming them here is all they need.
"""

from __future__ import annotations

import numpy as np

from runtime.kernels import (
    choosing,
    coding,
    csr,
    expand,
    fetch,
    folding,
    grouping,
    hashing,
    intersect,
    layout,
    records,
    runs,
    sketches,
    slices,
    sliding,
)
from runtime.kernels import sets as query_sets

LOADED = (choosing, coding, folding, layout, runs, sketches, sliding)
"""Loaded by being imported."""


def warm_up() -> None:
    times = np.array([5, 15], np.int64)
    grouping.fold_entries(np.array([7, 7], np.uint64), times, times, np.array([1, 2], np.int32))
    one = np.array([10], np.int64)
    sets = np.ones((2, 1), np.uint64)
    starts = slices.slice_starts(times, one, one)
    hashing.hash_strings(np.array([0, 1], np.int64), np.array([65], np.uint8))
    hashes = hashing.combine([hashing.hash_integers(times), hashing.hash_doubles(times.astype(np.float64))])
    index = csr.build(np.arange(2), hashes, starts, starts, sets)
    entries, items = index.entries(0, len(index.hashes)), csr.Items(index.order, index.offsets, sets)
    l, r, pair_sets = intersect.intersect(entries, entries, sets[0], intersect.Shapes(one, one, sets[:1]))
    expand.carry(l, pair_sets, items, 0, 2)
    expand.count_pairs(l, index.offsets, 0, 2, r, index.offsets)
    expand.pairs(l, items, 0, 2, r, items, pair_sets, 4)
    counts = query_sets.count_members(sets)
    query_sets.members(sets, np.cumsum(counts) - counts, int(counts.sum()))
    query_sets.sum_members(sets, np.ones(2))
    coding.numbers_of(np.zeros(2, np.int64), 1)
    for kind in (np.int64, np.uint64, np.int32, np.float64, np.uint8, np.bool_):
        for fixed in (False, True):  # a file's column cannot be written, which makes it another kind of array
            values = np.zeros(2, kind)
            values.setflags(write=not fixed)
            for places in (np.int64, np.int32):
                fetch.fetch(values, np.zeros(1, places))
    record = np.array([22, 0, 0, 0, 1, 4, 123, 125, 2, 2, 97, 1], np.uint8)  # value {}, one header
    _, starts, lengths, _ = records.unpack(record, 0, 1)
    records.object_lines(record, starts, lengths)
    query_sets.take_rows(sets, np.flatnonzero(query_sets.nonempty(sets)))
    query_sets.intersect_with_table(sets, sets, np.zeros(2, np.int64))


if __name__ == "__main__":
    warm_up()
