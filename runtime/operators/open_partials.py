"""The partials of a fold that are open, as a task that closes windows sees them: one range of hashes, all buckets.

Buckets of older plans have other slots, and perhaps other components: a query is found in each by the slot it had
there, and what a bucket does not have of a component was needed by no query that has a bit in it. Entries have numbers
in order of group, then epoch, then arrival; what is combined in this order is combined in order of arrival.

Only what is looked at is brought into that order. Buckets are put one behind the other as they are; times, epochs and
sets are fetched in order when somebody asks for them, and partials are combined straight from where they lie. To sort
all arrays first took longer than to make the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from optimizer.model.types import ColumnType
from runtime.aggregates.bucket import Partials, concat_partials, get_partials, prefix
from runtime.aggregates.components import Component
from runtime.aggregates.states import State, fold, lift
from runtime.buckets.file import Buckets
from runtime.buckets.refs import Block, PartialRef
from runtime.columns.coded_sets import CodedSets
from runtime.columns.column import NUMPY_TYPES, ColumnData
from runtime.kernels.fetch import fetch
from runtime.operators.groups import groups

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
Combined = Callable[[Component], State]
"""The partials of rows, one each."""

FEW = 4
"""Intervals that are looked at one after the other."""

MOSTLY = 2
"""If more than one in so many entries is needed, the others stay where they are; else the needed ones are copied."""


class SlotAt(NamedTuple):
    """A query's bit in buckets of this query group and plan version."""

    group: int
    version: int
    slot: int


class Open:
    """`numbers[i]`: the group of entry i; `first[g]`: an entry of group g. Entry i lies at `place[i]` of the buckets,
    one behind the other (`stored`). `blocks`: names of buckets that are parts of blocks."""

    def __init__(
        self,
        stored: Partials,
        parts: tuple[tuple[PartialRef, Partials], ...],
        numbers: I64,
        place: I32,
        blocks: frozenset[str] = frozenset(),
    ) -> None:
        self.stored, self.parts, self.numbers, self.place, self.blocks = stored, parts, numbers, place, blocks
        self.first = np.flatnonzero(np.diff(numbers, prepend=-1))
        self._ordered: dict[Component, State] = {}

    @cached_property
    def partials(self) -> Partials:
        """All of it in order."""
        return self.stored.take(self.place)

    @cached_property
    def lo(self) -> I64:
        lo: I64 = fetch(self.stored.lo, self.place)
        return lo

    @cached_property
    def hi(self) -> I64:
        """The same array as `lo` where every entry is of one time or slice."""
        return self.lo if self.stored.hi is self.stored.lo else fetch(self.stored.hi, self.place)

    @cached_property
    def epochs(self) -> I64:
        epochs: I64 = fetch(self.stored.epochs, self.place)
        return epochs

    @cached_property
    def sets(self) -> CodedSets:
        return CodedSets(self.stored.sets.table, fetch(self.stored.sets.codes, self.place))

    def key(self, index: int, groups: I64) -> ColumnData:
        """A key column of these groups."""
        return self.stored.keys[index].take(fetch(self.place, self.first[groups]))

    def combining(self, order: I32, offsets: I64) -> Combined:
        """One partial per component for every run of entries order[offsets[i]:offsets[i + 1]]."""
        if len(order) > len(self.place):
            return cache(lambda component: fold(component, self._in_order(component), order, offsets))
        places = fetch(self.place, order)
        return cache(lambda component: fold(component, self.stored.states[component], places, offsets))

    def _in_order(self, component: Component) -> State:
        if component not in self._ordered:
            self._ordered[component] = self.stored.states[component].take(self.place)
        return self._ordered[component]

    def of(self, slots: Sequence[SlotAt], instead: Sequence[Block] = ()) -> npt.NDArray[np.int64]:
        """The entries of a query, in their order; these blocks (which do not overlap) instead of what is in them."""
        known = {(s.group, s.version): s.slot for s in slots}
        chosen = {file for block in instead for file in block.files}
        masks: list[npt.NDArray[np.bool_]] = []
        for ref, p in self.parts:
            slot = known.get((ref.group, ref.version))
            if slot is None or (ref.file in self.blocks and ref.file not in chosen):
                masks.append(np.zeros(len(p), bool))
            elif ref.file in chosen or not instead:
                masks.append(p.sets.has(slot))
            else:
                masks.append(p.sets.has(slot) & ~_within(p, instead))
        mine = np.concatenate(masks) if masks else np.zeros(0, bool)
        return np.arange(len(self.place)) if mine.all() else np.flatnonzero(fetch(mine, self.place))

    def standing(self, slots: Sequence[SlotAt]) -> list[StandingRow]:
        """What carried buckets say was delivered to a query and may still be revised."""
        known = {(s.group, s.version): s.slot for s in slots}
        out: list[StandingRow] = []
        number = np.empty(len(self.place), np.int64)
        number[self.place] = np.arange(len(self.place))
        base = 0
        for ref, p in self.parts:
            slot = known.get((ref.group, ref.version))
            if slot is not None and slot in p.standing:
                table, entries = p.standing[slot]
                ends = np.cumsum(table[3])
                for (start, end, revision, size), until in zip(table.T.tolist(), ends.tolist(), strict=True):
                    mine = number[base + entries[until - size : until]]
                    out.append(StandingRow(int(self.numbers[mine[0]]), start, end, revision, tuple(mine.tolist())))
            base += len(p)
        return out

    def edges(self, slots: Sequence[SlotAt]) -> tuple[I64, I64]:
        """(edges, first tuples) of a query with punctuated windows, each as (time, epoch) pairs in two rows."""
        known = {(s.group, s.version): s.slot for s in slots}
        edges, firsts = [np.empty((2, 0), np.int64)], [np.empty((2, 0), np.int64)]
        for ref, p in self.parts:
            slot = known.get((ref.group, ref.version))
            if slot is not None and slot in p.firsts:
                edges.append(p.edges[slot])
                firsts.append(p.firsts[slot])
        return np.concatenate(edges, axis=1), np.concatenate(firsts, axis=1)


