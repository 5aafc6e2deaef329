"""Closing sessions: runs of a group's pieces that are at most a gap apart, closed when the watermark is beyond the gap.

A tuple that is not late cannot touch a session that was delivered, because that ended more than a gap before the
watermark. So a group without late pieces needs no memory: its sessions between the last watermark and this one are
delivered, with revision 0. A group with late pieces is replayed, epoch by epoch, over the pieces that are still open: a
session that has swallowed delivered ones comes with 1 + the highest of their revisions. What stands of such a group
when its entries are carried is written down with them, so a replay never goes back behind that.

A piece can go when no acceptable tuple can reach its session any more: when the session's last tuple plus the gap lies
before the horizon. A STATE_TTL is at least the gap, so it changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.model.windows import SessionWindow
from runtime.kernels.sessions import cut_sessions
from runtime.operators.closing import (
    Closed,
    ClosingQuery,
    Having,
    Marks,
    Replayed,
    Windows,
    late_groups,
    replayed_epochs,
    window_rows,
)
from runtime.operators.open_partials import Open, StandingRow

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Sessions(NamedTuple):
    """`entries`: those of one session together, in order of time; a session's are entries[offsets[s]:...]."""

    entries: npt.NDArray[np.int32]
    offsets: I64
    groups: I64
    starts: I64
    lasts: I64


def sessions(open: Open, mine: I64, gap: int) -> Sessions:
    entries, begins, lasts = cut_sessions(mine, open.numbers, open.lo, open.hi, gap)
    first = entries[begins]
    return Sessions(entries, np.append(begins, len(mine)), open.numbers[first], open.lo[first], lasts)


def close_sessions(open: Open, mine: I64, q: ClosingQuery, epoch: int, having: Having | None) -> Closed:
    window = q.query.query.window
    assert isinstance(window, SessionWindow)
    if q.now is None or not len(mine):
        return
    late = _late(open, mine, q)
    found = sessions(open, mine, window.gap_ms)
    ends = found.lasts + window.gap_ms
    due = q.now > ends
    if q.before is not None:
        due &= q.before <= ends
    if len(late):
        due &= ~np.isin(found.groups, late)
    none = np.zeros(len(ends), np.int64)
    yield Windows(found.groups, found.starts, ends, none, found.entries, found.offsets).take(np.flatnonzero(due))
    for replayed in _replays(open, mine, late, q, epoch, having):
        yield window_rows(replayed.rows)


def _late(open: Open, mine: I64, q: ClosingQuery) -> I64:
    """Groups of which the entries alone do not say what was delivered."""
    late = late_groups(open.lo[mine], open.epochs[mine], open.numbers[mine], Marks(q.marks))
    return np.union1d(late, np.array([row.group for row in open.standing(q.slots)], np.int64))


def _replays(
    open: Open, mine: I64, late: I64, q: ClosingQuery, epoch: int, having: Having | None
) -> Iterator[Replayed]:
    known: dict[int, list[StandingRow]] = {}
    for row in open.standing(q.slots) if len(late) else ():
        known.setdefault(row.group, []).append(row)
    for group in late.tolist():
        entries = mine[open.numbers[mine] == group]
        yield _replayed(open, entries, group, known.get(group, []), q, epoch, having)


def _replayed(
    open: Open,
    entries: I64,
    group: int,
    standing: list[StandingRow],
    q: ClosingQuery,
    epoch: int,
    having: Having | None,
) -> Replayed:
    window = q.query.query.window
    assert isinstance(window, SessionWindow)
    epochs = open.epochs[entries]
    out: list[StandingRow] = []
    for then, mark in replayed_epochs(open, epochs, Marks(q.marks), epoch):
        found = sessions(open, entries[epochs <= then], window.gap_ms)
        for s in range(len(found.groups)):
            end = int(found.lasts[s]) + window.gap_ms
            content = found.entries[found.offsets[s] : found.offsets[s + 1]].tolist()
            inside = frozenset(content)
            swallowed = [row for row in standing if inside.issuperset(row.entries)]
            if mark <= end or any(len(row.entries) == len(inside) for row in swallowed):
                continue
            revision = 1 + max((row.revision for row in swallowed), default=-1)
            row = StandingRow(group, int(found.starts[s]), end, revision, tuple(content))
            if having is not None and not having(window_rows([row]))[0]:
                continue
            standing = [r for r in standing if r not in swallowed] + [row]
            if then == epoch:
                out.append(row)
    return Replayed(out, standing)


def needed_sessions(
    open: Open, mine: I64, q: ClosingQuery, epoch: int, having: Having | None
) -> tuple[I64, list[StandingRow]]:
    """The entries that later epochs may need, and what stands of rows that are made of them."""
    window = q.query.query.window
    assert isinstance(window, SessionWindow)
    found = sessions(open, mine, window.gap_ms)
    alive = np.ones(len(found.lasts), bool)
    if q.horizon is not None:
        alive = found.lasts + window.gap_ms >= q.horizon
    kept = np.sort(found.entries[np.repeat(alive, np.diff(found.offsets))])
    rows = [row for r in _replays(open, mine, _late(open, mine, q), q, epoch, having) for row in r.standing]
    return kept, rows
