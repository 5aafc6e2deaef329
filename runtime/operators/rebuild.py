"""Making a view of an open bucket anew: other slots, other indexes, the same tuples.

Bits are copied query by query from the views that hold them; the bucket's columns and slices stay where they are. The
new view goes into a file of its own, because buckets never change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from optimizer.model.plan import Leaf
from runtime.buckets.file import Buckets
from runtime.buckets.indexes import Arrays, get_times
from runtime.buckets.refs import IndexKey, SourceRef, ViewRef
from runtime.buckets.views import KeyedItems, View, get_column, put_view
from runtime.columns.querysets import add_slot, has
from runtime.kernels.sets import nonempty
from runtime.operators.keys import key_hashes


class BitSource(NamedTuple):
    """A query's new slot, and where its bit is now."""

    slot: int
    view: ViewRef
    old_slot: int


class RebuiltView(NamedTuple):
    bucket: int
    view: ViewRef


@dataclass(frozen=True, slots=True)
class ViewRebuild:
    """Make `leaf`/`group`'s view of one bucket anew from `bits` of older views, indexed by `keys`."""

    bucket: SourceRef
    leaf: Leaf
    group: int
    words: int
    bits: tuple[BitSource, ...]
    keys: tuple[IndexKey, ...]


@dataclass(frozen=True, slots=True)
class RebuildShared:
    """`mark`: in the names of the files, unlike that of any other rebuild."""

    store: Buckets
    version: int
    mark: str


def run_rebuild(shared: RebuildShared, task: ViewRebuild) -> RebuiltView:
    store, bucket = shared.store, task.bucket
    base = store.open(bucket.file)
    sets = np.zeros((bucket.rows, task.words), np.uint64)
    for slot, ref, old_slot in task.bits:
        view = View(store.open(ref.file), ref.leaf, ref.group)
        add_slot(sets, view.rows[has(view.sets, old_slot)], slot)
    items = np.flatnonzero(nonempty(sets))
    indexes = [
        KeyedItems(key, *key_hashes([(get_column(base, c).take(items), type) for c, type in key])) for key in task.keys
    ]
    arrays: Arrays = {}
    put_view(arrays, task.leaf, task.group, items, sets[items], get_times(base, "slice")[items], indexes)
    name = f"b{bucket.id}-{shared.mark}-{task.leaf.occurrence}-{task.group}.bucket"
    meta = {"stream": bucket.stream, "epoch": bucket.epoch, "version": shared.version}
    written = store.write(name, meta, arrays)
    return RebuiltView(bucket.id, ViewRef(task.leaf, task.group, written.file, shared.version, task.keys))
