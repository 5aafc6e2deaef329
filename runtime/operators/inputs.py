"""How tasks find buckets: a directory of everything open, with the changelog sets that keep old bits honest.

`Directory` travels with the stage: it maps bucket ids to references, and (group, plan version) to the bitset of slots
that still mean the same query. Whoever reads a query set out of a bucket must AND it with `alive` of the bucket's
version; a slot that was given to another query since then is thereby empty in old buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optimizer.plan import Leaf
from runtime.buckets.file import BucketStore
from runtime.buckets.refs import JoinedRef, SourceRef
from runtime.buckets.views import Joined, View, get_column
from runtime.columns import ColumnData, concat
from runtime.querysets import Words, widen

Ids = npt.NDArray[Any]


@dataclass(frozen=True)
class Directory:
    store: BucketStore
    sources: Mapping[int, SourceRef]
    joined: Mapping[int, JoinedRef]
    alive_sets: Mapping[tuple[int, int], tuple[int, ...]]

    def view(self, bucket: int, leaf: Leaf, group: int) -> View:
        ref = self.sources[bucket].view(leaf, group)
        assert ref is not None, f"bucket {bucket} has no view of {leaf} for group {group}"
        return View(self.store.open(ref.file), leaf, group)

    def joined_bucket(self, bucket: int) -> Joined:
        return Joined(self.store.open(self.joined[bucket].file))

    def alive(self, group: int, version: int, words: int) -> Words:
        known = self.alive_sets[(group, version)]
        out = np.zeros(words, np.uint64)
        out[: min(words, len(known))] = known[:words]
        return out

    def sets(self, buckets: Ids, items: npt.NDArray[Any], leaf: Leaf | None, group: int, words: int) -> Words:
        """Query sets of (bucket, item) references as they are to be read now; `leaf` None for joined buckets."""
        out = np.empty((len(buckets), words), np.uint64)
        for b in np.unique(buckets):
            chosen = buckets == b
            if leaf is None:
                raw, version = self.joined_bucket(int(b)).sets, self.joined[int(b)].version
            else:
                view = self.sources[int(b)].view(leaf, group)
                assert view is not None
                raw, version = self.view(int(b), leaf, group).sets, view.version
            out[chosen] = widen(raw[items[chosen]], words) & self.alive(group, version, words)
        return out

    def column(self, leaf: Leaf, group: int, name: str, buckets: Ids, items: Ids) -> ColumnData:
        """Values of one column for (bucket, item) references of one leaf, in their order."""

        def one(bucket: int, chosen: npt.NDArray[Any]) -> ColumnData:
            rows = self.view(bucket, leaf, group).rows[chosen]
            return get_column(self.store.open(self.sources[bucket].file), name).take(rows)

        return gather_columns(buckets, items, one)


def gather_columns(
    buckets: Ids, items: Ids, one: Callable[[int, npt.NDArray[Any]], ColumnData]
) -> ColumnData:
    present = np.unique(buckets)
    if len(present) <= 1:
        return one(int(present[0]), items)
    by_bucket = np.argsort(buckets, kind="stable")
    bounds = np.searchsorted(buckets[by_bucket], present)
    parts = [one(int(b), items[part]) for b, part in zip(present, np.split(by_bucket, bounds[1:]), strict=True)]
    back = np.empty(len(by_bucket), np.int64)
    back[by_bucket] = np.arange(len(by_bucket))
    return concat(parts).take(back)


def gather(buckets: Ids, items: npt.NDArray[Any], of: Callable[[int], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """`of(bucket)[item]` for every reference."""
    present = np.unique(buckets)
    if len(present) == 1:
        return of(int(present[0]))[items]
    out: npt.NDArray[Any] | None = None
    for b in present:
        chosen = buckets == b
        found = of(int(b))[items[chosen]]
        if out is None:
            out = np.empty((len(buckets), *found.shape[1:]), found.dtype)
        out[chosen] = found
    assert out is not None
    return out
