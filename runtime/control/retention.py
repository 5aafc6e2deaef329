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

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from optimizer.model.plan import RunningQuery
from optimizer.model.windows import is_aligned
from runtime.control.state import State, query_watermark


class Floors(NamedTuple):
    """`starts[uid]`: start of the query's first window still alive. `unneeded`: ids of buckets that can go, and
    `partials` and `blocks`: names of partial buckets and of blocks of them."""

    starts: Mapping[str, int]
    unneeded: frozenset[int]
    partials: frozenset[str]
    blocks: frozenset[str]


def first_alive_start(state: State, query: RunningQuery) -> int | None:
    """Start of the query's first window that can still get a tuple; None when nothing is dead yet, and for windows that
    follow from tuples, where only the tasks that close them can tell."""
    if query_watermark(state.streams, query) is None or not is_aligned(query.query.window):
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
        if len(query.query.sources) > 1:  # queries over one stream keep no tuples
            for stream in query.query.streams:
                by_stream.setdefault(stream, []).append(uid)
    streams = {stream: needed_from(uids) for stream, uids in by_stream.items()}
    nodes = {n.name: needed_from(list(uids)) for n, uids in state.plan.nodes.items()}
    dead = {s.id for s in state.sources.values() if _dead(streams, s.stream, s.max_slice)}
    dead |= {j.id for j in state.joined.values() if _dead(nodes, j.node, j.max_lo)}
    return Floors(floors, frozenset(dead), frozenset(_dead_partials(state, floors)), frozenset(_dead_blocks(state)))


def _dead_partials(state: State, floors: Mapping[str, int]) -> Iterator[str]:
    """Partial buckets that hold nothing for a running query, or only for dead windows. What is carried belongs to
    windows that follow from tuples, and goes when it is carried on."""
    holders: dict[tuple[str, int, int], list[str]] = {}
    for name, ref in state.partials.items():
        at = (ref.fold, ref.group, ref.version)
        if at not in holders:
            there = state.slots[ref.version].get(ref.group, {}).values()
            holders[at] = [uid for uid in there if uid in state.running and state.queries[uid].fold == ref.fold]
        mine = holders[at]
        known = [floors[uid] for uid in mine if uid in floors and uid not in state.behind]
        if not mine or (len(known) == len(mine) and ref.max_lo < min(known)):
            yield name


def _dead_blocks(state: State) -> Iterator[str]:
    """Blocks that begin before the next window to close of every query that has them."""
    for name, block in state.blocks.items():
        needed = False
        for uid in block.uids:
            if uid in state.running:
                known = state.marks.get(uid)
                window = state.running[uid].query.window
                needed = needed or not known or window.first_alive(known[-1].watermark) <= block.lo
        if not needed:
            yield name


def _dead(needed: Mapping[str, int | None], owner: str, latest: int) -> bool:
    if owner not in needed:
        return True
    since = needed[owner]
    return since is not None and latest < since
