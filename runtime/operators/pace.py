"""How far a query may go in one epoch: rows are counted before they are made, and the rest is left for later epochs.

Sharing means that everybody waits for the slowest query of an epoch. A join on a hot key can stand for billions of
rows, so a query has an allowance per task. Rows are counted from list lengths: nothing is opened for that, and which of
the items under a key a query wants is ignored at first, so the count is an upper bound. A query that wants few items of
a hot key must not be held up by those who want all of them: once half of its allowance is used up by that count, the
items are counted that the query wants.

Where a query's allowance ends, its bit is taken out of the task: the join goes on without it, for everybody else. The
place is reported as a `Rest`: the meeting of two buckets, in it the first position of the left index that was not done,
and if not even one left item fitted, the first position of the right index that was not done with it. A later task that
starts there, over the same buckets and with only this query, makes exactly the rows that are missing: positions and the
order of meetings do not depend on who else was there. A task with an allowance does at least the rows of one pair of
items, so every rest comes to an end.

Cuts depend on nothing but the buckets, the plan and the allowances; a task that is run again cuts at the same place.

The first count also tells how much of the task was for whom (`work`), where somebody asks, and a query may have a
bound of that too: it is what its bytes and seconds so far are compared with, so it must be counted always in the same
way.

Cost: one sum per match as long as all rows of the task together are within everybody's allowance; only then, or if
`work` is asked for, are they counted per query. Counting by items costs a pass over the items of the match, per query
that has used up half of its allowance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from runtime.columns.querysets import bitset, has
from runtime.execution.physical import JoinSpec, SideSpec
from runtime.kernels.sets import sum_members
from runtime.operators.behind import Behind, Floats, within
from runtime.operators.inputs import Directory
from runtime.operators.matches import Lists, Match, Side

MOST_KEPT = 8
"""Queries of which counts by items are kept."""


class Place(NamedTuple):
    """In the work of a task: the number of a meeting of two buckets, the position of the left bucket's index from which
    on it is not done, and with the item at that position the one of the right bucket's index (0: from its start)."""

    meeting: int
    position: int
    partner: int = 0


BEGINNING = Place(0, 0)


class Rest(NamedTuple):
    """What a task over these hashes (dealt out: `way` of `ways`) has left undone for a query."""

    first_hash: int
    end_hash: int
    way: int
    ways: int
    meeting: int
    position: int
    partner: int

    @property
    def place(self) -> Place:
        return Place(self.meeting, self.position, self.partner)


