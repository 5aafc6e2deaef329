"""Conditions that make texts, evaluated a few rows at a time, so that the texts of one piece stay below about BYTES.

A selection is evaluated on all tuples of a batch at once, or on a whole dictionary. CONCAT and REPLACE may make texts
there that are many times as long as those they read, so the rows of a piece are counted by the longest text that the
columns hold (optimizer.model.text_widths). Conditions without such functions are evaluated as they always were.
"""

from __future__ import annotations

import numpy as np

from optimizer.model import expressions as ex
from optimizer.model.text_widths import made_texts
from runtime.columns.column import ColumnData, Mask
from runtime.columns.evaluate import Lookup, truth

BYTES = 1 << 26


def truth_in_pieces(expr: ex.Expr, lookup: Lookup, rows: int) -> Mask:
    """`truth` of the same arguments."""
    width = made_texts(expr, lambda ref: _longest(lookup(ref)))
    most = max(1, BYTES // width) if width else rows
    if most >= rows:
        return truth(expr, lookup, rows)
    passed = np.zeros(rows, bool)
    for start in range(0, rows, most):
        piece = slice(start, min(start + most, rows))
        passed[piece] = truth(expr, _reading(lookup, piece), piece.stop - start)
    return passed


def _longest(column: ColumnData) -> int:
    """Bytes of the longest text."""
    if column.dictionary is None or len(column.dictionary) == 0:
        return 0
    offsets, _ = column.dictionary_arrays()
    return int(np.diff(offsets).max())


def _reading(lookup: Lookup, piece: slice) -> Lookup:
    def part(ref: ex.Expr) -> ColumnData:
        whole = lookup(ref)
        valid = None if whole.valid is None else whole.valid[piece]
        return ColumnData(whole.type, whole.values[piece], valid, whole.dictionary)

    return part
