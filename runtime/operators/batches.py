"""Rows of several queries that select the same columns, made together and cut apart.

With a thousand queries a flush has a thousand small parts, and fetching every column of each on its own costs more in
calls than in bytes. Queries that select the same (`SinkSpec.output_class`) are therefore put one after the other: a
column is fetched once for all of them, and each query's batch is a slice of that, without a copy until it is written.

At most about `TOGETHER` rows are made at a time, which bounds the memory and keeps them in the processor's caches. The
order of a query's own rows, and so what it gets, is the same as if it were alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from optimizer.model import expressions as ex
from optimizer.model.query import FACTORIZED
from optimizer.model.types import ColumnType
from runtime.columns.column import ColumnData
from runtime.columns.evaluate import Lookup, evaluate
from runtime.execution.physical import SinkSpec
from runtime.operators.combinations import Combinations, Part
from runtime.operators.inputs import joined_up
from runtime.results.factorized import BOUNDS, Layout
from runtime.results.segment import SegmentWriter
from runtime.windows.registry import logic_of

TOGETHER = 1 << 15
ALONE = 1 << 12
"""So many rows are worth calls of their own."""

Starts = npt.NDArray[np.int64]


class _Waiting(NamedTuple):
    """A query's combinations, one per window they are in, with the starts of the windows."""

    sink: SinkSpec
    part: Part
    starts: Starts


class Batches:
    """The batches of one flush."""

    def __init__(self, combinations: Combinations, writer: SegmentWriter) -> None:
        self._combinations, self._writer = combinations, writer
        self._waiting: dict[int, list[_Waiting]] = {}
        self._rows: dict[int, int] = {}

    def add(self, sink: SinkSpec, part: Part, starts: Starts) -> None:
        """To be written now, or together with others that select the same."""
        if len(starts) >= ALONE:
            self._make([_Waiting(sink, part, starts)])
            return
        together = sink.output_class
        if self._rows.get(together, 0) + len(starts) > min(TOGETHER, self._combinations.most):
            self._write(together)
        self._waiting.setdefault(together, []).append(_Waiting(sink, part, starts))
        self._rows[together] = self._rows.get(together, 0) + len(starts)

    def flush(self) -> None:
        for output_class in list(self._waiting):
            self._write(output_class)

    def _write(self, output_class: int) -> None:
        self._rows.pop(output_class, None)
        if parts := self._waiting.pop(output_class, []):
            self._make(parts)

    def _make(self, parts: list[_Waiting]) -> None:
        first = parts[0].sink
        start = joined_up([p.starts for p in parts])
        end = joined_up([logic_of(p.sink.window).ends(p.starts) for p in parts])
        bounds = dict(zip(BOUNDS, (start, end), strict=True))
        if len(parts) == 1:
            self._writer.append(first.uid, _batch(first, parts[0].part, bounds))
            return
        batch = _batch(first, self._combinations.part(joined_up([p.part.rows for p in parts])), bounds)
        at = 0
        for sink, _, starts in parts:
            self._writer.append(sink.uid, batch.slice(at, len(starts)))
            at += len(starts)


def _batch(sink: SinkSpec, part: Part, bounds: dict[str, Starts]) -> pa.RecordBatch:
    read = lookup(sink, part, bounds)
    window = [ColumnData(ColumnType.TIMESTAMP, v).to_arrow() for v in bounds.values()]
    own = [o for o in sink.outputs if o.name not in bounds]  # a selected window bound keeps its one column
    columns = {o.name: evaluate(o.expr, read, len(part.rows)).to_arrow() for o in own}
    if sink.mode == FACTORIZED:
        return Layout.of([alias for alias, _ in sink.leaves], sink.outputs).singles(window, columns)
    return pa.RecordBatch.from_arrays([*window, *columns.values()], [*bounds, *columns])


def lookup(sink: SinkSpec, part: Part, bounds: dict[str, Starts]) -> Lookup:
    """Where the query's expressions read: columns of its sources, and the bounds of windows once they are known."""
    leaves = dict(sink.leaves)

    def read(ref: ex.ColumnRef | ex.WindowBound) -> ColumnData:
        if isinstance(ref, ex.WindowBound):
            return ColumnData(ColumnType.TIMESTAMP, bounds[ref.which])
        return part.column(leaves[ref.alias], ref.column, ref.type)

    return read
