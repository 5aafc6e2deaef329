"""COUNT(*) queries between the tasks that count and the log that delivers: which windows close, with which number.

Tasks report how many combinations they found per query and window; an epoch's commit record carries the sums. The
state keeps, per window that can still change, the number so far and how often it was delivered:

    the query's watermark reaches the end of a window   ->  its row, revision 0
    a tuple accepted late adds to a closed window       ->  its row again, revision one higher (once per epoch)

A window that has no combination has no row. `settle` is a pure function of the state before the epoch and of what the
epoch brought. It is used twice: before the commit, to write the rows that the commit record lists, and when the commit
is handled, to bring the state up to date; so after a crash the same epoch closes the same windows with the same
numbers. A window is forgotten when no accepted tuple can reach it any more (retention.py).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from runtime.control.events import QueryCounts
from runtime.control.postponed import Work, held_back
from runtime.control.state import Counts, State, StreamState, WindowCount, query_watermark
from runtime.results.count_rows import ClosedWindow

Deltas = tuple[QueryCounts, ...]
"""As the commit record has them, sorted."""


def summed(reports: Iterable[Mapping[str, Mapping[int, int]]]) -> Deltas:
    """What all tasks of an epoch found, added up."""
    total: dict[str, dict[int, int]] = {}
    for report in reports:
        for uid, windows in report.items():
            mine = total.setdefault(uid, {})
            for start, count in windows.items():
                mine[start] = mine.get(start, 0) + count
    return tuple(QueryCounts(uid, tuple(sorted(windows.items()))) for uid, windows in sorted(total.items()))


def settle(
    state: State, streams: Mapping[str, StreamState], deltas: Deltas, postponed: Work
) -> tuple[Counts, dict[str, tuple[ClosedWindow, ...]]]:
    """The counts after an epoch that left the streams as in `streams` and work as in `postponed`, and the rows to
    deliver, per query."""
    new = dict(deltas)
    counts: dict[str, dict[int, WindowCount]] = {}
    rows: dict[str, tuple[ClosedWindow, ...]] = {}
    for uid, query in state.running.items():
        added = dict(new.get(uid, ()))
        kept = state.counts.get(uid, {})
        if not (added or kept):
            continue
        watermark, window = held_back(postponed, uid, query_watermark(streams, query)), query.query.window
        mine, closed = dict(kept), []
        for start in sorted(kept.keys() | added.keys()):
            count, delivered = kept.get(start, WindowCount(0, 0))
            count += added.get(start, 0)
            reached = watermark is not None and window.closed(start, watermark)
            if (delivered and start in added) or (not delivered and reached):
                closed.append(ClosedWindow(start, delivered, count))
                delivered += 1
            mine[start] = WindowCount(count, delivered)
        counts[uid] = mine
        if closed:
            rows[uid] = tuple(closed)
    return counts, rows


def forget(counts: Counts, floors: Mapping[str, int], behind: Container[str]) -> Counts:
    """Without the windows before each query's first window still alive. Queries that are behind keep all of theirs:
    postponed work may still add to them."""
    kept = {
        uid: {start: n for start, n in mine.items() if uid in behind or uid not in floors or start >= floors[uid]}
        for uid, mine in counts.items()
    }
    return {uid: mine for uid, mine in kept.items() if mine}
