"""Rows of COUNT(*) queries: what `control.counts` closed, as batches of the result log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from optimizer.model import expressions as ex
from optimizer.model.plan import RunningQuery
from optimizer.model.query import JoinQuery
from optimizer.model.types import ColumnType
from runtime.columns.column import ColumnData
from runtime.columns.evaluate import evaluate
from runtime.results.factorized import BOUNDS
from runtime.results.segment import Delivered, SegmentWriter

REVISION = "revision"


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """One row: the window's start, how often its row came before, and its number of combinations."""

    start: int
    revision: int
    count: int


def write(
    rows: Mapping[str, tuple[ClosedWindow, ...]], queries: Mapping[str, RunningQuery], to: SegmentWriter
) -> Delivered | None:
    for uid, closed in rows.items():
        to.append(uid, count_batch(queries[uid].query, closed))
    return to.finish()


def count_batch(query: JoinQuery, closed: tuple[ClosedWindow, ...]) -> pa.RecordBatch:
    """window_start, window_end, revision, then the outputs; a selected window bound keeps its one column."""
    starts = [c.start for c in closed]
    ends = [query.window.end(start) for start in starts]
    values = {
        BOUNDS[0]: ColumnData(ColumnType.TIMESTAMP, np.array(starts, np.int64)),
        BOUNDS[1]: ColumnData(ColumnType.TIMESTAMP, np.array(ends, np.int64)),
    }
    count = ColumnData(ColumnType.BIGINT, np.array([c.count for c in closed], np.int64))

    def lookup(expr: ex.WindowBound | ex.CountAll) -> ColumnData:
        return count if isinstance(expr, ex.CountAll) else values[expr.which]

    columns = {name: column.to_arrow() for name, column in values.items()}
    columns[REVISION] = pa.array([c.revision for c in closed], pa.int32())
    for output in query.outputs:
        if output.name not in columns:
            columns[output.name] = evaluate(output.expr, lookup, len(closed)).to_arrow()
    return pa.RecordBatch.from_pydict(columns)
