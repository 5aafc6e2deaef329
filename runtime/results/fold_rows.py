"""Rows of queries that fold, as batches of the result log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from optimizer.model import expressions as ex
from optimizer.model.query import Query
from optimizer.model.types import ColumnType
from optimizer.model.windows import CountWindow
from runtime.columns.column import NUMPY_TYPES, ColumnData
from runtime.columns.evaluate import Lookup, evaluate
from runtime.results.factorized import BOUNDS

REVISION = "revision"


def fold_batch(query: Query, read: Lookup, revisions: Any, rows: int) -> pa.RecordBatch:
    """window_start, window_end, revision, then the outputs; a selected window bound keeps its one column. The bounds of
    count windows are positions."""
    kind = ColumnType.BIGINT if isinstance(query.window, CountWindow) else ColumnType.TIMESTAMP
    columns = {name: read(ex.WindowBound(name, kind)).to_arrow() for name in BOUNDS}
    columns[REVISION] = pa.array(revisions, pa.int32())
    for output in query.outputs:
        if output.name not in columns:
            columns[output.name] = evaluate(output.expr, read, rows).to_arrow()
    return pa.RecordBatch.from_pydict(columns)


def empty_fold_batch(query: Query) -> pa.RecordBatch:
    """What a query delivers, before it has delivered anything."""

    def read(part: ex.Expr) -> ColumnData:
        dictionary = pa.array([], pa.string()) if part.type is ColumnType.STRING else None
        return ColumnData(part.type, np.empty(0, NUMPY_TYPES[part.type]), None, dictionary)

    return fold_batch(query, read, np.empty(0, np.int32), 0)