def _within(p: Partials, blocks: Sequence[Block]) -> npt.NDArray[np.bool_]:
    """Which entries these blocks hold."""
    table = np.array(sorted((b.lo, b.hi, b.epoch) for b in blocks), np.int64)
    at = np.searchsorted(table[:, 0], p.lo, "right") - 1
    _, hi, epoch = table[np.maximum(at, 0)].T
    within: npt.NDArray[np.bool_] = (at >= 0) & (p.lo < hi) & (p.epochs <= epoch)
    return within


class StandingRow(NamedTuple):
    """A row that was delivered for a group and window, of these entries (by number)."""

    group: int
    start: int
    end: int
    revision: int
    entries: tuple[int, ...]


def open_partials(
    store: Buckets,
    refs: Sequence[PartialRef],
    components: Sequence[Component],
    first_hash: int,
    end_hash: int,
    blocks: Sequence[Block] = (),
    times: Sequence[tuple[int, int]] | None = None,
) -> Open | None:
    """None: there is nothing in this range. `times`: intervals outside of which entries are not needed, unless they are
    later than a block that begins there."""
    parts: list[tuple[PartialRef, Partials]] = []
    needed: list[npt.NDArray[np.bool_] | None] = []
    combined = [part for block in blocks for part in block.parts]
    names = frozenset(part.file for part in combined)
    for ref in sorted([*refs, *combined], key=_arrival):
        if ref.first_hash < end_hash and first_hash < ref.end_hash:
            file = store.open(ref.file)
            there = [c for c in components if f"{prefix(c)}0" in file.arrays]
            p = get_partials(file, there, first_hash, end_hash, ref.epoch)
            chosen = None
            if times is not None and ref.file not in names and not _later(ref, blocks):
                chosen = _during(p, times)
                if MOSTLY * int(chosen.sum()) <= len(p):
                    p, chosen = p.take(np.flatnonzero(chosen)), None
            if len(p) or p.firsts:
                parts.append((ref, _completed(p, components)))
                needed.append(None if chosen is None or chosen.all() else chosen)
    if not parts:
        return None
    words = max(p.sets.words for _, p in parts)
    stored = concat_partials([p for _, p in parts], words)
    found = groups(stored.keys, stored.hashes)
    order, numbers = found.order.astype(np.int32), found.numbers
    if any(n is not None for n in needed):
        masks = [np.ones(len(p), bool) if n is None else n for n, (_, p) in zip(needed, parts, strict=True)]
        kept = np.flatnonzero(fetch(np.concatenate(masks), order))
        order, numbers = order[kept], numbers[kept]
        numbers = np.cumsum(np.diff(numbers, prepend=numbers[:1]) != 0)
    if any(p.epochs.min(initial=ref.epoch) < ref.epoch for ref, p in parts):  # else buckets are in order of epochs
        epochs = fetch(stored.epochs, order)
        if (np.diff(epochs) < 0)[np.diff(numbers) == 0].any():
            again = np.lexsort((epochs, numbers))
            order, numbers = order[again], numbers[again]
    return Open(stored, tuple(parts), numbers, order, names)


def _later(ref: PartialRef, blocks: Sequence[Block]) -> bool:
    """Can the bucket have entries of a block's time that are not in it?"""
    return any(b.epoch < ref.epoch and b.lo <= ref.max_lo and ref.min_lo < b.hi for b in blocks)


def _during(p: Partials, times: Sequence[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    chosen = np.zeros(len(p), bool)
    if len(times) <= FEW:
        for start, end in times:
            chosen |= (p.lo >= start) & (p.lo < end)
        return chosen
    starts, ends = np.array(times, np.int64).T
    at = np.searchsorted(starts, p.lo, "right") - 1
    chosen |= (at >= 0) & (p.lo < ends[np.maximum(at, 0)])
    return chosen


def _arrival(ref: PartialRef) -> tuple[int, bool, int, str]:
    """Buckets of an epoch in the order of its reads, whatever their names: one may have been folded again."""
    return ref.epoch, not ref.carried, 0 if ref.origin is None else ref.origin.read, ref.file


def _completed(partials: Partials, components: Sequence[Component]) -> Partials:
    states: dict[Component, State] = {}
    for c in components:
        state = partials.states.get(c)
        states[c] = nothing(c, len(partials)) if state is None else state
    return Partials(
        partials.hashes, partials.lo, partials.hi, partials.sets, partials.epochs, partials.weights, partials.keys,
        states, partials.edges, partials.firsts, partials.standing,
    )  # fmt: skip


def nothing(component: Component, entries: int) -> State:
    """Entries over no value."""
    empty = tuple(ColumnData(t, np.empty(0, NUMPY_TYPES[t]), None, _texts(t)) for t in component.types)
    lifted = lift(component, empty, None, np.empty(0, np.int64))
    return fold(component, lifted, np.empty(0, np.int32), np.zeros(entries + 1, np.int64))


def _texts(type: ColumnType) -> pa.StringArray | None:
    return pa.array([], pa.string()) if type is ColumnType.STRING else None
