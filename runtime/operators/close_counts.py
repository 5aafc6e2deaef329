"""Closing count windows: positions of a group's tuples in order of event time, ties in order of arrival.

An entry is one tuple, or stands for tuples that are gone (`weights`), which come first. A window closes when it is full
and the watermark has reached its last tuple. In a group without late tuples a window that is delivered never changes,
and windows that overlap share what is combined (count_pieces.py).
In the others a late tuple shifts everything behind it: they are replayed, epoch by epoch, and every delivered window
whose tuples have changed comes again.

Tuples before the horizon have their final positions. They can go when every window they are in ends before the horizon
too; what remains of them is their number, per query set.

With a STATE_TTL the tuples of a group are cut into runs where neighbours are further apart, and each run is counted on
its own. A late tuple can make two runs one, never the other way round. So a delivered window belongs to the run that
its tuples are in now, and a window of a run replaces all that were delivered there with its start, unless its tuples
are those of one of them. A run can go as a whole when no acceptable tuple is near enough to be in it. All runs behind
one that stays begin after the horizon, so only the first one that is open can have tuples that are gone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from optimizer.model.combining import in_pieces
from optimizer.model.windows import CountWindow
from runtime.aggregates.components import components_of
from runtime.kernels.expand import unroll
from runtime.kernels.sessions import session_begins
from runtime.operators import count_pieces
from runtime.operators.closing import (
    Closed,
    ClosingQuery,
    Having,
    Marks,
    Replayed,
    Windows,
    late_groups,
    offsets_of,
    replayed_epochs,
    window_rows,
)
from runtime.operators.open_partials import Open, StandingRow

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NO_ENTRIES, NO_OFFSETS = np.empty(0, np.int32), np.zeros(1, np.int64)

TUPLES = 1 << 22
"""(Tuple, window) pairs laid out at a time; a single window is never cut."""


def in_order(open: Open, mine: I64) -> I64:
    """A query's entries by group, then position: those that stand for others first, the latest before the others, then
    by time, ties by arrival."""
    p = open.partials
    real = p.weights[mine] == 0
    times = np.where(real, p.lo[mine], -p.lo[mine])
    return mine[np.lexsort((mine, times, real, open.numbers[mine]))]


def runs_of(open: Open, ordered: I64, q: ClosingQuery) -> I64:
    """The run that each entry is counted in, ascending; without a STATE_TTL that is its group. Entries that stand for
    others have the time of the last of them, and all of a group's are in its first run."""
    ttl, groups = q.query.query.state_ttl_ms, open.numbers[ordered]
    if ttl is None:
        return groups
    times = open.partials.lo[ordered]
    runs: I64 = np.cumsum(session_begins(groups, times, times, ttl)) - 1
    return runs


def positions(open: Open, ordered: I64, runs: I64) -> I64:
    """Of each entry in its run."""
    weights = np.maximum(open.partials.weights[ordered], 1)
    before = np.cumsum(weights) - weights
    first = np.flatnonzero(np.diff(runs, prepend=-1))
    sizes = np.diff(np.append(first, len(ordered)))
    places: I64 = before - np.repeat(before[first], sizes)
    return places


def close_counts(open: Open, mine: I64, q: ClosingQuery, epoch: int, having: Having | None) -> Closed:
    window = q.query.query.window
    assert isinstance(window, CountWindow)
    if q.now is None or not len(mine):
        return
    late = _late(open, mine, q)
    ordered = in_order(open, mine)
    yield from _calm(open, ordered[~np.isin(open.numbers[ordered], late)], window, q, epoch)
    for replayed in _replays(open, ordered, late, q, epoch, having):
        yield window_rows(replayed.rows)


def _late(open: Open, mine: I64, q: ClosingQuery) -> I64:
    """Groups of which the entries alone do not say what was delivered."""
    p = open.partials
    real = mine[p.weights[mine] == 0]
    late = late_groups(p.lo[real], p.epochs[real], open.numbers[real], Marks(q.marks))
    return np.union1d(late, np.array([row.group for row in open.standing(q.slots)], np.int64))


def _replays(
    open: Open, ordered: I64, late: I64, q: ClosingQuery, epoch: int, having: Having | None
) -> Iterator[Replayed]:
    known: dict[int, dict[int, list[StandingRow]]] = {}
    for row in open.standing(q.slots) if len(late) else ():
        known.setdefault(row.group, {}).setdefault(row.start, []).append(row)
    for group in late.tolist():
        yield _replayed(open, ordered[open.numbers[ordered] == group], group, known.get(group, {}), q, epoch, having)


