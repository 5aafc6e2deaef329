"""References: what the driver remembers of a bucket and what travels between tasks instead of the bucket itself.

A bucket id is a small integer, unique for ever, handed out by the coordinator before the task runs. Row references
inside joined buckets are (bucket id, item), so they mean the same in every process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from optimizer.model.plan import Leaf
from optimizer.model.types import ColumnType
from runtime.connectors.position import Position

IndexKey = tuple[tuple[str, ColumnType], ...]
"""Columns of one source view, in the order in which they are hashed."""

OutputKey = tuple[tuple[Leaf, str, ColumnType], ...]
"""The same for a joined bucket, whose columns come from several leaves."""


@dataclass(frozen=True, slots=True)
class ViewRef:
    """One query group's view of a source bucket: where it is, under which plan version its bits were set, its
    indexes.
    """

    leaf: Leaf
    group: int
    file: str
    version: int
    keys: tuple[IndexKey, ...]


class Ahead(NamedTuple):
    """What decides whether a tuple is too far ahead (runtime.operators.ahead), as it was when the epoch was planned.

    `accept_until`: the clock of the epoch plus the stream's `max_ahead_ms`. Only where the stream has `max_jump_ms`:
    `stood`, the greatest event time accepted before the epoch, and `refused`, how many tuples have been refused for
    their jump since the last epoch that accepted any.
    """

    accept_until: int | None = None
    stood: int | None = None
    refused: int = 0


UNBOUNDED = Ahead()


class Skip(NamedTuple):
    """Tuples of a read that no task may meet, because they kill it: rows [first, end) of what the read brings, counted
    before anything else is left out; without an end, the whole read, which is not even loaded."""

    first: int
    end: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a source bucket's tuples came from, so that they can be read once more if its files are lost.

    The epoch's range of offsets on that stream, the number of the read within the range, the event time from which
    tuples were accepted, and what decided which were too far `ahead`. `tuples` and `times`: how many were accepted and
    the checksum of their event times; a source that brings something else no longer has them. `queries`: whose bits the
    bucket holds, if sharing is off and every group has buckets of its own; None: everybody's.
    `skipped`: tuples that were left out.
    """

    start: Position
    end: Position
    read: int
    accept_from: int | None
    queries: tuple[str, ...] | None = None
    tuples: int = 0
    times: int = 0
    ahead: Ahead = UNBOUNDED
    skipped: tuple[Skip, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceRef:
    """A source bucket: the tuples of one read of one epoch that some query wants. Slices are event times."""

    id: int
    stream: str
    epoch: int
    file: str
    rows: int
    bytes: int
    min_slice: int
    max_slice: int
    views: tuple[ViewRef, ...]
    origin: Origin

    @property
    def files(self) -> frozenset[str]:
        """Its own file and those of views that were made anew."""
        return frozenset((self.file, *(v.file for v in self.views)))

    def view(self, leaf: Leaf, group: int) -> ViewRef | None:
        return next((v for v in self.views if v.leaf == leaf and v.group == group), None)


@dataclass(frozen=True, slots=True)
class JoinedRef:
    """A joined bucket: output `key` of join `node`. Items span slices [lo, hi]; `max_lo` decides when it can go."""

    id: int
    node: str
    key: OutputKey
    group: int
    epoch: int
    version: int
    file: str
    items: int
    bytes: int
    max_lo: int
    min_hi: int
    exposed: tuple[Leaf, ...]

    @property
    def files(self) -> frozenset[str]:
        return frozenset((self.file,))


@dataclass(frozen=True, slots=True)
class PartialRef:
    """A partial bucket of a fold (runtime.execution.folding), made by one query group under one plan version. Entries
    have hashes in [first_hash, end_hash) and begin, like its edges, at event times from `min_lo` to `max_lo`.

    `stream` and `origin`: what it was folded from, so that it can be folded again; None: from the rows of a join, or
    `carried`: several buckets put together, whose entries know their epochs. `resumed`: the query whose postponed work
    the rows come from; they are of an earlier epoch, but were folded in this one.
    """

    file: str
    fold: str
    group: int
    version: int
    epoch: int
    entries: int
    bytes: int
    min_lo: int
    max_lo: int
    first_hash: int
    end_hash: int
    stream: str | None = None
    origin: Origin | None = None
    carried: bool = False
    resumed: str = ""

    @property
    def files(self) -> frozenset[str]:
        return frozenset((self.file,))


@dataclass(frozen=True, slots=True)
class Block:
    """What epochs up to `epoch` brought of [lo, hi) for these queries, combined into one entry per group and query set
    (runtime.execution.blocks). `parts`: one bucket per range of hashes that has anything."""

    name: str
    fold: str
    lo: int
    hi: int
    epoch: int
    uids: tuple[str, ...]
    parts: tuple[PartialRef, ...]

    @property
    def files(self) -> frozenset[str]:
        return frozenset(part.file for part in self.parts)


BucketRef = SourceRef | JoinedRef
