"""The partials of a fold that are open, as a task that closes windows sees them: one range of hashes, all buckets.

Buckets of older plans have other slots, and perhaps other components: a query is found in each by the slot it had
there, and what a bucket does not have of a component was needed by no query that has a bit in it. Entries lie in order
of group, then epoch, then arrival; what is combined in this order is combined in order of arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from optimizer.model.types import ColumnType
from runtime.aggregates.bucket import Partials, concat_partials, get_partials, prefix
from runtime.aggregates.components import Component
from runtime.aggregates.states import State, fold, lift
from runtime.buckets.file import Buckets
from runtime.buckets.refs import Block, PartialRef
from runtime.columns.column import NUMPY_TYPES, ColumnData
from runtime.operators.groups import groups

I64 = npt.NDArray[np.int64]


class SlotAt(NamedTuple):
    """A query's bit in buckets of this query group and plan version."""

    group: int
    version: int
    slot: int


@dataclass(frozen=True, slots=True)
class Open:
    """`numbers[i]`: the group of entry i; `first[g]`: an entry of group g. Entry i lies at `place[i]` of the buckets,
    one behind the other. `blocks`: names of buckets that are parts of blocks."""

    partials: Partials
    parts: tuple[tuple[PartialRef, Partials], ...]
    numbers: I64
    first: I64
    place: npt.NDArray[Any]
    blocks: frozenset[str] = frozenset()

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
        mine = np.concatenate(masks)[self.place] if masks else np.zeros(0, bool)
        return np.flatnonzero(mine)

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
    later than a block that begins there; what is left out here is neither put together nor sorted."""
    parts: list[tuple[PartialRef, Partials]] = []
    combined = [part for block in blocks for part in block.parts]
    names = frozenset(part.file for part in combined)
    for ref in sorted([*refs, *combined], key=_arrival):
        if ref.first_hash < end_hash and first_hash < ref.end_hash:
            file = store.open(ref.file)
            there = [c for c in components if f"{prefix(c)}0" in file.arrays]
            p = get_partials(file, there, first_hash, end_hash, ref.epoch)
            if times is not None and ref.file not in names and not _later(ref, blocks):
                p = _during(p, times)
            if len(p) or p.firsts:
                parts.append((ref, _completed(p, components)))
    if not parts:
        return None
    words = max(p.sets.words for _, p in parts)
    whole = concat_partials([p for _, p in parts], words)
    found = groups(whole.keys, whole.hashes)
    order, numbers = found.order, found.numbers
    epochs = whole.epochs[order]
    if (np.diff(epochs) < 0)[np.diff(numbers) == 0].any():
        again = np.lexsort((epochs, numbers))
        order, numbers = order[again], numbers[again]
    first = np.flatnonzero(np.diff(numbers, prepend=-1))
    return Open(whole.take(order), tuple(parts), numbers, first, order, names)


def _later(ref: PartialRef, blocks: Sequence[Block]) -> bool:
    """Can the bucket have entries of a block's time that are not in it?"""
    return any(b.epoch < ref.epoch and b.lo <= ref.max_lo and ref.min_lo < b.hi for b in blocks)


def _during(p: Partials, times: Sequence[tuple[int, int]]) -> Partials:
    if not times:
        return p.take(np.empty(0, np.int64))
    starts, ends = np.array(times, np.int64).T
    at = np.searchsorted(starts, p.lo, "right") - 1
    chosen = (at >= 0) & (p.lo < ends[np.maximum(at, 0)])
    return p if chosen.all() else p.take(np.flatnonzero(chosen))


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
