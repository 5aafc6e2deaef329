"""The combinations of tuples of a query, over all tuples it may see: nested loops, one window at a time.

    for every window w that starts at active_from or later
        for every combination of one tuple per source, all with event time in w
            if every selection, every equality and every residual is TRUE: it belongs to w

A query for rows makes one of each; a query that folds puts them into groups (folds.py). A query over one stream is the
case of one source; without a window every tuple from active_from on is in the one that has no bounds.

The only liberty taken is to test a condition as soon as its sources are bound, because eight nested loops
over everything would not end. Cost: windows x the joined prefixes; meant for hundreds of tuples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from optimizer.model.query import EquiPredicate, Query, Source
from tests.oracle.rows import ResultRow, freeze
from tests.oracle.values import evaluate
from tests.oracle.windows import Bounds, Tuple, time_windows

Combination = Mapping[str, Tuple]
"""One tuple of every source, by alias."""


def windowed_join(query: Query, tuples: Mapping[str, Sequence[Tuple]], active_from: int | None) -> Counter[ResultRow]:
    """The bag of rows of all windows with start >= active_from. `tuples` is per stream."""
    result: Counter[ResultRow] = Counter()
    for window, combination in combinations(query, tuples, active_from):
        rows = {alias: t.row for alias, t in combination.items()}
        row = {o.name: evaluate(o.expr, rows, window) for o in query.outputs}
        result[freeze(*window, row)] += 1
    return result


def combinations(
    query: Query, tuples: Mapping[str, Sequence[Tuple]], active_from: int | None
) -> Iterator[tuple[Bounds, Combination]]:
    """Every window with every combination in it that passes all conditions."""
    passing = {s.alias: selected(query, s, tuples[s.stream]) for s in query.sources}
    # A window without a tuple of the first source has no combination.
    for window in time_windows(query.window, [t.time for t in passing[query.sources[0].alias]]):
        start, end = window
        if start is None:
            inside = {a: [t for t in ts if active_from is None or t.time >= active_from] for a, ts in passing.items()}
        elif active_from is not None and start < active_from:
            continue
        else:
            inside = {a: [t for t in ts if start <= t.time < end] for a, ts in passing.items()}
        for combination in _combinations(query, _connected_order(query), inside, {}):
            rows = {alias: t.row for alias, t in combination.items()}
            if all(evaluate(r, rows) is True for r in query.residual):
                yield window, combination


def selected(query: Query, source: Source, tuples: Sequence[Tuple]) -> list[Tuple]:
    """The tuples that pass the conditions on this source alone."""
    conditions = [e for alias, e in query.selections if alias == source.alias]
    return [t for t in tuples if all(evaluate(e, {source.alias: t.row}) is True for e in conditions)]


def _connected_order(query: Query) -> list[str]:
    """The aliases, each but the first one joined with an earlier one."""
    edges = {frozenset((p.left.alias, p.right.alias)) for p in query.equi}
    order, waiting = [query.sources[0].alias], [s.alias for s in query.sources[1:]]
    while waiting:
        following = next(a for a in waiting if any(frozenset((a, b)) in edges for b in order))
        order.append(following)
        waiting.remove(following)
    return order


def _combinations(
    query: Query,
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
