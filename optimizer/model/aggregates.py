"""The aggregate functions by name: what they take, what they give, and what must be kept to compute them.

A function is decomposable if its value follows from a *partial* of constant size that can be combined (Scotty's lift,
combine, lower); holistic if all values are needed. Which arrays a partial has is the runtime's business
(runtime.aggregates); this table is what SQL, the optimizer and explain need to know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.model.types import NUMBERS, ColumnType

ANY = frozenset(ColumnType)

LISTS = frozenset({"runs", "sketch"})
"""Kinds whose entries are lists; their size depends on the data."""


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """`arguments`: for each argument the types it may have. `gives`: the type of the result; None: that of the first
    argument. `keeps`: the kinds of what is kept of tuples, each once whatever number of functions needs it; of one that
    is plugged in, under its own name. `parameters`: how many constants follow the arguments. `ordered`: it depends on
    the order of tuples, so it takes one stream. `holistic`: it needs all values."""

    name: str
    arguments: tuple[frozenset[ColumnType], ...]
    gives: ColumnType | None
    keeps: tuple[str, ...] = ()
    parameters: int = 0
    ordered: bool = False
    holistic: bool = False


_D = ColumnType.DOUBLE

BUILT_IN: Mapping[str, AggregateFunction] = {
    f.name: f
    for f in (
        AggregateFunction("COUNT", (ANY,), ColumnType.BIGINT, ("count",)),
        AggregateFunction("SUM", (NUMBERS,), None, ("sum",)),
        AggregateFunction("AVG", (NUMBERS,), _D, ("sum", "count")),
        AggregateFunction("MIN", (ANY,), None, ("min",)),
        AggregateFunction("MAX", (ANY,), None, ("max",)),
        AggregateFunction("STDDEV", (NUMBERS,), _D, ("moments",)),
        AggregateFunction("STDDEV_POP", (NUMBERS,), _D, ("moments",)),
        AggregateFunction("VARIANCE", (NUMBERS,), _D, ("moments",)),
        AggregateFunction("VARIANCE_POP", (NUMBERS,), _D, ("moments",)),
        AggregateFunction("ANY_VALUE", (ANY,), None, ("min",)),
        AggregateFunction("ARG_MIN", (ANY, ANY), None, ("arg_min",)),
        AggregateFunction("ARG_MAX", (ANY, ANY), None, ("arg_max",)),
        AggregateFunction("FIRST", (ANY,), None, ("first",), ordered=True),
        AggregateFunction("LAST", (ANY,), None, ("last",), ordered=True),
        AggregateFunction("MEDIAN", (NUMBERS,), _D, ("runs",), holistic=True),
        AggregateFunction("QUANTILE", (NUMBERS,), _D, ("runs",), parameters=1, holistic=True),
        AggregateFunction("COUNT_DISTINCT", (ANY,), ColumnType.BIGINT, ("runs",), holistic=True),
        AggregateFunction("APPROX_COUNT_DISTINCT", (ANY,), ColumnType.BIGINT, ("sketch",)),
    )
}
"""SUM of INT or BIGINT is a BIGINT, of DOUBLE a DOUBLE. ANY_VALUE gives the smallest value; of equal minima or maxima
ARG_MIN and ARG_MAX take the smallest first argument: so neither depends on the order of tuples."""

OTHER_NAMES: Mapping[str, str] = {
    "STDDEV_SAMP": "STDDEV",
    "VAR_SAMP": "VARIANCE",
    "VARIANCE_SAMP": "VARIANCE",
    "VAR_POP": "VARIANCE_POP",
    "FIRST_VALUE": "FIRST",
    "LAST_VALUE": "LAST",
    "MIN_BY": "ARG_MIN",
    "MAX_BY": "ARG_MAX",
    "APPROX_DISTINCT": "APPROX_COUNT_DISTINCT",
    "PERCENTILE_CONT": "QUANTILE",
    "QUANTILE_CONT": "QUANTILE",
}
"""What other systems call some of them."""
