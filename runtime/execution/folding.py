"""What queries that fold share: one fold per grouping, for any number of queries, windows and functions.

A fold takes the tuples of a stream (or the rows of a join) once and keeps, per group of equal key values, piece of time
and query set, the partials of every function that some of its queries needs. Two queries share a fold if they group
alike and cut time alike; their conditions, windows and functions may differ.

What queries must have in common for that, and how time is cut, is said in optimizer.model.folds. Here it becomes what
a task needs: the union of what the queries keep, and where exactly time is cut for all of them.

A fold's name says what its partials mean and nothing else: not the query group, join order or plan version they were
made under. So a query finds its partials in older buckets under the same name, and a plan change rebuilds none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from optimizer.model import expressions as ex
from optimizer.model.expressions import Aggregate, Expr
from optimizer.model.folds import cut_of, fold_key, on_leaves
from optimizer.model.plan import Plan, RunningQuery
from optimizer.model.query import Source
from optimizer.model.windows import PunctuatedWindow, SessionWindow, Window
from runtime.aggregates.components import Component, components_of
from runtime.aggregates.states import scalable
from runtime.machine.cache import BoundedCache


@dataclass(frozen=True, slots=True)
class Slices:
    """`windows`: whose edges cut."""

    windows: tuple[Window, ...]


@dataclass(frozen=True, slots=True)
class Pieces:
    gap_ms: int


@dataclass(frozen=True, slots=True)
class EdgeRule:
    """The query in this slot has an edge wherever the condition is TRUE, and at its first tuple, from `active_from`
    on."""

    slot: int
    condition: Expr
    active_from: int | None


@dataclass(frozen=True, slots=True)
class Times:
    edges: tuple[EdgeRule, ...]


@dataclass(frozen=True, slots=True)
class Tuples:
    pass


Cut = Slices | Pieces | Times | Tuples


@dataclass(frozen=True, slots=True)
class FoldSpec:
    """`keys`: what is grouped by, and `components`: what is kept; both name columns by leaf instead of alias.
    `users`: the slots of its queries."""

    name: str
    group: int
    words: int
    keys: tuple[Expr, ...]
    components: tuple[Component, ...]
    users: tuple[int, ...]
    cut: Cut

    @property
    def columns(self) -> frozenset[ex.ColumnRef]:
        """All it reads."""
        exprs: list[Expr] = [*self.keys, *(e for c in self.components for e in c.expressions)]
        if isinstance(self.cut, Times):
            exprs += [rule.condition for rule in self.cut.edges]
        return frozenset(c for e in exprs for c in ex.columns_of(e))


def folds_closed(component: Component) -> bool:
    """Is the component known from a list of one source's tuples and the number of their partners? So it can be folded
    before lists are combined (runtime.operators.closed_fold)."""
    return scalable(component) and len({a for e in component.expressions for a in ex.aliases_of(e)}) <= 1


class FoldQuery(NamedTuple):
    """`output_class`: equal for queries of a fold that select the same from it and have the same HAVING."""

    query: RunningQuery
    slot: int
    output_class: int


@dataclass(frozen=True, slots=True)
class FoldUsers:
    """A fold as one query group has it, whatever joins and streams feed it."""

    spec: FoldSpec
    queries: tuple[FoldQuery, ...]


def aggregate_on_leaves(rq: RunningQuery, aggregate: Aggregate) -> Aggregate:
    """Asked for every query in every epoch that closes windows, and the same for most: so it is remembered."""
    made = _ON_LEAVES.get_or_make((rq.query.sources, aggregate), lambda: on_leaves(rq, aggregate))
    assert isinstance(made, Aggregate)
    return made


_ON_LEAVES: BoundedCache[tuple[tuple[Source, ...], Aggregate], Expr] = BoundedCache(1 << 12)


def fold_specs(plan: Plan, queries: Mapping[str, RunningQuery], uids: Iterable[str]) -> tuple[FoldSpec, ...]:
    """The folds of those of these queries (of one group) that fold."""
    members: dict[str, list[RunningQuery]] = {}
    for uid in uids:
        if queries[uid].query.folds:
            members.setdefault(fold_key(queries[uid]).name, []).append(queries[uid])
    return tuple(_spec(name, plan, mine) for name, mine in sorted(members.items()))


def folds_of(plan: Plan, queries: Mapping[str, RunningQuery]) -> tuple[FoldUsers, ...]:
    """Every fold of the plan, once per query group."""
    members: dict[tuple[str, int], list[RunningQuery]] = {}
    for placement in plan.placements:
        rq = queries.get(placement.uid)
        if rq is not None and rq.query.folds:
            members.setdefault((fold_key(rq).name, placement.group), []).append(rq)
    return tuple(_users(name, plan, mine) for (name, _), mine in sorted(members.items(), key=lambda m: m[0]))


def _users(name: str, plan: Plan, mine: list[RunningQuery]) -> FoldUsers:
    classes: dict[object, int] = {}

    def output_class(rq: RunningQuery) -> int:
        aggregates = tuple(aggregate_on_leaves(rq, a) for a in rq.query.aggregates)
        selected = (rq.query.outputs, rq.query.having, rq.query.aggregates, aggregates)
        return classes.setdefault(selected, len(classes))

    return FoldUsers(
        _spec(name, plan, mine), tuple(FoldQuery(rq, plan.by_uid[rq.uid].slot, output_class(rq)) for rq in mine)
    )


def _spec(name: str, plan: Plan, mine: list[RunningQuery]) -> FoldSpec:
    first = mine[0]
    components = {
        c: None for rq in mine for a in rq.query.aggregates for c in components_of(aggregate_on_leaves(rq, a))
    }
    group = plan.by_uid[first.uid].group
    return FoldSpec(
        name,
        group,
        plan.words(group),
        tuple(on_leaves(first, g) for g in first.query.groups),
        tuple(sorted(components, key=repr)),
        tuple(sorted(plan.by_uid[rq.uid].slot for rq in mine)),
        _cut(plan, mine),
    )


def _cut(plan: Plan, mine: list[RunningQuery]) -> Cut:
    windows = [rq.query.window for rq in mine]
    match cut_of(windows[0]):
        case "Pieces":
            return Pieces(min(w.gap_ms for w in windows if isinstance(w, SessionWindow)))
        case "Times":
            rules = [
                EdgeRule(plan.by_uid[rq.uid].slot, on_leaves(rq, rq.query.window.condition), rq.active_from)
                for rq in mine
                if isinstance(rq.query.window, PunctuatedWindow)
            ]
            return Times(tuple(sorted(rules, key=lambda r: r.slot)))
        case "Tuples":
            return Tuples()
        case _:
            return Slices(tuple(sorted(set(windows), key=lambda w: (w.length_ms, w.sql))))
