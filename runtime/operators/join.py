"""The join operator: every new bucket meets every bucket of the other side that shares a window with it, once.

With old and new buckets on both sides, the pairs are new x old, old x new, new x new; old x old was done when the
later of the two was new. So a result appears in the epoch in which its last tuple arrived, and never again. When a
plan change needs joined state that does not exist yet, the same operator runs with all buckets marked new and no
sink: it rebuilds what the new plan would have built, and delivers nothing.

A task owns a range of key hashes (a partition), which is a contiguous piece of every index. If the partition is split
k ways, the left side's positions are dealt out in k pieces and the right side is read by all: the join distributes
over union.

Matches go two ways: into joined buckets for the joins above (lists stay closed where they can), and to the sink for
queries that end here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime.buckets.refs import JoinedRef
from runtime.buckets.views import Arrays, put_index
from runtime.columns.querysets import Words, bitset, widen
from runtime.execution.packed import Packed
from runtime.execution.physical import JoinSpec, OutputKey, OutputSpec, SideSpec
from runtime.kernels import csr
from runtime.kernels.expand import carry
from runtime.kernels.intersect import intersect
from runtime.operators.count import Tally
from runtime.operators.inputs import Directory, split_by_bucket
from runtime.operators.keys import key_hashes
from runtime.operators.matches import Match, Side, combinations, laid_out, pieces
from runtime.operators.sink import Sinks
from runtime.results.segment import Delivered, SegmentWriter
from runtime.windows.registry import JoinWindows

END = np.int64(np.iinfo(np.int32).max)


@dataclass(frozen=True, slots=True)
class JoinInputs:
    """Buckets of both sides of one join: (bucket id, is it new)."""

    left: tuple[tuple[int, bool], ...]
    right: tuple[tuple[int, bool], ...]


@dataclass(frozen=True)
class JoinShared:
    """What all tasks of one level share. `joins`: all joins of the plan by name (to open nested lists at the sink)."""

    directory: Directory
    version: int
    epoch: int
    level: tuple[str, ...]
    joins: Packed[Mapping[str, JoinSpec]]
    inputs: Mapping[str, JoinInputs]
    emit: bool
    results: str | None
    """Where segments go; None: back with the report."""
    floors: tuple[tuple[int, int, int], ...] = ()
    """(group, slot, time) when state is rebuilt: combinations before that time are in closed windows only, and the
    buckets some of them refer to are gone."""


@dataclass(frozen=True, slots=True)
class JoinTask:
    partition: int
    way: int
    ways: int
    first_hash: int
    end_hash: int
    segment: str
    buckets: tuple[tuple[str, OutputKey, int], ...]
    """(join, output key, id of the bucket to write)"""


@dataclass(frozen=True, slots=True)
class JoinReport:
    partition: int
    joined: tuple[JoinedRef, ...]
    delivered: Delivered | None
    join_seconds: float
    sink_seconds: float
    matches: Mapping[str, int] = field(default_factory=dict)
    """Combinations found per join (closed lists count with the number of their items)."""
    counts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """COUNT(*) queries: combinations found per query and start of window."""


def run_join(shared: JoinShared, task: JoinTask) -> JoinReport:
    began = time.perf_counter()
    ids = {(node, key): bucket for node, key, bucket in task.buckets}
    writer, tally = SegmentWriter(shared.results, task.segment), Tally()
    sink_seconds = 0.0
    refs: list[JoinedRef] = []
    matches: dict[str, int] = {}
    joins = shared.joins.value
    for spec in (joins[name] for name in shared.level):
        outputs = [_Output(shared, spec, o, ids[(spec.name, o.key)]) for o in spec.outputs if (spec.name, o.key) in ids]
        sink = Sinks(shared.directory, joins, spec, writer, tally) if shared.emit and spec.sinks else None
        total = 0
        for match in _matches(shared, spec, task):
            total += combinations(match)
            for output in outputs:
                output.add(match)
            if sink is not None:
                at = time.perf_counter()
                sink.add(match)
                sink_seconds += time.perf_counter() - at
        if sink is not None:
            at = time.perf_counter()
            sink.flush()
            sink_seconds += time.perf_counter() - at
        matches[spec.name] = total
        refs += [ref for output in outputs if (ref := output.finish()) is not None]
    delivered = writer.finish()
    seconds = time.perf_counter() - began - sink_seconds
    return JoinReport(task.partition, tuple(refs), delivered, seconds, sink_seconds, matches, tally.counts)


def _matches(shared: JoinShared, spec: JoinSpec, task: JoinTask) -> Iterator[Match]:
    users = bitset(spec.users, spec.words)
    windows = JoinWindows(spec.shapes, spec.words)
    for l, partners in _meetings(shared, spec, task):
        l_from, l_to, first, end = _deal(l, task)
        if first >= end:
            continue
        for r in partners:
            if windows.apart(min(l.max_lo, r.max_lo), max(l.min_hi, r.min_hi)):
                continue  # even the closest slices of the two buckets share no window
            words = min(l.sets.shape[1], r.sets.shape[1], spec.words)
            alive = (l.alive & r.alive & users)[:words]
            if not alive.any():
                continue
            le, re, sets = intersect(
                l.index.hashes, l.index.lo, l.index.hi, l.index.query_sets, first, end,
                r.index.hashes, r.index.lo, r.index.hi, r.index.query_sets, r.first, r.end,
                alive, windows.sizes, windows.advances, windows.sets,
            )  # fmt: skip
            if not len(le):
                continue
            first_slice = np.minimum(l.index.lo[le], r.index.lo[re])
            last_slice = np.maximum(l.index.hi[le], r.index.hi[re])
            match = Match(l, r, l_from, l_to, le, re, sets, first_slice, last_slice)
            for group, slot, floor in shared.floors:
                if group == spec.group and slot >> 6 < words:
                    sets[first_slice < floor, slot >> 6] &= ~np.uint64(1 << (slot & 63))
            alive_match = match.only(users) if shared.floors else match
            if alive_match is not None:
                yield alive_match


def _meetings(shared: JoinShared, spec: JoinSpec, task: JoinTask) -> Iterator[tuple[Side, Sequence[Side]]]:
    """Left buckets with right ones that they have not met. An old bucket is opened once and let go before the next
    one, because all of them together may be larger than memory."""
    inputs = shared.inputs[spec.name]

    def opened(side: SideSpec, buckets: Iterable[tuple[int, bool]], new: bool) -> Iterator[Side]:
        for bucket, is_new in buckets:
            if is_new == new and (s := _open(shared, side, spec.words, bucket, new, task)) is not None:
                yield s

    left = list(opened(spec.left, inputs.left, True))
    right = list(opened(spec.right, inputs.right, True))
    for l in left:
        yield l, right
    if left:
        for r in opened(spec.right, inputs.right, False):
            for l in left:
                yield l, (r,)
    if right:
        for l in opened(spec.left, inputs.left, False):
            yield l, right


def _open(shared: JoinShared, side: SideSpec, words: int, bucket: int, new: bool, task: JoinTask) -> Side | None:
    d, within = shared.directory, (task.first_hash, task.end_hash)
    if side.child is None:
        ref = d.sources[bucket].view(side.leaves[0], side.group)
        assert ref is not None
        view = d.view(bucket, side.leaves[0], side.group)
        index, sets, version = view.index(side.index_key, within), view.sets, ref.version
        bounds = d.sources[bucket].max_slice, d.sources[bucket].min_slice
    else:
        joined = d.joined_bucket(bucket)
        index, sets, version = joined.index(within), joined.sets, d.joined[bucket].version
        bounds = d.joined[bucket].max_lo, d.joined[bucket].min_hi
    first, end = index.range(*within)
    if first >= end:
        return None
    return Side(bucket, new, index, sets, d.alive(side.group, version, words), first, end, *bounds)


def _deal(side: Side, task: JoinTask) -> tuple[int, int, int, int]:
    """This way's share of the left side: positions [from, to) and the entries that touch them."""
    offsets = side.index.offsets
    begin, stop = int(offsets[side.first]), int(offsets[side.end])
    if task.ways == 1:
        return begin, stop, side.first, side.end
    span = stop - begin
    l_from, l_to = begin + span * task.way // task.ways, begin + span * (task.way + 1) // task.ways
    if l_from >= l_to:
        return l_from, l_to, 0, 0
    first = int(np.searchsorted(offsets, l_from, "right")) - 1
    end = int(np.searchsorted(offsets, l_to, "left"))
    return l_from, l_to, max(first, side.first), min(end, side.end)


