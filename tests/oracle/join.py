"""One query over all tuples it may see: nested loops, one window at a time.

    for every window w that starts at active_from or later
        for every combination of one tuple per source, all with event time in w
            if every selection, every equality and every residual is TRUE: a row of w

The only liberty taken is to test a condition as soon as its sources are bound, because eight nested loops
over everything would not end. Cost: windows x the joined prefixes; meant for hundreds of tuples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optimizer.model.query import EquiPredicate, JoinQuery, Source
from tests.oracle.rows import ResultRow, freeze
from tests.oracle.values import evaluate


@dataclass(frozen=True, slots=True)
class Tuple:
    """An accepted tuple and the number of the epoch that brought it."""

    epoch: int
    time: int
    row: Mapping[str, Any]


def windowed_join(
    query: JoinQuery, tuples: Mapping[str, Sequence[Tuple]], active_from: int | None
) -> Counter[ResultRow]:
    """The bag of rows of all windows with start >= active_from. `tuples` is per stream."""
    result: Counter[ResultRow] = Counter()
    for window, combination in combinations(query, tuples, active_from):
        rows = {alias: t.row for alias, t in combination.items()}
        row = {o.name: evaluate(o.expr, rows, window) for o in query.outputs}
        result[freeze(*window, row)] += 1
    return result


def arrivals(
    query: JoinQuery, tuples: Mapping[str, Sequence[Tuple]], active_from: int | None
) -> dict[int, Counter[tuple[int, int]]]:
    """Per epoch, how many combinations of each window got their last tuple in it."""
    found: dict[int, Counter[tuple[int, int]]] = {}
    for window, combination in combinations(query, tuples, active_from):
        epoch = max(t.epoch for t in combination.values())
        found.setdefault(epoch, Counter())[window] += 1
    return found


def combinations(
    query: JoinQuery, tuples: Mapping[str, Sequence[Tuple]], active_from: int | None
) -> Iterator[tuple[tuple[int, int], Mapping[str, Tuple]]]:
    """Every window with every combination in it that passes all conditions."""
    selected = {s.alias: _selected(query, s, tuples[s.stream]) for s in query.sources}
    for start in _window_starts(query, selected[query.sources[0].alias]):
        if active_from is not None and start < active_from:
            continue
        window = (start, start + query.window.size_ms)
        inside = {a: [t for t in ts if window[0] <= t.time < window[1]] for a, ts in selected.items()}
        for combination in _combinations(query, _connected_order(query), inside, {}):
            rows = {alias: t.row for alias, t in combination.items()}
            if all(evaluate(r, rows) is True for r in query.residual):
                yield window, combination


def _selected(query: JoinQuery, source: Source, tuples: Sequence[Tuple]) -> list[Tuple]:
    conditions = [e for alias, e in query.selections if alias == source.alias]
    return [t for t in tuples if all(evaluate(e, {source.alias: t.row}) is True for e in conditions)]


def _window_starts(query: JoinQuery, tuples: Sequence[Tuple]) -> list[int]:
    """Every window that holds a tuple of the first source; a window without one has no row."""
    size, advance = query.window.size_ms, query.window.advance_ms
    starts = set()
    for t in tuples:
        start = t.time // advance * advance
        while start + size > t.time:
            starts.add(start)
            start -= advance
    return sorted(starts)


def _connected_order(query: JoinQuery) -> list[str]:
    """The aliases, each but the first one joined with an earlier one."""
    edges = {frozenset((p.left.alias, p.right.alias)) for p in query.equi}
    order, waiting = [query.sources[0].alias], [s.alias for s in query.sources[1:]]
    while waiting:
        following = next(a for a in waiting if any(frozenset((a, b)) in edges for b in order))
        order.append(following)
        waiting.remove(following)
    return order


def _combinations(
    query: JoinQuery,
    order: Sequence[str],
    inside: Mapping[str, Sequence[Tuple]],
    bound: dict[str, Tuple],
) -> Iterator[dict[str, Tuple]]:
    if len(bound) == len(order):
        yield bound
        return
    alias = order[len(bound)]
    for t in inside[alias]:
        extended = {**bound, alias: t}
        if all(_holds(p, extended) for p in query.equi if alias in (p.left.alias, p.right.alias)):
            yield from _combinations(query, order, inside, extended)


def _holds(predicate: EquiPredicate, bound: Mapping[str, Tuple]) -> bool:
    """True as long as one side is not bound yet: the predicate is tested again when it is."""
    left, right = predicate.left, predicate.right
    if left.alias not in bound or right.alias not in bound:
        return True
    a, b = bound[left.alias].row[left.column], bound[right.alias].row[right.column]
    if a is None or b is None:
        return False
    return float(a) == float(b) if predicate.type == "DOUBLE" else a == b
