"""The columns a query delivers, before it has delivered any.

A reader of a query without rows gets a table with the same columns and types as later with rows. So
nothing is described a second time: folds and lists give the schema of the batch that their writers make of nothing.
"""

from __future__ import annotations

import pyarrow as pa

from optimizer.model.query import FACTORIZED, Query
from optimizer.model.types import ColumnType
from runtime.connectors.base import ARROW_TYPES
from runtime.results.factorized import BOUNDS, Layout
from runtime.results.fold_rows import empty_fold_batch


def result_schema(query: Query) -> pa.Schema:
    if query.folds:
        return empty_fold_batch(query).schema
    own = {o.name: o.expr.type for o in query.outputs if o.name not in BOUNDS}
    columns = {name: pa.array([], ARROW_TYPES[type]) for name, type in own.items()}
    bounds = {name: pa.array([], ARROW_TYPES[ColumnType.TIMESTAMP]) for name in BOUNDS}
    if query.emit == FACTORIZED:
        layout = Layout.of([s.alias for s in query.sources], query.outputs)
        return layout.singles(list(bounds.values()), columns).schema
    return pa.schema([(name, array.type) for name, array in (bounds | columns).items()])
