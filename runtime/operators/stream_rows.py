"""Rows of queries over one stream: each tuple that passes, delivered by the task that reads it.

Without a window a tuple is one row, whose window bounds are NULL; with one it is a row of every window that holds it.
Nothing is kept. Rows are laid out in pieces (combinations.WINDOWED at a time, fewer where texts are long).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from optimizer.model import expressions as ex
from optimizer.model.types import ColumnType
from runtime.columns.column import ColumnData, compacted
from runtime.columns.evaluate import Lookup, evaluate
from runtime.execution.physical import SinkSpec
from runtime.operators.combinations import WINDOWED
from runtime.operators.row_widths import BYTES
from runtime.results.factorized import BOUNDS
from runtime.results.segment import SegmentWriter
from runtime.windows.registry import aligned, logic_of

I64 = npt.NDArray[np.int64]
Columns = Callable[[str], ColumnData]


def deliver_tuples(
    sink: SinkSpec, wanted: npt.NDArray[np.bool_], times: I64, column: Columns, writer: SegmentWriter
) -> None:
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return
    longest = max((_longest(column(c.column)) for o in sink.outputs for c in ex.columns_of(o.expr)), default=0)
    most = max(1, min(WINDOWED, BYTES // max(longest, 1)))
    for piece, bounds in _windows(sink, rows, times, most):
        writer.append(sink.uid, _batch(sink, piece, bounds, column))


def _longest(data: ColumnData) -> int:
    if data.dictionary is None or not len(data.dictionary):
        return 0
    offsets, _ = data.dictionary_arrays()
    return int(np.diff(offsets).max())


def _windows(
    sink: SinkSpec, rows: npt.NDArray[np.int64], times: I64, most: int
) -> Iterator[tuple[npt.NDArray[np.int64], tuple[I64, I64] | None]]:
    """Rows in pieces, each with the starts and ends of its windows."""
    if not aligned(sink.window):
        for first in range(0, len(rows), most):
            yield rows[first : first + most], None
        return
    logic = logic_of(sink.window)
    mine = times[rows]
    for which, starts in logic.holding(mine, mine, sink.active_from).pieces(most):
        yield rows[which], (starts, logic.ends(starts))


def _batch(
    sink: SinkSpec, rows: npt.NDArray[np.int64], bounds: tuple[I64, I64] | None, column: Columns
) -> pa.RecordBatch:
    n = len(rows)
    if bounds is None:
        none = ColumnData(ColumnType.TIMESTAMP, np.zeros(n, np.int64), np.zeros(n, bool))
        window = dict.fromkeys(BOUNDS, none)
    else:
        window = {name: ColumnData(ColumnType.TIMESTAMP, b) for name, b in zip(BOUNDS, bounds, strict=True)}
    read = _lookup(rows, window, column)
    columns = {name: w.to_arrow() for name, w in window.items()}
    columns |= {o.name: evaluate(o.expr, read, n).to_arrow() for o in sink.outputs if o.name not in columns}
    return pa.RecordBatch.from_pydict(columns)


def _lookup(rows: npt.NDArray[np.int64], window: dict[str, ColumnData], column: Columns) -> Lookup:
    fetched: dict[str, ColumnData] = {}

    def read(ref: ex.ColumnRef | ex.WindowBound) -> ColumnData:
        if isinstance(ref, ex.WindowBound):
            return window[ref.which]
        if ref.column not in fetched:
            fetched[ref.column] = compacted(column(ref.column).take(rows))
        return fetched[ref.column]

    return read
