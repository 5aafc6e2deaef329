"""What an aggregate function makes of the values of a group: one function over plain lists, exact where it can be.

Values come in order of event time, ties in order of arrival, which only FIRST and LAST need. NULLs are left out before
anything is computed, so a function that is left with no value gives NULL (COUNT gives 0). Sums and means are computed
with fractions and rounded once: an engine may add in any order, so it is compared with a tolerance (compare.py), and
the tolerance is all its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from optimizer.model.expressions import Aggregate
from optimizer.model.types import ColumnType
from tests.oracle.rows import freeze_value
from tests.oracle.values import evaluate

Rows = Mapping[str, Mapping[str, Any]]


def aggregate(call: Aggregate, members: Sequence[Rows], window: tuple[int, int]) -> Any:
    """`members`: what belongs to the group and the window, each as alias -> tuple, in order."""
    kept = [m for m in members if call.where is None or evaluate(call.where, m, window) is True]
    if not call.arguments:
        return len(kept)
    arguments = [[evaluate(a, m, window) for a in call.arguments] for m in kept]
    if call.function in ("ARG_MIN", "ARG_MAX"):
        return _arg(call.function, [(x, y) for x, y in arguments if y is not None])
    values = [x for (x,) in arguments if x is not None]
    if call.function == "COUNT":
        return len(values)
    if call.function in ("COUNT_DISTINCT", "APPROX_COUNT_DISTINCT"):
        return len({freeze_value(v) for v in values})
    if not values:
        return None
    if call.function == "QUANTILE":
        return quantile(values, float(call.parameters[0]))  # type: ignore[arg-type]
    if call.function == "SUM":
        return _double(total(values)) if call.type == ColumnType.DOUBLE else _bigint(sum(values))
    return FUNCTIONS[call.function](values)


def quantile(values: Sequence[Any], p: float) -> float:
    """Linear interpolation between neighbours: percentile_cont."""
    ordered = sorted(float(v) for v in values)
    position = p * (len(ordered) - 1)
    below = math.floor(position)
    above = math.ceil(position)
    if below == above:
        return ordered[below]
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def mean(values: Sequence[Any]) -> Fraction | float:
    return total(values) / len(values)


def variance(values: Sequence[Any], degrees: int) -> float | None:
    """The squared distances from the mean, divided by `degrees`; NULL where SQL would divide by 0."""
    if degrees == 0:
        return None
    middle = mean(values)
    if isinstance(middle, float):
        return math.nan
    return _double(total([(Fraction(v) - middle) ** 2 for v in values]) / degrees)


def total(values: Sequence[Any]) -> Fraction | float:
    """Exact; a float (NaN or infinite) if one of the values is."""
    if any(isinstance(v, float) and not math.isfinite(v) for v in values):
        return sum(float(v) for v in values)
    return sum((Fraction(v) for v in values), Fraction(0))


def _arg(function: str, pairs: Sequence[tuple[Any, Any]]) -> Any:
    """x where y is smallest or largest; of several, the smallest x, and NULL only if there is no other."""
    if not pairs:
        return None
    best = (min if function == "ARG_MIN" else max)(y for _, y in pairs)
    candidates = [x for x, y in pairs if y == best and x is not None]
    return min(candidates, default=None)


def _root(value: float | None) -> float | None:
    return None if value is None else math.sqrt(value)


def _bigint(value: int) -> int | None:
    return value if -(1 << 63) <= value < 1 << 63 else None


def _double(value: Fraction | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


FUNCTIONS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "AVG": lambda values: _double(mean(values)),
    "MIN": min,
    "MAX": max,
    "VARIANCE": lambda values: variance(values, len(values) - 1),
    "VARIANCE_POP": lambda values: variance(values, len(values)),
    "STDDEV": lambda values: _root(variance(values, len(values) - 1)),
    "STDDEV_POP": lambda values: _root(variance(values, len(values))),
    "MEDIAN": lambda values: quantile(values, 0.5),
    "ANY_VALUE": min,
    "FIRST": lambda values: values[0],
    "LAST": lambda values: values[-1],
}
"""All that take one value after the other and find at least one; the others are told apart in `aggregate`."""