def _calm(open: Open, ordered: I64, window: CountWindow, q: ClosingQuery, epoch: int) -> Iterator[Windows]:
    p = open.partials
    if not len(ordered) or q.now is None:
        return
    runs, numbers, times = runs_of(open, ordered, q), open.numbers[ordered], p.lo[ordered]
    place = positions(open, ordered, runs)
    latest = _latest(p.epochs[ordered], runs)
    behind = place - (window.size - 1)
    due = (behind >= 0) & (behind % window.advance == 0) & (p.weights[ordered] == 0) & (times <= q.now)
    if q.before is not None:
        due &= (latest == epoch) | (times > q.before)
    lasts = np.flatnonzero(due)
    firsts = lasts - (window.size - 1)
    # a window that reaches into tuples which are gone was delivered long ago
    whole = (firsts >= 0) & (runs[np.maximum(firsts, 0)] == runs[lasts])
    whole &= place[np.maximum(firsts, 0)] == place[lasts] - (window.size - 1)
    lasts, firsts = lasts[whole], firsts[whole]
    pieces = in_pieces(window, _kinds(q))
    step = count_pieces.WINDOWS if pieces else max(1, TUPLES // window.size)
    for at in range(0, len(lasts), step):
        begin, end = firsts[at : at + step], lasts[at : at + step] + 1
        starts = place[end - 1] - (window.size - 1)
        none = np.zeros(len(starts), np.int64)
        rows = Windows(numbers[begin], starts, starts + window.size, none, NO_ENTRIES, NO_OFFSETS)
        if pieces:
            made = count_pieces.combined(p.states.__getitem__, ordered, count_pieces.cut(begin, end))
            yield rows._replace(combined=made)
        else:
            _, places = unroll(begin, end)
            yield rows._replace(order=ordered[places].astype(np.int32), offsets=offsets_of(end - begin))


def _kinds(q: ClosingQuery) -> set[str]:
    return {c.kind for a in q.query.query.aggregates for c in components_of(a)}


def _latest(epochs: I64, runs: I64) -> I64:
    """The latest epoch of the entries up to each one, in its run."""
    if not len(epochs):
        return epochs
    span = int(epochs.max()) + 1
    return np.maximum.accumulate(runs * span + epochs) - runs * span


def _replayed(
    open: Open,
    ordered: I64,
    group: int,
    standing: dict[int, list[StandingRow]],
    q: ClosingQuery,
    epoch: int,
    having: Having | None,
) -> Replayed:
    """`standing`: by start; of each run at most those that its parts had."""
    window, p = q.query.query.window, open.partials
    assert isinstance(window, CountWindow)
    epochs = p.epochs[ordered]
    out: list[StandingRow] = []
    for then, mark in replayed_epochs(open, epochs, Marks(q.marks), epoch):
        there = ordered[(epochs <= then) | (p.weights[ordered] != 0)]
        for run in np.split(there, np.flatnonzero(np.diff(runs_of(open, there, q))) + 1):
            real = run[p.weights[run] == 0]
            gone = int(p.weights[run].sum())
            times, inside = p.lo[real], frozenset(real.tolist())
            start = -(-gone // window.advance) * window.advance
            while start + window.size <= gone + len(real) and times[start + window.size - 1 - gone] <= mark:
                content = tuple(real[start - gone : start - gone + window.size].tolist())
                known = [row for row in standing.get(start, ()) if row.entries[0] in inside]
                if all(row.entries != content for row in known):
                    revision = 1 + max((row.revision for row in known), default=-1)
                    row = StandingRow(group, start, start + window.size, revision, content)
                    if having is None or having(window_rows([row]))[0]:
                        standing[start] = [r for r in standing.get(start, ()) if r not in known] + [row]
                        if then == epoch:
                            out.append(row)
                start += window.advance
    return Replayed(out, [row for rows in standing.values() for row in rows])


def needed_counts(
    open: Open, mine: I64, q: ClosingQuery, epoch: int, having: Having | None
) -> tuple[I64, I64, list[StandingRow]]:
    """The entries that later epochs may need as they are, those of which only the number matters, and what stands of
    rows that may be revised."""
    window = q.query.query.window
    assert isinstance(window, CountWindow)
    if not len(mine):
        return mine, mine, []
    p = open.partials
    ordered = in_order(open, mine)
    runs, times, stands = runs_of(open, ordered, q), p.lo[ordered], p.weights[ordered] != 0
    place = positions(open, ordered, runs)
    settled = stands if q.horizon is None else stands | (times < q.horizon)
    fixed = np.zeros(int(runs.max()) + 1, np.int64)
    np.add.at(fixed, runs, np.where(settled, np.maximum(p.weights[ordered], 1), 0))
    # the first window that is not full of settled tuples begins here; every settled one before it can go
    begin = np.maximum((fixed[runs] - window.size) // window.advance + 1, 0) * window.advance
    begin = np.minimum(begin, fixed[runs])
    kept, counted = ~stands & (place >= begin), stands | (place < begin)
    ttl = q.query.query.state_ttl_ms
    if ttl is not None and q.horizon is not None:
        lasts = np.full(len(fixed), np.iinfo(np.int64).min)
        np.maximum.at(lasts, runs, times)
        alive = lasts[runs] >= q.horizon - ttl
        kept, counted = kept & alive, counted & alive
    rows = [row for r in _replays(open, ordered, _late(open, mine, q), q, epoch, having) for row in r.standing]
    return np.sort(ordered[kept]), np.sort(ordered[counted]), rows
