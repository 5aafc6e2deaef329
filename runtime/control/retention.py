"""Which state no query can need any more.

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

from collections.abc import Mapping
from typing import NamedTuple

from optimizer.model.plan import RunningQuery
from runtime.control.state import State, query_watermark


class Floors(NamedTuple):
    """`starts[uid]`: start of the query's first window still alive. `unneeded`: ids of buckets that can go."""

    starts: Mapping[str, int]
    unneeded: frozenset[int]


def first_alive_start(state: State, query: RunningQuery) -> int | None:
    """Start of the query's first window that can still get a tuple; None when nothing is dead yet."""
    if query_watermark(state.streams, query) is None:
        return None
    streams = [state.streams[s] for s in query.query.streams]
    awake = [s for s in streams if not s.idle] or streams
    horizons = [s.accept_from for s in awake if s.accept_from is not None]
    return query.query.window.first_alive(min(horizons))


def raise_floors(state: State) -> Floors:
    """The floors of all running queries, moved up to where the streams stand now."""
    floors = {uid: f for uid, f in state.floors.items() if uid in state.running}
    for uid, query in state.running.items():
        start = first_alive_start(state, query)
        if start is not None:
            floors[uid] = max(start, floors.get(uid, start))

    def needed_from(uids: list[str]) -> int | None:
        known = [floors.get(u) for u in uids]
        return None if None in known else min(k for k in known if k is not None)

    by_stream: dict[str, list[str]] = {}
    for uid, query in state.running.items():
        for stream in query.query.streams:
            by_stream.setdefault(stream, []).append(uid)
    streams = {stream: needed_from(uids) for stream, uids in by_stream.items()}
    nodes = {n.name: needed_from(list(uids)) for n, uids in state.plan.nodes.items()}
    dead = {s.id for s in state.sources.values() if _dead(streams, s.stream, s.max_slice)}
    dead |= {j.id for j in state.joined.values() if _dead(nodes, j.node, j.max_lo)}
    return Floors(floors, frozenset(dead))


def _dead(needed: Mapping[str, int | None], owner: str, latest: int) -> bool:
    if owner not in needed:
        return True
    since = needed[owner]
    return since is not None and latest < since
