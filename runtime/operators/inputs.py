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

from optimizer.model.plan import Leaf
from runtime.buckets.file import BucketFile, Buckets
from runtime.buckets.refs import JoinedRef, SourceRef
from runtime.buckets.views import Joined, View, get_column
from runtime.columns.column import ColumnData, concat
from runtime.columns.querysets import Words, widen
from runtime.kernels.fetch import fetch

Ids = npt.NDArray[Any]


@dataclass(frozen=True)
class Directory:
    store: Buckets
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
        for b, chosen in split_by_bucket(buckets) if len(buckets) else ():
            if leaf is None:
                raw, version = self.joined_bucket(b).sets, self.joined[b].version
            else:
                view = self.sources[b].view(leaf, group)
                assert view is not None
                raw, version = self.view(b, leaf, group).sets, view.version
            at = slice(None) if chosen is None else chosen
            out[at] = widen(raw[items[at]], words) & self.alive(group, version, words)
        return out

    def rows(self, leaf: Leaf, group: int, buckets: Ids, items: Ids) -> LeafRows:
        """The rows behind (bucket, item) references of one leaf, ready to fetch columns."""
        pieces = []
        for b, chosen in split_by_bucket(buckets):
            view = self.view(b, leaf, group)
            mine = items if chosen is None else items[chosen]
            rows = mine if view.every else fetch(view.rows, mine)
            pieces.append((self.store.open(self.sources[b].file), chosen, rows))
        return LeafRows(pieces)


class LeafRows:
    """Rows of one leaf, grouped by the bucket they are in; columns come in the order of the references."""

    def __init__(self, pieces: list[tuple[BucketFile, npt.NDArray[Any] | None, npt.NDArray[Any]]]) -> None:
        self._pieces = pieces
        self._back: npt.NDArray[np.int64] | None = None
        if len(pieces) > 1:
            scattered = np.concatenate([chosen for _, chosen, _ in pieces if chosen is not None])
            self._back = np.empty(len(scattered), np.int64)
            self._back[scattered] = np.arange(len(scattered))

    def column(self, name: str) -> ColumnData:
        data = concat([get_column(file, name).take(rows) for file, _, rows in self._pieces])
        return data if self._back is None else data.take(self._back)


def all_of(bucket: int, n: int) -> Ids:
    """`n` times the same bucket, in the room of one: the common case, recognized by whoever looks at the strides."""
    return np.broadcast_to(np.int64(bucket), n)


def chosen_of(buckets: Ids, rows: npt.NDArray[Any]) -> Ids:
    """`buckets[rows]`; one bucket stays one."""
    return all_of(int(buckets[0]), len(rows)) if buckets.strides == (0,) else buckets[rows]


def joined_up(parts: list[Ids]) -> Ids:
    """One array out of several, without a copy when there is only one."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def split_by_bucket(buckets: Ids) -> list[tuple[int, npt.NDArray[Any] | None]]:
    """Each bucket that occurs with the positions where it does; None instead of all positions."""
    first = int(buckets[0])
    if buckets.strides == (0,) or (buckets == first).all():
        return [(first, None)]
    base = int(buckets.min())
    present = np.flatnonzero(np.bincount(buckets - base)) + base
    return [(int(b), np.flatnonzero(buckets == b)) for b in present]


def gather(buckets: Ids, items: npt.NDArray[Any], of: Callable[[int], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """`of(bucket)[item]` for every reference."""
    out: npt.NDArray[Any] | None = None
    for b, chosen in split_by_bucket(buckets):
        if chosen is None:
            every: npt.NDArray[Any] = of(b)[items]
            return every
        found = of(b)[items[chosen]]
        if out is None:
            out = np.empty((len(buckets), *found.shape[1:]), found.dtype)
        out[chosen] = found
    assert out is not None
    return out
