"""Components: what must be kept to answer aggregates, each only once however many aggregates need it.

AVG(x), SUM(x) and COUNT(x) of all queries with one grouping keep one sum and one count; STDDEV and VARIANCE share
moments; MEDIAN, every QUANTILE and COUNT(DISTINCT) of a column share its runs. A component is a frozen value, so a plan
can hold the union of what its queries need as a set, and find an aggregate's states in a mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.errors import InternalError
from optimizer.model.aggregates import BUILT_IN
from optimizer.model.expressions import Aggregate, Expr
from optimizer.model.types import INTEGERS, ColumnType
from runtime.aggregates import lowering, plugins
from runtime.aggregates.partials import State
from runtime.columns.column import ColumnData

_D, _I, _N, _T = ColumnType.DOUBLE, ColumnType.BIGINT, ColumnType.INT, ColumnType.TIMESTAMP


@dataclass(frozen=True, slots=True)
class Component:
    """`kind`: one that functions keep (optimizer.model.aggregates), or the name of a plug-in. `arguments` of `types`
    are what is folded, of the tuples for which `where` is TRUE (None: of all)."""

    kind: str
    arguments: tuple[Expr, ...]
    where: Expr | None
    types: tuple[ColumnType, ...]

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return self.arguments if self.where is None else (*self.arguments, self.where)

    @property
    def part_types(self) -> tuple[ColumnType, ...]:
        """Types of the parts of a state; the last part of a sum may be missing (runtime.aggregates.partials)."""
        match self.kind:
            case "count":
                return (_I,)
            case "sum":
                return (_I, _I) if self.types[0] in INTEGERS else (_D, _D)
            case "min" | "max":
                return (self.types[0],)
            case "moments":
                return (_I, _D, _D)
            case "first" | "last":
                return (_T, _I, _I, self.types[0])
            case "arg_min" | "arg_max":
                return (self.types[1], self.types[0])
            case "runs":
                return (self.types[0], _I)
            case "sketch":
                return (_N,)
            case name:
                return plugins.get(name).parts


def components_of(aggregate: Aggregate) -> tuple[Component, ...]:
    """What is kept for an aggregate. A name that is no built-in function is a plug-in, which must be registered."""
    known = BUILT_IN.get(aggregate.function)
    kinds = known.keeps if known is not None else (plugins.get(aggregate.function).name,)
    types = tuple(a.type for a in aggregate.arguments)
    return tuple(Component(kind, aggregate.arguments, aggregate.where, types) for kind in kinds)


def lower(aggregate: Aggregate, states: Mapping[Component, State]) -> ColumnData:
    """One value per entry of the states of `components_of(aggregate)`. A sum of integers that does not fit BIGINT is
    NULL; `overflows` counts these."""
    state, *more = (states[c] for c in components_of(aggregate))
    match aggregate.function:
        case "COUNT":
            return state.parts[0]
        case "SUM":
            return lowering.total(state)
        case "AVG":
            return lowering.mean(state, more[0])
        case "MIN" | "MAX" | "ANY_VALUE":
            return state.parts[0]
        case "ARG_MIN" | "ARG_MAX" | "FIRST" | "LAST":
            return lowering.chosen(state)
        case "VARIANCE" | "STDDEV":
            return lowering.spread(state, 1, root=aggregate.function == "STDDEV")
        case "VARIANCE_POP" | "STDDEV_POP":
            return lowering.spread(state, 0, root=aggregate.function == "STDDEV_POP")
        case "MEDIAN":
            return lowering.quantile(state, 0.5)
        case "QUANTILE":
            p = aggregate.parameters[0]
            if not isinstance(p, int | float) or not 0 <= p <= 1:
                raise InternalError(f"QUANTILE of {p!r}: a share between 0 and 1 was to be checked before")
            return lowering.quantile(state, float(p))
        case "COUNT_DISTINCT":
            return lowering.distinct(state)
        case "APPROX_COUNT_DISTINCT":
            return lowering.estimate(state)
        case name:
            return plugins.lowered(plugins.get(name), state, aggregate.type, aggregate.parameters)


def overflows(aggregate: Aggregate, states: Mapping[Component, State]) -> int:
    """How many values are NULL because a sum of integers does not fit BIGINT."""
    if aggregate.function != "SUM":
        return 0
    return lowering.overflowed(states[components_of(aggregate)[0]])
