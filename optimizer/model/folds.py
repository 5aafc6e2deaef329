"""Which queries fold together: those that group alike and cut time alike, whatever they select and compute.

A *fold* takes the tuples of a stream (or the rows of a join) once and keeps, per group of equal key values, piece of
time and query set, what some of its queries needs of them. `fold_key` says what two queries must have in common for
that, as a value; explain, the optimizer and the tasks (runtime.execution.folding) all ask it, so they cannot disagree
about what is shared.

How time is cut depends on the kind of window (Scotty's decision tree):

    Slices   aligned windows: partials per slice of the queries' window edges; tuples are not kept
    Pieces   sessions: partials per run of tuples at most the smallest gap apart; larger gaps merge runs
    Times    punctuated windows: partials per event time, because a late punctuation may cut anywhere; and the edges
    Tuples   count windows: one entry per tuple, because a late tuple shifts all positions behind it

The key says what partials mean and nothing else: not the query group, join order or plan version they are made under.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from optimizer.model import expressions as ex
from optimizer.model.aggregates import BUILT_IN
from optimizer.model.expressions import Expr
from optimizer.model.plan import RunningQuery
from optimizer.model.query import Query
from optimizer.model.types import ColumnType
from optimizer.model.windows import CountWindow, FixedWindow, PeriodicWindow, PunctuatedWindow, SessionWindow, Window

SLICES, PIECES, TIMES, TUPLES = "Slices", "Pieces", "Times", "Tuples"

MOST_EDGES = 100_000


@dataclass(frozen=True)
class FoldKey:
    """`cut`: one of the names above. `leaves` and `groups`: what is folded, by what; columns are named by leaf instead
    of alias."""

    cut: str
    leaves: tuple[str, ...]
    groups: tuple[Expr, ...]

    @cached_property
    def name(self) -> str:
        """Short and stable; safe in file names."""
        meaning = (self.cut, list(self.leaves), list(self.groups))
        return "f" + hashlib.blake2b(repr(meaning).encode(), digest_size=6).hexdigest()


def fold_key(rq: RunningQuery) -> FoldKey:
    """Of a query that folds."""
    leaves = sorted(str(rq.leaf_of(s.alias)) for s in rq.query.sources)
    return FoldKey(cut_of(rq.query.window), tuple(leaves), tuple(on_leaves(rq, g) for g in rq.query.groups))


def folds_lists(query: Query) -> bool:
    """Is what it folds known from tuples of one source at a time, so that no joined row must be made?

    The tasks decide the same way (decision 17); of plug-ins over joins, whose code only they know, this says no.
    """
    if not query.folds or len(query.sources) == 1:
        return query.folds
    if query.residual or len(query.equi) >= len(query.sources):
        return False  # a join on several columns has a hash that proves nothing
    if any(p.type is ColumnType.STRING for p in query.equi):
        return False
    parts: list[tuple[Expr, ...]] = [(g,) for g in query.groups]
    parts += [a.arguments if a.where is None else (*a.arguments, a.where) for a in query.aggregates]
    one_source = all(len({alias for e in part for alias in ex.aliases_of(e)}) <= 1 for part in parts)
    return one_source and all(a.function in BUILT_IN for a in query.aggregates)


def on_leaves(rq: RunningQuery, expr: Expr) -> Expr:
    """The expression with leaves instead of the query's own aliases, so that equal ones of two queries are equal."""

    def change(part: Expr) -> Expr | None:
        if isinstance(part, ex.ColumnRef):
            return ex.ColumnRef(str(rq.leaf_of(part.alias)), part.column, part.type)
        return None

    return ex.rewritten(expr, change)


def cut_of(window: Window) -> str:
    match window:
        case SessionWindow():
            return PIECES
        case PunctuatedWindow():
            return TIMES
        case CountWindow():
            return TUPLES
        case _:
            return SLICES


def slices_a_minute(windows: Iterable[Window]) -> float:
    """Into how many slices the edges of these aligned windows cut a minute of event time.

    Edges that fall together count once; where that takes too long to find out, they are added up.
    """
    periodic = {w for w in windows if isinstance(w, PeriodicWindow)}
    if not periodic:
        return 0.0
    period = math.lcm(*(w.advance_ms for w in periodic))
    edges = sum((1 if w.size_ms % w.advance_ms == 0 else 2) * 60_000 / w.advance_ms for w in periodic)
    if edges * period / 60_000 > MOST_EDGES:
        return edges
    found: set[int] = set()
    for w in periodic:
        found.update(range(0, period, w.advance_ms))
        found.update(t % period for t in range(w.size_ms, w.size_ms + period, w.advance_ms))
    return len(found) * 60_000 / period


def rows_a_second(window: Window, groups: float, tuples: float) -> float:
    """About how many rows of closed windows come, with so many groups in a window and so many tuples a second."""
    match window:
        case PeriodicWindow(_, advance):
            return min(groups * 1000 / advance, tuples * window.most_per_tuple)
        case CountWindow(_, advance):
            return tuples / advance
        case SessionWindow(gap):
            return min(groups * 500 / max(gap, 1), tuples)
        case FixedWindow():
            return min(groups * 1000 / max(window.length_ms, 1), tuples)
        case _:
            return min(groups, tuples)
