"""How many rows may be made at a time, so that their columns stay below about BYTES.

Columns are numbers and codes of texts until a batch is made or two texts are compared; then every row has its texts in
full. A hot key of rows with long texts would fill any memory (and more than 2 GB of text do not fit into one Arrow
array), so rows with long texts are taken fewer at a time. Assumed is the longest text of every bucket the rows are in:
it is known without looking at the rows, and costs nothing as long as texts are not long.
"""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.model import expressions as ex
from optimizer.model.plan import Leaf
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
        self._columns = max((len(sink.outputs) for sink in sinks), default=0) + 2

    def most_rows(self, directory: Directory, refs: Refs) -> int:
        longest = {
            (leaf, column): directory.longest_text(refs[leaf].buckets, column)
            for leaf, column in frozenset().union(*self._texts)
        }
        texts = max((sum(longest[t] for t in each) for each in self._texts), default=0)
        return max(1, BYTES // (8 * self._columns + texts))


def _texts(sink: SinkSpec) -> Texts:
    leaves = dict(sink.leaves)
    read = [c for e in (*sink.checks, *(o.expr for o in sink.outputs)) for c in ex.columns_of(e)]
    return frozenset((leaves[c.alias], c.column) for c in read if c.type is ColumnType.STRING)
