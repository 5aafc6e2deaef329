"""Making a view of an open bucket anew: other slots, other indexes, the same tuples.

Bits are copied query by query from the views that hold them; the bucket's columns and slices stay where they are. The
new view goes into a file of its own, because buckets never change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optimizer.model.plan import Leaf
from runtime.buckets.file import Buckets
from runtime.buckets.refs import SourceRef, ViewRef
from runtime.buckets.views import Arrays, View, get_column, get_times, put_view
from runtime.columns.querysets import has
from runtime.execution.physical import IndexKey
from runtime.kernels.sets import some
from runtime.operators.keys import key_hashes


@dataclass(frozen=True, slots=True)
class ViewRebuild:
    """Make `leaf`/`group`'s view of one bucket anew: new slot <- (old view, old slot), indexed by `keys`."""

    bucket: SourceRef
    leaf: Leaf
    group: int
    words: int
    bits: tuple[tuple[int, ViewRef, int], ...]
    keys: tuple[IndexKey, ...]

    @property
    def files(self) -> set[str]:
        """Everything the task opens."""
        return {self.bucket.file} | {view.file for _, view, _ in self.bits}


@dataclass(frozen=True, slots=True)
class RebuildShared:
    store: Buckets
    version: int


def run_rebuild(shared: RebuildShared, task: ViewRebuild) -> tuple[int, ViewRef]:
    """(bucket id, the new view)."""
    store, bucket = shared.store, task.bucket
    base = store.open(bucket.file)
    sets = np.zeros((bucket.rows, task.words), np.uint64)
    for slot, ref, old_slot in task.bits:
        view = View(store.open(ref.file), ref.leaf, ref.group)
        rows = view.rows[has(view.sets, old_slot)]
        sets[rows, slot >> 6] |= np.uint64(1 << (slot & 63))
    items = np.flatnonzero(some(sets))
    keyed = []
    for key in task.keys:
        hashes, usable = key_hashes([(get_column(base, c).take(items), type) for c, type in key])
        keyed.append((key, hashes, usable))
    arrays: Arrays = {}
    put_view(arrays, task.leaf, task.group, items, sets[items], get_times(base, "slice")[items], keyed)
    file = f"b{bucket.id}-v{shared.version}-{task.leaf.occurrence}-{task.group}.bucket"
    store.write(file, {"bucket": bucket.id, "version": shared.version}, arrays)
    return bucket.id, ViewRef(task.leaf, task.group, file, shared.version, task.keys)
