"""What tasks that close windows know of a query, and what they find for it.

A query has a watermark after every epoch, which only counts where it rises; `Marks` are those that can still matter.
They tell when a window was closed, and so how often its row was delivered: nothing about single groups and windows has
to be remembered, because it follows from the epochs that entries are from.

`Windows` are rows to be made: groups and windows with the entries that are combined for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.model.plan import RunningQuery
from runtime.buckets.refs import Block, PartialRef
from runtime.execution.folding import FoldUsers
from runtime.operators.open_partials import Combined, Open, SlotAt, StandingRow

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Mark(NamedTuple):
    """The query's watermark as this epoch left it."""

    epoch: int
    watermark: int


class Marks:
    """Watermarks in order of epochs, each higher than the one before."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        self.epochs = np.array([m.epoch for m in marks], np.int64)
        self._times = np.array([m.watermark for m in marks], np.int64)

    def closing_epochs(self, times: I64) -> I64:
        """The first epoch after which the watermark was at or beyond each of these times, which it has reached."""
        return self.epochs[np.searchsorted(self._times, times, "left")]

    def before(self, epochs: I64) -> tuple[I64, Mask]:
        """The watermark before each of these epochs, and whether it is known."""
        if not len(epochs):
            return np.zeros(0, np.int64), np.zeros(0, bool)
        low, high = int(epochs.min()), int(epochs.max())
        if high - low < len(epochs) // 4:  # few epochs, many entries: each epoch is looked up once
            times, known = self.before(np.arange(low, high + 1, dtype=np.int64))
            return times[epochs - low], known[epochs - low]
        at = np.searchsorted(self.epochs, epochs, "left") - 1
        times = self._times[np.maximum(at, 0)] if len(self._times) else np.zeros(len(epochs), np.int64)
        return times, at >= 0

    def after(self, epoch: int) -> int | None:
        at = int(np.searchsorted(self.epochs, epoch, "right")) - 1
        return None if at < 0 else int(self._times[at])


class Progress(NamedTuple):
    """How far a query comes with the epoch. `marks` end with the epoch that closes, if its watermark is a higher one.
    `before`: the highest watermark of earlier epochs. `horizon`: no tuple before that time will be accepted any
    more."""

    marks: tuple[Mark, ...]
    before: int | None
    now: int | None
    horizon: int | None


@dataclass(frozen=True, slots=True)
class ClosingQuery:
    """`slot`: in the plan of the epoch; `slots`: in older buckets. `cover`: blocks that stand for the entries in them
    when windows close now."""

    query: RunningQuery
    slot: int
    slots: tuple[SlotAt, ...]
    progress: Progress
    output_class: int
    cover: tuple[Block, ...] = ()

    @property
    def marks(self) -> tuple[Mark, ...]:
        return self.progress.marks

    @property
    def before(self) -> int | None:
        return self.progress.before

    @property
    def now(self) -> int | None:
        return self.progress.now

    @property
    def horizon(self) -> int | None:
        return self.progress.horizon


class SlotsAt(NamedTuple):
    """The bits of a fold's queries in buckets of this query group and plan version; -1: it was not there."""

    group: int
    version: int
    slots: tuple[int, ...]


class NewBlock(NamedTuple):
    """A block of [lo, hi) for queries of the fold, by number, made of what is there: for each, the blocks that stand
    for entries."""

    name: str
    lo: int
    hi: int
    queries: tuple[tuple[int, tuple[Block, ...]], ...]


@dataclass(frozen=True, slots=True)
class ClosingFold:
    """What an epoch adds to fold number `number` of the plan: how far its queries come (`progress[which[i]]` is that of
    query i), their bits in older buckets, and the open buckets any of them has entries in. `carry`: what is still
    needed goes into one bucket per task, which replaces them. `blocks`: those that anybody uses now, `covers`: who uses
    which (queries by number); `make`: those to be made. `times`: entries that begin outside of these intervals are in
    blocks or not needed, except for entries that are later than a block; None: all are needed."""

    number: int
    progress: tuple[Progress, ...]
    which: tuple[int, ...]
    slots: tuple[SlotsAt, ...]
    refs: tuple[PartialRef, ...]
    carry: bool
    blocks: tuple[Block, ...] = ()
    covers: tuple[tuple[int, tuple[Block, ...]], ...] = ()
    make: tuple[NewBlock, ...] = ()
    times: tuple[tuple[int, int], ...] | None = None

    def queries(self, users: FoldUsers) -> list[ClosingQuery]:
        covers = dict(self.covers)
        return [
            ClosingQuery(
                q.query,
                q.slot,
                tuple(SlotAt(at.group, at.version, at.slots[i]) for at in self.slots if at.slots[i] >= 0),
                self.progress[self.which[i]],
                q.output_class,
                covers.get(i, ()),
            )
            for i, q in enumerate(users.queries)
        ]


class Windows(NamedTuple):
    """Rows to be made: row i is of group `groups[i]` and combines entries order[offsets[i]:offsets[i + 1]], or, where
    `combined` knows it already, is what that says."""

    groups: I64
    starts: I64
    ends: I64
    revisions: I64
    order: npt.NDArray[Any]
    offsets: I64
    combined: Combined | None = None

    def take(self, rows: npt.NDArray[Any]) -> Windows:
        whole = self.combined
        if whole is not None:
            return Windows(
                self.groups[rows], self.starts[rows], self.ends[rows], self.revisions[rows], self.order, self.offsets,
                cache(lambda component: whole(component).take(rows)),
            )  # fmt: skip
        sizes = np.diff(self.offsets)[rows]
        offsets = offsets_of(sizes)
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][rows] - offsets[:-1], sizes)
        return Windows(
            self.groups[rows], self.starts[rows], self.ends[rows], self.revisions[rows], self.order[places], offsets
        )


Having = Callable[[Windows], Mask]
"""For which of these rows HAVING is TRUE."""

Closed = Iterator[Windows]


class Replayed(NamedTuple):
    """Of one group: rows that this epoch delivers, and all that stand after it."""

    rows: list[StandingRow]
    standing: list[StandingRow]


def offsets_of(sizes: npt.NDArray[Any]) -> I64:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def late_groups(lo: I64, epochs: I64, numbers: I64, marks: Marks) -> I64:
    """Groups with an entry that came behind the watermark: only there can what was delivered have changed."""
    before, known = marks.before(epochs)
    return np.unique(numbers[known & (lo < before)])


def replayed_epochs(open: Open, epochs: I64, marks: Marks, epoch: int) -> Iterator[tuple[int, int]]:
    """The epochs that a replay of entries from `epochs` goes through, each with the watermark that it left. It begins
    with the epoch that carried what is open, if there was one: what stands is what that one left, not one before it."""
    carried = max((ref.epoch for ref, _ in open.parts if ref.carried), default=0)
    every = np.concatenate([epochs, marks.epochs, [epoch]])
    for then in np.unique(np.maximum(every, carried)).tolist():
        mark = marks.after(then)
        if mark is not None and then <= epoch:
            yield then, mark


def window_rows(rows: Sequence[StandingRow]) -> Windows:
    table = np.array([r[:4] for r in rows], np.int64).reshape(-1, 4)
    order = np.array([i for r in rows for i in r[4]], np.int32)
    return Windows(
        table[:, 0], table[:, 1], table[:, 2], table[:, 3], order, offsets_of(np.array([len(r[4]) for r in rows], int))
    )
