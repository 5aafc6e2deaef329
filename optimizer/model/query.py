"""What a user asked for: a bound query over one stream or a join of several, independent of how it will run.

For every window w of `window`: take the tuples of each source with event time in w that pass that source's selection,
join them on the equi predicates (NULL never matches), and keep the combinations for which every residual predicate is
TRUE. What is made of them is part of the query:

- rows: one per combination, with the outputs;
- FACTORIZED: the same rows as lists whose cross product they are;
- FOLD: one row per group of equal `groups` values, whose outputs are computed from aggregates over the group, if
  `having` is TRUE for it; delivered when the window closes, and again when a late tuple changes it.

It is a frozen value: equal queries are equal objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from optimizer.model.expressions import Aggregate, ColumnRef, Expr, WindowBound, aggregates_of, aliases_of, columns_of
from optimizer.model.types import ColumnType
from optimizer.model.windows import Window

ROWS: Final = "ROWS"
FACTORIZED: Final = "FACTORIZED"
FOLD: Final = "FOLD"
"""Not written in SQL: it follows from an aggregate or GROUP BY."""


@dataclass(frozen=True, slots=True)
class Source:
    alias: str
    stream: str


@dataclass(frozen=True, slots=True)
class EquiPredicate:
    """left = right between two different sources, compared as `type`."""

    left: ColumnRef
    right: ColumnRef
    type: ColumnType


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class Query:
    """`selections` pairs an alias with the conjunction of its single-stream conditions; aliases without one are absent.

    A condition without any column (`1 = 0`) is a selection of the first source. `emit` is ROWS or FACTORIZED. Outputs
    and `having` of a query that folds consist of aggregates, GroupRefs, window bounds and constants. `state_ttl_ms`:
    count windows begin anew in a group after a longer pause, in event time; None: never. Of sessions it is at least the
    gap, and says nothing new.
    """

    sql: str
    sources: tuple[Source, ...]
    window: Window
    selections: tuple[tuple[str, Expr], ...]
    equi: tuple[EquiPredicate, ...]
    residual: tuple[Expr, ...]
    outputs: tuple[Output, ...]
    emit: str = ROWS
    groups: tuple[Expr, ...] = ()
    having: Expr | None = None
    state_ttl_ms: int | None = None

    @property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """All that occur in the outputs and in HAVING, each once, in order of appearance."""
        exprs = [o.expr for o in self.outputs] + ([] if self.having is None else [self.having])
        return tuple(dict.fromkeys(a for e in exprs for a in aggregates_of(e)))

    @property
    def folds(self) -> bool:
        """One row per group and window, delivered when the window closes."""
        return bool(self.groups) or bool(self.aggregates)

    @property
    def sink_mode(self) -> str:
        """How the combinations are delivered: ROWS, FACTORIZED or FOLD."""
        return FOLD if self.folds else self.emit

    @property
    def streams(self) -> frozenset[str]:
        return frozenset(s.stream for s in self.sources)

    def stream_of(self, alias: str) -> str:
        return next(s.stream for s in self.sources if s.alias == alias)

    def needed_columns(self, alias: str) -> frozenset[str]:
        """Columns of one source that must live on after selection: keys, residuals, groups and outputs."""
        exprs: list[Expr] = [*self.residual, *self.groups, *(o.expr for o in self.outputs)]
        exprs += [] if self.having is None else [self.having]
        exprs += [side for p in self.equi for side in (p.left, p.right)]
        return frozenset(c.column for e in exprs for c in columns_of(e) if c.alias == alias)


__all__ = ["EquiPredicate", "Output", "Query", "Source", "WindowBound", "aliases_of"]