@dataclass(frozen=True, slots=True)
class Allowances:
    """What a task may do for queries, by uid: `rows` to make, `work` by the first count; who is not named may have any
    amount. `measured`: reports are to say how much work was done for whom."""

    rows: Mapping[str, int] = field(default_factory=dict)
    work: Mapping[str, int] = field(default_factory=dict)
    measured: bool = False

    def per_task(self, tasks: int) -> Allowances:
        """The same, divided among tasks; who may have anything at all may have it of each."""
        return replace(
            self,
            rows={uid: -(-rows // tasks) for uid, rows in self.rows.items()},
            work={uid: -(-work // tasks) for uid, work in self.work.items()},
        )


UNLIMITED = Allowances()


class Pace:
    """Of one join in one task. `users`: who still takes part, changed in place. `rests`: per query (uid), where it
    had to stop."""

    def __init__(
        self,
        directory: Directory,
        joins: Mapping[str, JoinSpec],
        spec: JoinSpec,
        allowances: Allowances,
    ) -> None:
        rows, work, measured = allowances.rows, allowances.work, allowances.measured
        self.users = bitset(spec.users, spec.words)
        self.rests: dict[str, Place] = {}
        self._behind, self._spec, self._measured = Behind(directory, joins), spec, measured
        self._limited = {s.slot: s.uid for s in spec.sinks if s.uid in rows or s.uid in work}
        size = 64 * spec.words
        self._allowed, self._used = np.full(size, np.inf), np.zeros(size)
        self._work_allowed, self._work = np.full(size, np.inf), np.zeros(size)
        self._windows, self._opened = np.ones(size), np.zeros(size, bool)
        for sink in spec.sinks:
            self._allowed[sink.slot] = rows.get(sink.uid, np.inf)
            self._work_allowed[sink.slot] = work.get(sink.uid, np.inf)
            if sink.slot in self._limited or measured:
                self._windows[sink.slot] = sink.window.most_per_tuple
                self._opened[sink.slot] = sink.multiplies
        self._least = min(float(self._allowed.min()), float(self._work_allowed.min()))
        self._total = 0.0
        self._of_query = lru_cache(MOST_KEPT)(lambda slot: Behind(directory, joins, slot))

    def admit(self, meeting: int, match: Match, rows: Floats) -> Iterator[Match]:
        """What of the match may be made; `rows` behind each pair of its entries, as counted below."""
        if not self._limited and not self._measured:
            yield match
            return
        self._total += float(rows.sum() + len(rows)) * float(self._windows.max())
        if self._total <= self._least and not self._measured:
            yield match
            return
        lists = _lengths(match)
        opened, closed = sum_members(match.sets, rows), sum_members(match.sets, lists)
        known = len(opened)
        work = np.where(self._opened[:known], opened, closed) * self._windows[:known]
        needed = work.copy()
        close = (work > 0) & self._opened[:known] & (self._used[:known] + work > self._allowed[:known] / 2)
        for slot in np.flatnonzero(close).tolist():
            needed[slot] = float(self._wanted(match, slot).sum()) * self._windows[slot]
        over = self._used[:known] + needed > self._allowed[:known]
        over |= self._work[:known] + work > self._work_allowed[:known]
        over &= work > 0
        self._used[:known] += np.where(over, 0.0, needed)
        self._work[:known] += np.where(over, 0.0, work)
        stopped = np.flatnonzero(over).tolist()
        if not stopped:
            yield match
            return
        others = match.only(~bitset(stopped, self._spec.words))
        if others is not None:
            yield others
        for slot in stopped:
            mine = self._cut(meeting, match, slot, rows if self._opened[slot] else lists)
            if mine is not None:
                yield mine

    def _cut(self, meeting: int, match: Match, slot: int, weights: Floats) -> Match | None:
        """The part of the match that is still within the query's allowance; from here on it takes no part."""
        chosen = np.flatnonzero(has(match.sets, slot))
        opened, windows = bool(self._opened[slot]), float(self._windows[slot])
        must = bool(min(self._allowed[slot], self._work_allowed[slot]) > 0 and self._work[slot] == 0)
        limits = [
            _Limit(float(self._allowed[slot] - self._used[slot]) / windows, weights[chosen], self._behind),
            _Limit(float(self._work_allowed[slot] - self._work[slot]) / windows, weights[chosen], self._behind),
        ]
        if opened:
            limits[0] = limits[0]._replace(weights=self._wanted(match, slot), behind=self._of_query(slot))
        first = max(int(match.left.index.offsets[match.l_entries[chosen[0]]]), match.l_from)
        ends = [_position(match, chosen, limit, self._spec.left, opened) for limit in limits]
        position, partner = min(ends), 0
        one = bitset([slot], self._spec.words)
        mine = match.only(one)
        assert mine is not None
        if position == first and must:  # not even one left item fits: some of its partners, or its whole entry
            if opened:
                item = replace(mine, l_from=first, l_to=first + 1)
                tight = [limit for limit, end in zip(limits, ends, strict=True) if end == first]
                position, partner = min(_after_partners(item, limit, self._spec) for limit in tight)
                mine = item.with_partners(0, partner) if partner else mine
            else:
                entry = int(np.searchsorted(match.left.index.offsets, first, "right")) - 1
                position = min(int(match.left.index.offsets[entry + 1]), match.l_to)
        self.rests[self._limited.pop(slot)] = Place(meeting, position, partner)
        self.users &= ~one
        self._allowed[slot] = self._work_allowed[slot] = np.inf
        self._windows[slot] = 1.0
        self._least = min(float(self._allowed.min()), float(self._work_allowed.min()))
        if not partner:
            if position <= mine.l_from:
                return None
            mine = replace(mine, l_to=min(mine.l_to, position))
        if self._measured:
            made = self.rows(mine) if opened else _lengths(mine)
            self._work[slot] += float(made.sum()) * windows
        return mine

    def _wanted(self, match: Match, slot: int) -> Floats:
        """The rows behind the pairs of the match that matter to a query, by the items it wants."""
        chosen, behind = np.flatnonzero(has(match.sets, slot)), self._of_query(slot)
        l, r = match.left_lists(chosen), match.right_lists(chosen)
        left = _wanted(match.left, l, slot, self._spec.left, behind)
        return left * _wanted(match.right, r, slot, self._spec.right, behind)

    @property
    def work(self) -> dict[str, int]:
        """Per query that ends here (uid): what was counted for it and made."""
        work = {sink.uid: int(self._work[sink.slot]) for sink in self._spec.sinks} if self._measured else {}
        return {uid: counted for uid, counted in work.items() if counted}

    def rows(self, match: Match) -> Floats:
        """At most so many rows are behind each pair of entries, per window."""
        left = self._behind.positions(self._spec.left, match.left.bucket)
        right = self._behind.positions(self._spec.right, match.right.bucket)
        if left is None and right is None:
            return match.counts().astype(np.float64)
        l, r = match.left_lists(), match.right_lists()
        return within(left, l.first, l.end) * within(right, r.first, r.end)


class _Limit(NamedTuple):
    """Rows that may still be made; the rows behind each pair of entries that matters to the query, and by what they
    are counted."""

    left: float
    weights: Floats
    behind: Behind


def _wanted(side: Side, lists: Lists, slot: int, spec: SideSpec, behind: Behind) -> Floats:
    """The rows behind lists of one side, by the items that the query wants."""
    if spec.child is not None:
        return within(behind.positions(spec, side.bucket), lists.first, lists.end)
    first, end = int(lists.first.min()), max(int(lists.end.max()), int(lists.first.max()))
    wanted = has(side.items.query_sets[side.items.order[first:end]], slot)
    prefix = np.concatenate([[0.0], np.cumsum(wanted)])
    return within(prefix, lists.first - first, lists.end - first)


def _position(match: Match, pairs: npt.NDArray[Any], limit: _Limit, side: SideSpec, opened: bool) -> int:
    """The first left position that does not fit. Pairs come in the order of their left entries."""
    entries, offsets = match.l_entries[pairs], match.left.index.offsets
    if limit.left >= float(limit.weights.sum()):
        return min(int(offsets[int(entries[-1]) + 1]), match.l_to)
    begins = np.flatnonzero(np.diff(entries, prepend=-1))
    per_entry = np.add.reduceat(limit.weights, begins)
    until = np.cumsum(per_entry)
    at = int(np.searchsorted(until, limit.left, "right"))
    if at == len(begins):  # rounding: what was too much fits after all
        at -= 1
    entry = int(entries[begins[at]])
    first, end = max(int(offsets[entry]), match.l_from), min(int(offsets[entry + 1]), match.l_to)
    spent = float(until[at] - per_entry[at])
    if not opened:  # lists are handed on as they are
        return first
    prefix = limit.behind.positions(side, match.left.bucket)
    if prefix is None:
        fits = int((limit.left - spent) * (end - first) // max(float(per_entry[at]), 1.0))
    else:
        part = (limit.left - spent) / max(float(per_entry[at]), 1.0) * float(prefix[end] - prefix[first])
        fits = int(np.searchsorted(prefix[first + 1 : end + 1], prefix[first] + part, "right"))
    return min(first + max(fits, 0), end)


def _after_partners(match: Match, limit: _Limit, spec: JoinSpec) -> tuple[int, int]:
    """Of a match with one left item: the place (position, partner) after as many of its partners as there may be rows,
    at least one."""
    before = limit.behind.positions(spec.left, match.left.bucket)
    each = 1.0 if before is None else max(float(before[match.l_to] - before[match.l_from]), 1.0)
    offsets = match.left.index.offsets
    holds = (offsets[match.l_entries] <= match.l_from) & (match.l_from < offsets[match.l_entries + 1])
    lists = match.right_lists(np.flatnonzero(holds))
    there = np.flatnonzero(lists.end > lists.first)  # a task that goes on has done some of them before
    if not len(there):
        return match.l_to, 0
    lists = Lists(lists.first[there], lists.end[there])
    prefix = limit.behind.positions(spec.right, match.right.bucket)
    until = np.cumsum(within(prefix, lists.first, lists.end)) * each
    at = min(int(np.searchsorted(until, limit.left, "right")), len(until) - 1)
    first, end = int(lists.first[at]), int(lists.end[at])
    spent = float(until[at - 1]) if at else 0.0
    if prefix is None:
        fits = int((limit.left - spent) / each)
    else:
        fits = int(np.searchsorted(prefix[first + 1 : end + 1], prefix[first] + (limit.left - spent) / each, "right"))
    partner = min(first + max(fits, int(at == 0)), end)
    if at == len(until) - 1 and partner == end:
        return match.l_to, 0
    return match.l_from, partner


def _lengths(match: Match) -> Floats:
    """Items in both lists of every pair of entries: what it costs to hand them on closed."""
    l, r = match.left_lists(), match.right_lists()
    lengths: Floats = (np.maximum(l.end - l.first, 0) + (r.end - r.first)).astype(np.float64)
    return lengths
