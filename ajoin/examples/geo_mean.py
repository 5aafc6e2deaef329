"""GEO_MEAN(x), the geometric mean of positive numbers.

    ajoin serve --plugin ajoin.examples.geo_mean
    SELECT k, GEO_MEAN(price) AS typical FROM trades GROUP BY k WINDOW TUMBLING (SIZE 1 MINUTE)

What is kept of a set of numbers is (how many, sum of logarithms, how many are not positive); the mean is NULL if one is
not. All three are sums, so combining adds and scaling multiplies.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ajoin.plugins import NUMBERS, AggregateFunction, AggregatePlugin, ColumnType, Parts, register_aggregate


def lift(x: Any) -> Parts:
    positive = x > 0
    logarithms = np.log(np.where(positive, x, 1.0))
    return np.ones(len(x), np.int64), logarithms, (~positive).astype(np.int64)


def combine(left: Parts, right: Parts) -> Parts:
    return tuple(l + r for l, r in zip(left, right, strict=True))


def invert(whole: Parts, part: Parts) -> Parts:
    return tuple(w - p for w, p in zip(whole, part, strict=True))


def scale(parts: Parts, times: Any) -> Parts:
    return tuple(p * times for p in parts)


def lower(parts: Parts) -> Any:
    count, logarithms, others = parts
    return np.exp(logarithms / np.maximum(count, 1)), others == 0


register_aggregate(
    AggregatePlugin(
        AggregateFunction("GEO_MEAN", (NUMBERS,), ColumnType.DOUBLE),
        (ColumnType.BIGINT, ColumnType.DOUBLE, ColumnType.BIGINT),
        lift,
        combine,
        lower,
        scale,
        invert,
    )
)