class _Output:
    """Collects one re-indexed result of a join and writes it as a joined bucket."""

    def __init__(self, shared: JoinShared, spec: JoinSpec, output: OutputSpec, bucket: int) -> None:
        self.shared, self.spec, self.output, self.bucket = shared, spec, output, bucket
        self.slots = bitset(output.users, spec.words)
        exposed = set(output.exposed)
        self.flat = not (exposed <= set(spec.left.leaves) or exposed <= set(spec.right.leaves))
        self.carrier_left = self.flat or exposed <= set(spec.left.leaves)
        self._parts: list[tuple[npt.NDArray[Any], ...]] = []

    def add(self, match: Match) -> None:
        chosen = match.only(self.slots)
        if chosen is None:
            return
        l, r = match.left, match.right
        if self.flat:
            for part, l_from, l_to, capacity in pieces(chosen):
                p, items, partners, position, sets = laid_out(chosen, part, l_from, l_to, capacity)
                self._keep(chosen, l, r, p + part.start, items, position, position + 1, sets, partners)
        elif self.carrier_left:
            p, items, sets = carry(
                chosen.l_entries,
                chosen.sets,
                l.index.order,
                l.index.offsets,
                l.sets,
                match.l_from,
                match.l_to,
            )
            entries = chosen.r_entries[p]
            begin, end = r.index.offsets[entries], r.index.offsets[entries + 1]
            self._keep(chosen, l, r, p, items, begin, end, sets, items)
        else:
            p, items, sets = carry(chosen.r_entries, chosen.sets, r.index.order, r.index.offsets, r.sets, 0, END)
            entries = chosen.l_entries[p]
            begin = np.maximum(l.index.offsets[entries], match.l_from)
            end = np.minimum(l.index.offsets[entries + 1], match.l_to)
            self._keep(chosen, r, l, p, items, begin, end, sets, items)

    def _keep(
        self,
        match: Match,
        carrier: Side,
        partner: Side,
        p: npt.NDArray[Any],
        items: npt.NDArray[Any],
        begin: npt.NDArray[Any],
        end: npt.NDArray[Any],
        sets: Words,
        partners: npt.NDArray[Any],
    ) -> None:
        n = len(p)
        if n:
            self._parts.append((
                np.full(n, carrier.bucket, np.int64), items, np.full(n, partner.bucket, np.int64),
                begin.astype(np.int32), end.astype(np.int32), match.lo[p], match.hi[p],
                widen(sets, self.spec.words), partners,
            ))  # fmt: skip

    def finish(self) -> JoinedRef | None:
        if not self._parts:
            return None
        cb, ci, pb, pf, pt, lo, hi, sets, partners = (np.concatenate(c) for c in zip(*self._parts, strict=True))
        arrays: Arrays = {"cb": cb, "ci": ci, "pb": pb, "pf": pf, "pt": pt, "sets": sets}
        rows: dict[Any, tuple[npt.NDArray[Any], npt.NDArray[Any]]] = {}
        carrier, partner = self.spec.left, self.spec.right
        if not self.carrier_left:
            carrier, partner = partner, carrier
        for leaf in self.output.exposed:
            side, b, i = (carrier, cb, ci) if leaf in carrier.leaves else (partner, pb, partners)
            if side.child is not None:
                b, i = self._through(b, i, leaf)
            rows[leaf] = arrays[f"x:{leaf}:b"], arrays[f"x:{leaf}:i"] = b, i
        directory = self.shared.directory
        hashes, usable = key_hashes([
            (directory.rows(leaf, self.spec.group, *rows[leaf]).column(column), type)
            for leaf, column, type in self.output.key
        ])  # fmt: skip
        items = np.arange(len(cb)) if usable is None else np.flatnonzero(usable)
        if not len(items):
            return None
        put_index(arrays, "i:", csr.grouped(items, hashes, lo, hi), sets, spans=True)
        file = f"b{self.bucket}.bucket"
        meta = {"node": self.spec.name, "epoch": self.shared.epoch, "version": self.shared.version,
                "carrier_left": self.carrier_left}  # fmt: skip
        size = directory.store.write(file, meta, arrays)
        return JoinedRef(
            self.bucket, self.spec.name, self.output.key, self.spec.group, self.shared.epoch, self.shared.version,
            file, len(cb), size, int(lo.min()), int(lo.max()), int(hi.min()), self.output.exposed,
        )  # fmt: skip

    def _through(
        self, buckets: npt.NDArray[Any], items: npt.NDArray[Any], leaf: Any
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The source row of a leaf that a joined input exposes."""
        b_out, i_out = np.empty(len(items), np.int64), np.empty(len(items), np.int32)
        for b, chosen in split_by_bucket(buckets):
            found_b, found_i = self.shared.directory.joined_bucket(b).exposed(leaf)
            at = slice(None) if chosen is None else chosen
            b_out[at], i_out[at] = found_b[items[at]], found_i[items[at]]
        return b_out, i_out
