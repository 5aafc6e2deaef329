"""How many rows may be made at a time, so that their columns stay below about BYTES.

Columns are numbers and codes of texts until a batch is made or two texts are compared; then every row has its texts in
full, and so are the texts that functions make of them. A hot key of rows with long texts would fill any memory (and
more than 2 GB of text do not fit into one Arrow array), so rows with long texts are taken fewer at a time. Assumed is
the longest text of every bucket the rows are in: it is known without looking at the rows, and costs nothing as long as
texts are not long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from optimizer.model import expressions as ex
from optimizer.model.plan import Leaf
from optimizer.model.text_widths import made_texts
from optimizer.model.types import ColumnType
from runtime.execution.physical import SinkSpec
from runtime.operators.combinations import Refs
from runtime.operators.inputs import Directory

BYTES = 1 << 28

Texts = frozenset[tuple[Leaf, str]]


class RowWidths:
    """Of rows as the given queries read them."""

    def __init__(self, sinks: Sequence[SinkSpec]) -> None:
        self._texts = {_texts(sink) for sink in sinks}
        self._made = [(dict(sink.leaves), made) for sink in sinks if (made := _makers(sink))]
        self._columns = max((len(sink.outputs) for sink in sinks), default=0) + 2

    def most_rows(self, directory: Directory, refs: Refs) -> int:
        longest = {
            (leaf, column): directory.longest_text(refs[leaf].buckets, column)
            for leaf, column in frozenset().union(*self._texts)
        }
        texts = max((sum(longest[t] for t in each) for each in self._texts), default=0)
        made = max((_made(expressions, leaves, longest) for leaves, expressions in self._made), default=0)
        return max(1, BYTES // (8 * self._columns + texts + made))


def most_tuples(directory: Directory, bucket: int, expressions: Sequence[ex.Expr]) -> int:
    """Of one source bucket, if these expressions are computed."""
    read = {c.column for e in expressions for c in ex.columns_of(e) if c.type is ColumnType.STRING}
    longest = {column: directory.longest_text(np.array([bucket]), column) for column in read}
    made = sum(made_texts(e, lambda c: longest[c.column]) for e in expressions)
    return max(1, BYTES // (8 * (len(expressions) + 2) + sum(longest.values()) + made))


def _expressions(sink: SinkSpec) -> tuple[ex.Expr, ...]:
    return (*sink.checks, *sink.groups, *(o.expr for o in sink.outputs))


def _makers(sink: SinkSpec) -> list[ex.Expr]:
    return [e for e in _expressions(sink) if made_texts(e, lambda _: 1)]


def _made(expressions: list[ex.Expr], leaves: Mapping[str, Leaf], longest: Mapping[tuple[Leaf, str], int]) -> int:
    return sum(made_texts(e, lambda c: longest[leaves[c.alias], c.column]) for e in expressions)


def _texts(sink: SinkSpec) -> Texts:
    leaves = dict(sink.leaves)
    read = [c for e in _expressions(sink) for c in ex.columns_of(e)]
    return frozenset((leaves[c.alias], c.column) for c in read if c.type is ColumnType.STRING)
