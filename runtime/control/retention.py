"""Which state nobody can need any more.

A new tuple of stream S is accepted only at or after watermark(S) - allowed_lateness(S). So a window of a query is
dead once its end lies at or before the minimum of that over the query's streams: no accepted tuple can fall into it.
Everything that is only in dead windows can go. Per query that is one number, the start of its first window still
alive; a source bucket is needed while its latest slice reaches the smallest such number of any query on its stream; a
joined bucket while the latest `lo` of its items does, because an item is in no window that ends before the one
reaching furthest from its lo.

Row references stay sound: a joined item's tuples lie at or after its lo, so their buckets live at least as long as
the item can match anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from optimizer.model.plan import RunningQuery
from runtime.control.state import State

Watermark = Callable[[RunningQuery], int | None]


def first_alive_start(state: State, query: RunningQuery, watermark: Watermark) -> int | None:
    """Start of the query's first window that can still get a tuple; None when nothing is dead yet."""
    if watermark(query) is None:
        return None
    streams = [state.streams[s] for s in query.query.streams]
    awake = [s for s in streams if not s.idle] or streams
    horizons = [s.accept_from for s in awake if s.accept_from is not None]
    return query.query.window.first_alive(min(horizons))


def raise_floors(state: State, watermark: Watermark) -> list[int]:
    """Moves the floors of all running queries up and returns the ids of the buckets that can go."""
    running = {uid: r.query for uid, r in state.queries.items() if r.running}
    state.floors = {uid: f for uid, f in state.floors.items() if uid in running}
    for uid, query in running.items():
        start = first_alive_start(state, query, watermark)
        if start is not None:
            state.floors[uid] = max(start, state.floors.get(uid, start))
    starts = {uid: state.floors.get(uid) for uid in running}

    def needed_from(uids: list[str]) -> int | None:
        known = [starts[u] for u in uids]
        return None if None in known else min(k for k in known if k is not None)

    by_stream: dict[str, list[str]] = {}
    for uid in starts:
        for stream in state.queries[uid].query.query.streams:
            by_stream.setdefault(stream, []).append(uid)
    streams = {stream: needed_from(uids) for stream, uids in by_stream.items()}
    nodes = {n.name: needed_from(list(uids)) for n, uids in state.plan.nodes.items()}
    dead = [s.id for s in state.sources.values() if _dead(streams, s.stream, s.max_slice)]
    return dead + [j.id for j in state.joined.values() if _dead(nodes, j.node, j.max_lo)]


def _dead(needed: Mapping[str, int | None], owner: str, latest: int) -> bool:
    if owner not in needed:
        return True
    since = needed[owner]
    return since is not None and latest < since
