"""An upper bound of the rows of a query, without running it.

Key domains are small on purpose, so a five-way join of a hundred tuples could have millions of rows, and a
shrinker that sets all keys to zero would find exactly that life. The generator asks for this bound first
and turns such queries down.

Argument: take a spanning tree of the join graph. Let weight(t) be the number of ways to extend tuple t to
the subtree below its source; it is the product, over the children, of the sums of the weights of t's
partners. The weights at the root add up to the rows of the tree's join, and every further predicate only
removes rows. Two tuples of one window are less than its size apart, which is all that is used of windows,
and a combination lies in at most ceil(size / advance) of them. Cost: one pass over all pairs of tuples per
edge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.lives.streams import Event

Edge = tuple[str, str, str, str]
"""alias, column, alias, column"""


def rows_at_most(
    sources: Mapping[str, str],
    edges: Sequence[Edge],
    size: int,
    advance: int,
    events: Mapping[str, Sequence[Event]],
    times: Mapping[str, str],
) -> int:
    """`sources` maps alias to stream; `times` names the event-time column of a stream."""
    tuples = {
        stream: [e.row for e in events[stream] if _is_time(e.row.get(times[stream]))]
        for stream in set(sources.values())
    }
    order, parents = _spanning_tree(list(sources), edges)
    weights = {alias: [1] * len(tuples[stream]) for alias, stream in sources.items()}
    for alias in reversed(order[1:]):
        parent = parents[alias]
        mine, theirs = tuples[sources[alias]], tuples[sources[parent]]
        my_time, their_time = times[sources[alias]], times[sources[parent]]
        pairs = [(c1, c2) for a1, c1, a2, c2 in _both_ways(edges) if (a1, a2) == (alias, parent)]
        for i, up in enumerate(theirs):
            weights[parent][i] *= sum(
                weight
                for weight, down in zip(weights[alias], mine, strict=True)
                if abs(down[my_time] - up[their_time]) < size
                and all(_equal(down.get(c1), up.get(c2)) for c1, c2 in pairs)
            )
    return sum(weights[order[0]]) * -(-size // advance)


def _spanning_tree(aliases: list[str], edges: Sequence[Edge]) -> tuple[list[str], dict[str, str]]:
    order, parents = [aliases[0]], dict[str, str]()
    for at in order:
        for a1, _, a2, _ in _both_ways(edges):
            if a1 == at and a2 not in order:
                order.append(a2)
                parents[a2] = at
    return order, parents


def _both_ways(edges: Sequence[Edge]) -> list[Edge]:
    return [*edges, *((a2, c2, a1, c1) for a1, c1, a2, c2 in edges)]


def _equal(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return False
    if isinstance(a, float) or isinstance(b, float):
        try:
            return float(a) == float(b)
        except (TypeError, ValueError):
            return False
    return bool(a == b)


def _is_time(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
