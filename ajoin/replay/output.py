"""What a replay leaves behind: results.jsonl, queries.json and report.json.

Rows are written while the scenario runs, in delivery order, one line each; nothing is held in memory. JSON
has no word for the three DOUBLE values that are not finite, so they are written as the strings "NaN",
"Infinity" and "-Infinity"; every other value is a JSON value of its own kind, TIMESTAMP an integer count of
milliseconds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa

from runtime.api import PlanEvent, QueryInfo, ResultBatch
from runtime.results.factorized import expand
from runtime.results.fold_rows import REVISION

RESULTS, QUERIES, REPORT = "results.jsonl", "queries.json", "report.json"


@dataclass(frozen=True, slots=True)
class Rejection:
    """A line that failed as it was expected to."""

    line: int
    reason: str
    message: str


@dataclass(slots=True)
class Report:
    """report.json, filled while the scenario runs. `epochs` are the scenario's, without the final flush."""

    epochs: int = 0
    tuples: dict[str, int] = field(default_factory=dict)
    late_dropped: dict[str, int] = field(default_factory=dict)
    dead_letter: dict[str, int] = field(default_factory=dict)
    plans: list[PlanEvent] = field(default_factory=list)
    errors: list[Rejection] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class ResultWriter:
    """Appends delivered batches to results.jsonl."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.rows = 0

    def write(self, batch: ResultBatch, outputs: Sequence[str]) -> None:
        """Factorized results are written as the rows they stand for."""
        table = expand(batch.rows)
        for row in json_rows(table, outputs):
            line = {"query": batch.query_id, **row}
            self._file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
        self.rows += table.num_rows


def json_rows(rows: pa.RecordBatch | pa.Table, outputs: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows as {"window_start", "window_end", "revision", "row"}, in the values of JSON.

    `outputs` names the query's own columns, in its order. Selecting a window bound adds no second column to
    `rows`, but it is part of the query's row like everything else that was selected. Bounds are positions in count
    windows, and null without a window. Only queries that fold have revisions; a row of a join never changes.
    """
    columns = {name: _values(rows.column(i)) for i, name in enumerate(rows.schema.names)}
    chosen = [columns[name] for name in outputs]
    own = REVISION in columns and REVISION not in outputs  # a join may select a column of that name
    revisions = columns[REVISION] if own else [0] * rows.num_rows
    for i, (start, end) in enumerate(zip(columns["window_start"], columns["window_end"], strict=True)):
        row = {name: values[i] for name, values in zip(outputs, chosen, strict=True)}
        yield {"window_start": start, "window_end": end, "revision": revisions[i], "row": row}


def write_queries(folder: Path, queries: list[QueryInfo]) -> None:
    """One entry an id; of an id that was used again after its deletion, the last query."""
    entries = {
        q.id: {
            "sql": q.sql,
            "state": q.state.value,
            "active_from": q.active_from,
            "active_until": q.active_until,
            "rows": q.rows,
        }
        for q in queries
    }
    _write(folder / QUERIES, entries)


def write_report(folder: Path, report: Report) -> None:
    _write(folder / REPORT, report.to_json())


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _values(column: pa.Array) -> list[Any]:
    """A column as JSON values."""
    if pa.types.is_timestamp(column.type):
        return _plain(column.cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist())
    if pa.types.is_floating(column.type):
        return [v if v is None or math.isfinite(v) else _not_finite(v) for v in column.to_pylist()]
    return _plain(column.to_pylist())


def _plain(values: Any) -> list[Any]:
    return list(values)


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
