"""Does what a run delivered equal what the oracle says? Strictly, and with an answer a person can read.

`check` takes rows in the shape of `results.jsonl` and queries in the shape of `queries.json`, so the same
function judges an in-process run and the files of `ajoin replay`. It returns one text per difference; no
text, no difference.

Rows are compared exactly, with two exceptions for queries that fold. DOUBLEs may differ by as much as comes from adding
in another order (`close`), and estimates by as much as an estimate may be wrong (`near`). Which rows then belong to
each other is decided among those that agree in everything else: window, revision and all other columns. Two different
results do not lie so close together that the choice would matter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tests.oracle.folds import REVISION
from tests.oracle.oracle import Expected, ExpectedQuery
from tests.oracle.rows import FrozenValue, ResultRow, freeze, thaw

SHOWN = 5
"""Rows named per kind of difference; the rest is only counted."""


def check(
    expected: Expected,
    actual_rows_by_query: Mapping[str, Iterable[Mapping[str, Any]]],
    queries: Mapping[str, Mapping[str, Any]],
) -> list[str]:
    """Differences in the set of queries, their states and bounds, and their rows."""
    differences = [
        f"{id}: rows of a query that never existed" for id in actual_rows_by_query.keys() - expected.queries.keys()
    ]
    differences += [f"{id}: reported, but never created" for id in queries.keys() - expected.queries.keys()]
    for id, query in expected.queries.items():
        delivered = list(actual_rows_by_query.get(id, ()))
        if id in queries:
            differences += _check_bounds(query, queries[id], len(delivered))
        else:
            differences.append(f"{id}: created, but not reported")
        differences += _check_rows(query, delivered)
    return differences


def check_report(expected: Expected, report: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Differences in the per-stream counts of `report.json` (`tuples`, `late_dropped`, `dead_letter`)."""
    differences = []
    for counter in ("tuples", "late_dropped", "dead_letter"):
        for name, stream in expected.streams.items():
            want, got = getattr(stream, counter), report[counter].get(name, 0)
            if want != got:
                differences.append(f"stream {name}: {counter} is {got}, expected {want}")
    return differences


def rows_by_query(results: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """The lines of `results.jsonl`, per query."""
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for line in results:
        grouped.setdefault(line["query"], []).append(line)
    return grouped


def _check_bounds(query: ExpectedQuery, reported: Mapping[str, Any], delivered: int) -> list[str]:
    want = {"state": query.state, "active_from": query.active_from, "active_until": query.active_until}
    if "rows" in reported:
        want["rows"] = delivered
    return [
        f"{query.id}: {name} is {reported.get(name)!r}, expected {value!r}"
        for name, value in want.items()
        if reported.get(name) != value
    ]


def _check_rows(query: ExpectedQuery, delivered: list[Mapping[str, Any]]) -> list[str]:
    differences = [
        f"{query.id}: a join row has revision {line['revision']}, expected 0: {dict(line)}"
        for line in delivered
        if line.get("revision", 0) != 0 and not query.folds
    ]
    got = Counter(freeze(line["window_start"], line["window_end"], _row(query, line)) for line in delivered)
    missing, beyond = _unmatched(query, query.rows - got, got - query.rows)
    beyond -= query.optional
    repeated = Counter({r: n for r, n in beyond.items() if r in query.rows or r in query.optional})
    differences += _told(query, "missing", missing)
    differences += _told(query, "repeated", repeated)
    differences += _told(query, "unexpected", beyond - repeated)
    return differences


def close(a: float, b: float) -> bool:
    """Sums of the same DOUBLEs in different orders; next to 0, what is left where they cancel out."""
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


def near(estimate: int, exact: int) -> bool:
    return abs(estimate - exact) <= 1 + 0.1 * exact


def _unmatched(
    query: ExpectedQuery, missing: Counter[ResultRow], beyond: Counter[ResultRow]
) -> tuple[Counter[ResultRow], Counter[ResultRow]]:
    """What is left when rows that are not equal, but equal within their tolerance, have found each other."""
    if not query.folds:
        return missing, beyond
    left: Counter[ResultRow] = Counter()
    waiting: dict[ResultRow, list[ResultRow]] = {}
    for row in beyond.elements():
        waiting.setdefault(_strict(query, row), []).append(row)
    for row in missing.elements():
        candidates = waiting.get(_strict(query, row), [])
        partner = next((c for c in candidates if _alike(query, row, c)), None)
        if partner is None:
            left[row] += 1
        else:
            candidates.remove(partner)
    return left, Counter(row for rows in waiting.values() for row in rows)


def _strict(query: ExpectedQuery, row: ResultRow) -> ResultRow:
    """The row without the values that need not be equal, but with their kinds."""
    start, end, columns = row
    return start, end, tuple((n, (v[0], None) if _tolerant(query, n, v) else v) for n, v in columns)


def _tolerant(query: ExpectedQuery, name: str, value: FrozenValue) -> bool:
    return value[0] == "float" or (name in query.approximate and value[0] == "int")


def _alike(query: ExpectedQuery, want: ResultRow, got: ResultRow) -> bool:
    """Two rows of which `_strict` is equal."""
    pairs = [(n, a[1], b[1]) for (n, a), (_, b) in zip(want[2], got[2], strict=True) if _tolerant(query, n, a)]
    return all(near(b, a) if n in query.approximate else close(a, b) for n, a, b in pairs)


def _row(query: ExpectedQuery, line: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**line["row"], REVISION: line["revision"]} if query.folds else line["row"]


def _told(query: ExpectedQuery, kind: str, rows: Counter[ResultRow]) -> list[str]:
    ordered = sorted(rows.items(), key=lambda item: (_place(item[0]), repr(item[0])))
    told = [f"{query.id}: {kind} {times}x{_window(row)}: {thaw(row)}" for row, times in ordered[:SHOWN]]
    if len(ordered) > SHOWN:
        told.append(f"{query.id}: {kind}: {len(ordered) - SHOWN} more different rows, {rows.total()} in all")
    if told:
        told.append(f"{query.id}: active_from {query.active_from}, active_until {query.active_until}: {query.sql}")
    return told


def _place(row: ResultRow) -> tuple[int, int]:
    return (0, 0) if row[0] is None or row[1] is None else (row[0], row[1])


def _window(row: ResultRow) -> str:
    return "" if row[0] is None else f" in [{row[0]}, {row[1]})"
