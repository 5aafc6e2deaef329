"""Queries without SQL, of every kind: over one stream or several, any window, with groups and aggregates.

`fold_query("A", window=SessionWindow(10), group=["A.k"], select={"n": count()}, schemas=...)`. Columns are written as
"alias.column" everywhere, expressions are the model's own. What joins only is in builders.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from optimizer.model.aggregates import BUILT_IN
from optimizer.model.expressions import Aggregate, Arithmetic, ColumnRef, Compare, Expr, GroupRef, WindowBound
from optimizer.model.query import EquiPredicate, Output, Query, Source
from optimizer.model.types import INTEGERS, ColumnType, StreamSchema, common_type
from optimizer.model.windows import PeriodicWindow, Window
from tests.builders import PAPER, compare, literal

Item = Expr | str
"""An expression; a text is a column, `window_start`, `window_end`, or the number of a group item ("#0")."""


class Folding:
    """Binds texts for queries over the given sources ("A", or "A x" for an alias)."""

    def __init__(self, *sources: str, schemas: Mapping[str, StreamSchema] = PAPER) -> None:
        self.sources = tuple(Source(words[-1], words[0]) for words in (s.split() for s in sources))
        self.streams = {s.alias: schemas[s.stream] for s in self.sources}

    def column(self, text: str) -> ColumnRef:
        alias, name = text.strip().split(".")
        found = self.streams[alias].column(name)
        assert found is not None, f"{self.streams[alias].name} has no column {name}"
        return ColumnRef(alias, name, found.type)

    def item(self, item: Item, groups: Sequence[Expr] = ()) -> Expr:
        if not isinstance(item, str):
            return item
        if item.startswith("#"):
            return GroupRef(int(item[1:]), groups[int(item[1:])].type)
        return WindowBound(item) if item.startswith("window_") else self.column(item)

    def equality(self, text: str) -> EquiPredicate:
        left, right = (self.column(side) for side in text.split("="))
        kind = common_type(left.type, right.type)
        assert kind is not None, f"{text}: {left.type} and {right.type}"
        return EquiPredicate(left, right, kind)

    def agg(
        self, function: str, *arguments: Item, p: float | None = None, where: Expr | tuple[str, str, int] | None = None
    ) -> Aggregate:
        """`agg("SUM", "A.i")`; `p` of a QUANTILE; `where` is a condition or ("A.i", "<", 3)."""
        bound = tuple(self.item(a) for a in arguments)
        given = BUILT_IN[function].gives or bound[0].type
        if function == "SUM" and given in INTEGERS:
            given = ColumnType.BIGINT
        if isinstance(where, tuple):
            where = compare(self.column(where[0]), where[1], where[2])
        return Aggregate(function, bound, given, () if p is None else (p,), where)

    def query(
        self,
        *,
        window: Window | tuple[int, int] | int = 1000,
        group: Sequence[Item] = (),
        select: Mapping[str, Item],
        on: Sequence[str] = (),
        where: Sequence[tuple[str, str, int]] = (),
        residual: Sequence[Expr] = (),
        having: Expr | None = None,
        sql: str = "q",
    ) -> Query:
        """A window of integers is (size, advance) or a tumbling size; `where`: ("A.i", "<", 10), one per source."""
        if isinstance(window, int):
            window = (window, window)
        groups = tuple(self.item(g) for g in group)
        return Query(
            sql=sql,
            sources=self.sources,
            window=PeriodicWindow(*window) if isinstance(window, tuple) else window,
            selections=tuple((text.split(".")[0], compare(self.column(text), op, v)) for text, op, v in where),
            equi=tuple(self.equality(text) for text in on),
            residual=tuple(residual),
            outputs=tuple(Output(name, self.item(item, groups)) for name, item in select.items()),
            groups=groups,
            having=having,
        )


def count(where: Expr | None = None) -> Aggregate:
    """COUNT(*)"""
    return Aggregate("COUNT", (), ColumnType.BIGINT, where=where)


def is_(left: Expr, op: str, right: Expr | int) -> Compare:
    """A number beside a TIMESTAMP is one."""
    kind = left.type if left.type == ColumnType.TIMESTAMP else None
    return Compare(op, left, literal(right, kind) if isinstance(right, int) else right)


def calc(left: Expr, op: str, right: Expr | int | float) -> Arithmetic:
    """Arithmetic in the wider type of the two."""
    other = literal(right) if isinstance(right, int | float) else right
    kind = common_type(left.type, other.type)
    assert kind is not None
    return Arithmetic(op, left, other, kind)
