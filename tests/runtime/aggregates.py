"""Aggregates in plain Python, one value at a time, to compare the arrays with; and columns made of Python values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from optimizer.model.aggregates import BUILT_IN
from optimizer.model.expressions import Aggregate, ColumnRef, Compare, Literal, Value
from optimizer.model.types import INTEGERS, ColumnType
from runtime.columns.column import NUMPY_TYPES, ColumnData

BIGGEST = (1 << 63) - 1
WHERE = Compare("=", ColumnRef("s", "passed", ColumnType.BOOLEAN), Literal(True, ColumnType.BOOLEAN))


def column(type: ColumnType, values: Sequence[Any], texts: Sequence[str] = ()) -> ColumnData:
    """`texts`: a dictionary that holds at least the values, in any order and with repetitions."""
    known = [v is not None for v in values]
    valid = None if all(known) else np.array(known, bool)
    if type is not ColumnType.STRING:
        plain = [0 if v is None else v for v in values]
        return ColumnData(type, np.array(plain, NUMPY_TYPES[type]), valid)
    texts = list(texts) or sorted({v for v in values if v is not None}, reverse=True) or [""]
    codes = [0 if v is None else texts.index(v) for v in values]
    return ColumnData(type, np.array(codes, np.int32), valid, pa.array(texts, pa.string()))


def values_of(data: ColumnData) -> list[Any]:
    """As Python values; timestamps as milliseconds."""
    if data.type is ColumnType.TIMESTAMP:
        return [int(v) if m else None for v, m in zip(data.values, data.mask, strict=True)]
    return data.to_arrow().to_pylist()  # type: ignore[no-any-return]


def aggregate(
    function: str, types: Sequence[ColumnType], *, filtered: bool = False, parameters: tuple[Value, ...] = ()
) -> Aggregate:
    arguments = tuple(ColumnRef("s", f"c{i}", t) for i, t in enumerate(types))
    gives = BUILT_IN[function].gives if function in BUILT_IN else ColumnType.DOUBLE
    if function == "SUM" and types[0] in INTEGERS:
        gives = ColumnType.BIGINT
    return Aggregate(function, arguments, gives or types[0], parameters, WHERE if filtered else None)


def key(value: Any) -> Any:
    """Order of values: NaN after all others, texts by their UTF-8 bytes."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value


def expected(agg: Aggregate, rows: Sequence[tuple[Any, ...]]) -> Any:
    """`rows`: (time, passed, argument, ...) in order of arrival."""
    name = agg.function
    rows = [r for r in rows if r[1]] if agg.where is not None else list(rows)
    if not agg.arguments:
        return len(rows)
    if name in ("ARG_MIN", "ARG_MAX"):
        rows = [r for r in rows if r[3] is not None]
        if not rows:
            return None
        best = (min if name == "ARG_MIN" else max)(key(r[3]) for r in rows)
        firsts = [r[2] for r in rows if key(r[3]) == best]
        return min((v for v in firsts if v is not None), key=key, default=None)
    rows = [r for r in rows if r[2] is not None]
    values = [r[2] for r in rows]
    if name == "COUNT":
        return len(values)
    if name == "COUNT_DISTINCT":
        return len({key(v) for v in values})
    if not values:
        return None
    match name:
        case "SUM":
            total = _sum(values)
            return total if isinstance(total, float) or -BIGGEST - 1 <= total <= BIGGEST else None
        case "AVG":
            total = _sum(values)
            return total / len(values) if isinstance(total, float) else float(Fraction(total, len(values)))
        case "MIN" | "ANY_VALUE":
            return min(values, key=key)
        case "MAX":
            return max(values, key=key)
        case "FIRST":
            return min(rows, key=lambda r: r[0])[2]
        case "LAST":
            return max(reversed(rows), key=lambda r: r[0])[2]
        case "MEDIAN" | "QUANTILE":
            return _quantile(values, agg.parameters[0] if name == "QUANTILE" else 0.5)
        case _:
            return _spread(values, sample=not name.endswith("_POP"), root=name.startswith("STDDEV"))


def _sum(values: list[Any]) -> Any:
    if not isinstance(values[0], float):
        return sum(values)
    return math.fsum(values) if all(map(math.isfinite, values)) else float(sum(values))


def _quantile(values: list[Any], p: Any) -> float:
    ordered = sorted(values, key=key)
    position = p * (len(ordered) - 1)
    a, b = float(ordered[math.floor(position)]), float(ordered[math.ceil(position)])
    share = position - math.floor(position)
    return a if a == b or share == 0 else a + (b - a) * share


def _spread(values: list[Any], *, sample: bool, root: bool) -> float | None:
    if len(values) <= sample:
        return None
    if not all(math.isfinite(v) for v in values):
        return math.nan
    exact = [Fraction(v) for v in values]
    mean = sum(exact) / len(exact)
    variance = float(sum((v - mean) ** 2 for v in exact) / (len(exact) - sample))
    return math.sqrt(variance) if root else variance
