"""Rows of queries that fold, made when their windows close: combine partials, compute, look at HAVING, write.

At most about ROWS rows are made at a time. Integer sums that do not fit are NULL, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from optimizer.model import expressions as ex
from runtime.aggregates.components import Component, components_of, lower, overflows
from runtime.aggregates.states import State
from runtime.columns.column import ColumnData
from runtime.columns.evaluate import Lookup, truth
from runtime.execution.folding import aggregate_on_leaves
from runtime.operators.closing import ClosingQuery, Mask, Windows
from runtime.operators.open_partials import Open
from runtime.results.factorized import BOUNDS
from runtime.results.fold_rows import fold_batch
from runtime.results.segment import SegmentWriter

I64 = npt.NDArray[np.int64]

ROWS = 1 << 18


class ClosedRows:
    """Of one query."""

    def __init__(self, open: Open, q: ClosingQuery, writer: SegmentWriter) -> None:
        self._open, self._q, self._writer = open, q, writer
        self._query = q.query.query
        self._aggregates = {a: aggregate_on_leaves(q.query, a) for a in self._query.aggregates}
        self.overflows = 0

    def having(self, rows: Windows) -> Mask:
        assert self._query.having is not None
        return truth(self._query.having, self._lookup(rows, count=False), len(rows.groups))

    def write(self, rows: Windows) -> None:
        for first in range(0, len(rows.groups), ROWS):
            whole = len(rows.groups) <= ROWS
            self._write(rows if whole else rows.take(np.arange(first, min(first + ROWS, len(rows.groups)))))

    def _write(self, rows: Windows) -> None:
        if self._query.having is not None:
            passed = self.having(rows)
            if not passed.any():
                return
            rows = rows if passed.all() else rows.take(np.flatnonzero(passed))
        read = self._lookup(rows, count=True)
        self._writer.append(self._q.query.uid, fold_batch(self._query, read, rows.revisions, len(rows.groups)))

    def write_pieces(self, rows: Windows, uids: Sequence[str], bounds: I64, overflows: dict[str, int]) -> None:
        """Rows of several queries that select the same: rows bounds[i] to bounds[i + 1] - 1 are those of `uids[i]`."""
        if self._query.having is not None and len(rows.groups):
            passed = self.having(rows)
            if not passed.all():
                rows = rows.take(np.flatnonzero(passed))
                bounds = np.append(0, np.cumsum(passed))[bounds]
        if not len(rows.groups):
            return
        batch = fold_batch(self._query, self._lookup(rows, count=True), rows.revisions, len(rows.groups))
        too_many, self.overflows = self.overflows, 0
        for uid, first, end in zip(uids, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            if end > first:
                self._writer.append(uid, batch.slice(first, end - first))
                if too_many and (found := self._overflows(rows.take(np.arange(first, end)))):
                    overflows[uid] = overflows.get(uid, 0) + found

    def _overflows(self, rows: Windows) -> int:
        """Of these rows alone."""
        read = self._lookup(rows, count=True)
        for aggregate in self._aggregates:
            read(aggregate)
        found, self.overflows = self.overflows, 0
        return found

    def _lookup(self, rows: Windows, *, count: bool) -> Lookup:
        states: dict[Component, State] = {}
        combined = rows.combined or self._open.combining(rows.order, rows.offsets)
        bounds = dict(zip(BOUNDS, (rows.starts, rows.ends), strict=True))
        known: dict[Any, ColumnData] = {}

        def read(part: ex.WindowBound | ex.GroupRef | ex.Aggregate) -> ColumnData:
            if part not in known:
                known[part] = value(part)
            return known[part]

        def value(part: ex.WindowBound | ex.GroupRef | ex.Aggregate) -> ColumnData:
            match part:
                case ex.WindowBound(which, type):
                    return ColumnData(type, bounds[which])
                case ex.GroupRef(index):
                    return self._open.key(index, rows.groups)
                case ex.Aggregate():
                    on_leaves = self._aggregates[part]
                    for c in components_of(on_leaves):
                        states[c] = combined(c)
                    if count:
                        self.overflows += overflows(on_leaves, states)
                    return lower(on_leaves, states)

        return read
