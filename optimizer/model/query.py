"""What a user asked for: a bound windowed join query, independent of how it will run.

A JoinQuery says, for every window w of `window`: take the tuples of each source with event time in w that pass that
source's selection, join them on the equi predicates (NULL never matches), keep the combinations for which every
residual predicate is TRUE, and give the outputs. It is a frozen value: equal queries are equal objects.

How the combinations are delivered is part of the query: as rows, as lists whose cross product they are (FACTORIZED),
or only counted per window (an output that is COUNT(*)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from optimizer.model.expressions import ColumnRef, CountAll, Expr, WindowBound, aliases_of, columns_of
from optimizer.model.types import ColumnType
from optimizer.model.windows import Window

ROWS: Final = "ROWS"
FACTORIZED: Final = "FACTORIZED"
COUNT: Final = "COUNT"
"""Not written in SQL: it follows from an output that is COUNT(*)."""


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
class JoinQuery:
    """`selections` pairs an alias with the conjunction of its single-stream conditions; aliases without one are absent.

    A condition without any column (`1 = 0`) is a selection of the first source. `emit` is ROWS or FACTORIZED.
    """

    sql: str
    sources: tuple[Source, ...]
    window: Window
    selections: tuple[tuple[str, Expr], ...]
    equi: tuple[EquiPredicate, ...]
    residual: tuple[Expr, ...]
    outputs: tuple[Output, ...]
    emit: str = ROWS

    @property
    def counts(self) -> bool:
        """One row per window with the number of its combinations, delivered when the window closes."""
        return any(isinstance(o.expr, CountAll) for o in self.outputs)

    @property
    def sink_mode(self) -> str:
        """How the combinations are delivered: ROWS, FACTORIZED or COUNT."""
        return COUNT if self.counts else self.emit

    @property
    def streams(self) -> frozenset[str]:
        return frozenset(s.stream for s in self.sources)

    def stream_of(self, alias: str) -> str:
        return next(s.stream for s in self.sources if s.alias == alias)

    def needed_columns(self, alias: str) -> frozenset[str]:
        """Columns of one source that must live on after selection: keys, residuals and outputs."""
        exprs: list[Expr] = [*self.residual, *(o.expr for o in self.outputs)]
        exprs += [side for p in self.equi for side in (p.left, p.right)]
        return frozenset(c.column for e in exprs for c in columns_of(e) if c.alias == alias)


__all__ = ["EquiPredicate", "JoinQuery", "Output", "Source", "WindowBound", "aliases_of"]
