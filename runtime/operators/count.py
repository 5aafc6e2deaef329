"""COUNT(*) at a query's last join: combinations per window, from the lengths of lists.

    pair of entries      (left items with the query's bit) x (right items with it)
    item of a joined     its own bit x (combinations behind its carrier) x (sum over its partners of the combinations
    bucket               behind each)

So nothing is ever laid out pair by pair, and no row is fetched. This is exact as long as hashes are: a query with
residual predicates or keys whose hash is no proof must look at its rows, and is counted by the sink operator instead,
after its checks.

Cost: every list that some matching entry points to is read once per query, whatever the number of combinations. Lists
shared by many items of a joined bucket (all carriers of one entry have the same partners) are read once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime.columns.querysets import Words, bitset, has
from runtime.execution.physical import JoinSpec, SideSpec
from runtime.kernels.expand import cut, unroll
from runtime.kernels.tally import count_in_ranges
from runtime.operators.combinations import WINDOWED
from runtime.operators.inputs import Directory, split_by_bucket
from runtime.operators.matches import Match, Side
from runtime.windows.registry import logic_of

BLOCK = 1 << 22
"""Numbers (lists x queries, and items of lists x queries) held at a time, per level of the join tree."""

Numbers = npt.NDArray[np.int64]


class Tally:
    """Combinations per query and start of window, as one task found them."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[int, int]] = {}

    def add(self, uid: str, starts: Numbers, times: Numbers) -> None:
        """`times[i]` combinations in the window that starts at `starts[i]`."""
        windows, at = np.unique(starts, return_inverse=True)
        totals = np.zeros(len(windows), np.int64)
        np.add.at(totals, at, times)
        mine = self.counts.setdefault(uid, {})
        for start, total in zip(windows.tolist(), totals.tolist(), strict=True):
            mine[start] = mine.get(start, 0) + total


class CountOperator:
    """Counts for all queries of `spec.sinks`, which need no look at their rows."""

    def __init__(self, directory: Directory, joins: Mapping[str, JoinSpec], spec: JoinSpec, tally: Tally) -> None:
        self.directory, self.joins, self.spec, self.tally = directory, joins, spec, tally
        self.slots = bitset([s.slot for s in spec.sinks], spec.words)

    def add(self, match: Match) -> None:
        chosen = match.only(self.slots)
        if chosen is None:
            return
        l_entries, l_at = np.unique(chosen.l_entries, return_inverse=True)
        r_entries, r_at = np.unique(chosen.r_entries, return_inverse=True)
        l_first, l_end = _range(chosen.left, l_entries)
        l_first = np.maximum(l_first, chosen.l_from)
        l_end = np.maximum(np.minimum(l_end, chosen.l_to), l_first)
        r_first, r_end = _range(chosen.right, r_entries)
        step = max(1, BLOCK // (len(l_entries) + len(r_entries)))
        for at in range(0, len(self.spec.sinks), step):
            sinks = self.spec.sinks[at : at + step]
            slots = np.array([s.slot for s in sinks], np.int64)
            left = self._in_lists(self.spec.left, chosen.left.bucket, l_first, l_end, slots)
            right = self._in_lists(self.spec.right, chosen.right.bucket, r_first, r_end, slots)
            for s, sink in enumerate(sinks):
                times = left[l_at, s] * right[r_at, s] * has(chosen.sets, sink.slot)
                rows = np.flatnonzero(times)
                held = logic_of(sink.window).holding(chosen.lo[rows], chosen.hi[rows], sink.active_from)
                for which, starts in held.pieces(WINDOWED):
                    self.tally.add(sink.uid, starts, times[rows[which]])

    def flush(self) -> None:
        """Nothing is held back."""

    def _in_lists(self, side: SideSpec, bucket: int, first: Numbers, end: Numbers, slots: Numbers) -> Numbers:
        """Combinations behind ranges of positions of one bucket's index, per range and slot."""
        d, words = self.directory, self.spec.words
        if side.child is None:
            view = d.view(bucket, side.leaves[0], side.group)
            ref = d.sources[bucket].view(side.leaves[0], side.group)
            assert ref is not None
            items = count_in_ranges(view.order(side.index_key), view.sets, first, end, slots)
            counted: Numbers = items * _bits(d.alive(side.group, ref.version, words)[None, :], slots)
            return counted
        total = np.zeros((len(first), len(slots)), np.int64)
        for piece in cut(first, end, max(1, BLOCK // max(len(slots), words))):
            which, positions = unroll(piece.starts, piece.ends)
            behind = self._behind(side, bucket, d.joined_bucket(bucket).order[positions], slots)
            begins = np.flatnonzero(np.diff(which, prepend=-1))
            total[piece.first + which[begins]] += np.add.reduceat(behind, begins, axis=0)
        return total

    def _behind(self, side: SideSpec, bucket: int, items: npt.NDArray[Any], slots: Numbers) -> Numbers:
        """Combinations behind items of one joined bucket, per item and slot."""
        assert side.child is not None
        d, spec = self.directory, self.joins[side.child]
        joined = d.joined_bucket(bucket)
        carrier, partner = (spec.left, spec.right) if joined.carrier_left else (spec.right, spec.left)
        out = _bits(d.sets(np.full(len(items), bucket), items, None, side.group, self.spec.words), slots)
        partners = joined.partner_bucket[items]
        first, end = joined.partner_from[items].astype(np.int64), joined.partner_to[items].astype(np.int64)
        for b, positions in split_by_bucket(partners) if len(items) else ():
            at = slice(None) if positions is None else positions
            lists, which = np.unique((first[at] << 32) | end[at], return_inverse=True)
            out[at] *= self._in_lists(partner, b, lists >> 32, lists & 0xFFFFFFFF, slots)[which]
        if carrier.child is not None:
            carriers = joined.carrier_bucket[items]
            for b, positions in split_by_bucket(carriers) if len(items) else ():
                at = slice(None) if positions is None else positions
                out[at] *= self._behind(carrier, b, joined.carrier_item[items][at], slots)
        return out


def _range(side: Side, entries: npt.NDArray[Any]) -> tuple[Numbers, Numbers]:
    offsets = side.index.offsets
    return offsets[entries].astype(np.int64), offsets[entries + 1].astype(np.int64)


def _bits(sets: Words, slots: Numbers) -> Numbers:
    return np.stack([has(sets, int(s)) for s in slots], axis=1).astype(np.int64)
