"""How tasks find buckets: a directory of everything open, with the changelog sets that say which old bits still count.

`Directory` travels with the stage: it maps bucket ids to references (of which only new ones travel, see
runtime.operators.references), and (group, plan version) to the bitset of slots
that still mean the same query. A query set read out of a bucket must be ANDed with `alive` of the bucket's
version; a slot that was given to another query since then is thereby empty in old buckets.

A task that goes on with a joined bucket of its own adds it to the directory it works with (`with_made`): nobody else
can know it yet, and it need not be opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.model.plan import Leaf
from optimizer.model.types import ColumnType
from runtime.buckets.file import BucketFile, Buckets
from runtime.buckets.refs import JoinedRef, SourceRef
from runtime.buckets.views import Joined, View, get_column, longest_text
from runtime.columns.column import ColumnData, compacted, concat, nulls
from runtime.columns.querysets import Words, widen

Ids = npt.NDArray[Any]


@dataclass(frozen=True)
class Directory:
    store: Buckets
    sources: Mapping[int, SourceRef]
    joined: Mapping[int, JoinedRef]
    alive_sets: Mapping[tuple[int, int], tuple[int, ...]]
    made: Mapping[int, BucketFile] = field(default_factory=dict)

    def with_made(self, ref: JoinedRef, file: BucketFile) -> Directory:
        return replace(self, joined={**self.joined, ref.id: ref}, made={**self.made, ref.id: file})

    def view(self, bucket: int, leaf: Leaf, group: int) -> View:
        ref = self.sources[bucket].view(leaf, group)
        assert ref is not None, f"bucket {bucket} has no view of {leaf} for group {group}"
        return View(self.store.open(ref.file), leaf, group)

    def joined_bucket(self, bucket: int) -> Joined:
        made = self.made.get(bucket)
        return Joined(self.store.open(self.joined[bucket].file) if made is None else made)

    def alive(self, group: int, version: int, words: int) -> Words:
        known = self.alive_sets[(group, version)]
        out = np.zeros(words, np.uint64)
        out[: min(words, len(known))] = known[:words]
        return out

    def sets(self, buckets: Ids, items: npt.NDArray[Any], leaf: Leaf | None, group: int, words: int) -> Words:
        """Query sets of (bucket, item) references as they are to be read now; `leaf` None for joined buckets."""
        out = np.empty((len(buckets), words), np.uint64)
        for b, positions in split_by_bucket(buckets) if len(buckets) else ():
            if leaf is None:
                sets, version = self.joined_bucket(b).sets_at, self.joined[b].version
            else:
                view = self.sources[b].view(leaf, group)
                assert view is not None
                sets, version = self.view(b, leaf, group).sets_at, view.version
            at = slice(None) if positions is None else positions
            mine = items[at]
            out[at] = widen(sets(mine)[mine], words) & self.alive(group, version, words)
        return out

    def longest_text(self, buckets: Ids, column: str) -> int:
        """In bytes, of the source buckets that occur."""
        return max(longest_text(self.store.open(self.sources[b].file), column) for b in present(buckets))

    def rows(self, leaf: Leaf, group: int, buckets: Ids, items: Ids) -> LeafRows:
        """The rows behind (bucket, item) references of one leaf, ready to fetch columns."""
        pieces = []
        for b, positions in split_by_bucket(buckets):
            view = self.view(b, leaf, group)
            mine = items if positions is None else items[positions]
            pieces.append(BucketRows(self.store.open(self.sources[b].file), positions, view.rows_at(mine)))
        return LeafRows(pieces)


class BucketRows(NamedTuple):
    """Rows of one bucket, and where they stand among all rows asked for (None: these are all)."""

    file: BucketFile
    positions: npt.NDArray[Any] | None
    rows: npt.NDArray[Any]


class LeafRows:
    """Rows of one leaf, grouped by the bucket they are in; columns come in the order of the references."""

    def __init__(self, pieces: list[BucketRows]) -> None:
        self._pieces = pieces
        self._back: npt.NDArray[np.int64] | None = None
        if len(pieces) > 1:
            scattered = np.concatenate([p.positions for p in pieces if p.positions is not None])
            self._back = np.empty(len(scattered), np.int64)
            self._back[scattered] = np.arange(len(scattered))

    def column(self, name: str, type: ColumnType | None = None) -> ColumnData:
        """With a `type`, NULL where a bucket has no such column, because it is older than who reads it: no query that
        needs the column has a bit on these rows."""
        parts = [
            nulls(type, len(p.rows))
            if type is not None and name not in p.file.meta["types"]
            else get_column(p.file, name, p.rows).take(p.rows)
            for p in self._pieces
        ]
        data = concat(parts if len(parts) == 1 else [compacted(p) for p in parts])
        return data if self._back is None else data.take(self._back)


def all_of(bucket: int, n: int) -> Ids:
    """`n` times the same bucket, stored once (an array with stride 0): the common case, which `split_by_bucket` and
    `chosen_of` recognize without reading the array."""
    return np.broadcast_to(np.int64(bucket), n)


def chosen_of(buckets: Ids, rows: npt.NDArray[Any]) -> Ids:
    """`buckets[rows]`; one bucket stays one."""
    return all_of(int(buckets[0]), len(rows)) if buckets.strides == (0,) else buckets[rows]


def joined_up(parts: list[Ids]) -> Ids:
    """One array out of several, without a copy when there is only one."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class Occurrences(NamedTuple):
    """A bucket, and the positions at which it stands; None instead of all positions."""

    bucket: int
    positions: npt.NDArray[Any] | None


def present(buckets: Ids) -> list[int]:
    """Each bucket that occurs, once; there is at least one."""
    first = int(buckets[0])
    if buckets.strides == (0,) or (buckets == first).all():
        return [first]
    base = int(buckets.min())
    found: list[int] = (np.flatnonzero(np.bincount(buckets - base)) + base).tolist()
    return found


def split_by_bucket(buckets: Ids) -> list[Occurrences]:
    """Each bucket that occurs."""
    found = present(buckets)
    return [Occurrences(b, None if len(found) == 1 else np.flatnonzero(buckets == b)) for b in found]


def gather(buckets: Ids, items: npt.NDArray[Any], of: Callable[[int], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """`of(bucket)[item]` for every reference."""
    out: npt.NDArray[Any] | None = None
    for b, positions in split_by_bucket(buckets):
        if positions is None:
            every: npt.NDArray[Any] = of(b)[items]
            return every
        values = of(b)[items[positions]]
        if out is None:
            out = np.empty((len(buckets), *values.shape[1:]), values.dtype)
        out[positions] = values
    assert out is not None
    return out
