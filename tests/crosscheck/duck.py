"""DuckDB as a second opinion about SQL, and everything in which its SQL is written differently.

The oracle (tests/oracle) computes what a *bound* query must deliver, and it is bound by the product's own parser: a
wrong reading of the text would be made on both sides and cancel out. DuckDB shares nothing with us but the text. Where
its dialect differs, that text is adapted, and nowhere else:

- `INT / INT` divides towards zero; DuckDB's `/` is DOUBLE division and its `//` divides towards zero. Written `//`.
- An integer divided by zero is NULL, a DOUBLE is IEEE; in DuckDB both are errors, unless it is told so (`SETTINGS`).
- NaN equals nothing; in DuckDB it equals itself and is the greatest number. Where a DOUBLE is compared (also by BETWEEN
  and as a join key), DuckDB gets a macro: `eq(a, b)` for `a = b`, and so on.
- `1.5` is a DOUBLE; in DuckDB a DECIMAL. Written `1.5e0`.
- TIMESTAMPs are milliseconds and their difference is a BIGINT; in DuckDB it is an INTERVAL. Columns are BIGINT there,
  and constants go through `epoch_ms(TIMESTAMP '...')` and the macro `in_ms(INTERVAL '...')`.
- Integers wrap around when they overflow; in DuckDB that is an error, and the expression is left out. (That they wrap
  is tested in tests/runtime/test_evaluate.py.)
- Functions that never fail, or do what Flink does (docs/sql.md), go through macros: `our_sqrt`, `our_ln`, and
  `our_extract` of milliseconds. NULL in CONCAT is `||`'s, GREATEST and LEAST of NULL are NULL, NULLIF compares NaN like
  `=`, casts to integers cut off.
- `WINDOW ...` and `EMIT ...` are left out: DuckDB is asked once per window, over the tuples of that window, and
  `window_start` and `window_end` are replaced by numbers. A count of 0 is no row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from optimizer.model.types import ColumnType as T
from runtime.connectors.base import ARROW_TYPES

SETTINGS = ("SET error_on_division_by_zero = false", "SET ieee_floating_point_ops = true", "SET threads = 1")
_UNORDERED = (
    "CREATE MACRO {name}(a, b) AS CASE WHEN a IS NULL OR b IS NULL THEN NULL "
    "WHEN isnan(a::DOUBLE) OR isnan(b::DOUBLE) THEN {nan} ELSE a {op} b END"
)
MACROS = (
    *(
        _UNORDERED.format(name=name, op=op, nan=name == "ne")
        for name, op in (("eq", "="), ("ne", "<>"), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="))
    ),
    "CREATE MACRO our_sqrt(x) AS CASE WHEN x < 0 THEN 'nan'::DOUBLE ELSE sqrt(x::DOUBLE) END",
    "CREATE MACRO our_ln(x) AS CASE WHEN x < 0 THEN 'nan'::DOUBLE WHEN x = 0 THEN '-inf'::DOUBLE "
    "ELSE ln(x::DOUBLE) END",
    "CREATE MACRO our_extract(unit, t) AS CASE unit WHEN 'DOW' THEN date_part('dow', epoch_ms(t)) + 1 "
    "WHEN 'MILLISECOND' THEN date_part('millisecond', epoch_ms(t)) % 1000 "
    "WHEN 'EPOCH' THEN CAST(floor(t / 1000) AS BIGINT) ELSE date_part(unit, epoch_ms(t)) END",
    "CREATE MACRO in_ms(i) AS CAST(date_part('epoch', i) * 1000 AS BIGINT)",
)


def connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for statement in (*SETTINGS, *MACROS):
        connection.execute(statement)
    return connection


def create_table(
    connection: duckdb.DuckDBPyConnection, name: str, columns: Mapping[str, T], rows: Sequence[Mapping[str, Any]]
) -> None:
    """A table that holds the rows; TIMESTAMPs as milliseconds."""
    arrays = {
        c: pa.array([r[c] for r in rows], pa.int64() if t is T.TIMESTAMP else ARROW_TYPES[t])
        for c, t in columns.items()
    }
    table = pa.table(arrays)
    connection.register("incoming", table)
    connection.execute(f'CREATE OR REPLACE TABLE "{name}" AS SELECT * FROM incoming')
    connection.unregister("incoming")
