"""What explain has to say about folds: who folds what once, by what, how time is cut and what is kept.

    Q7, Q9 and 212 more fold W by geo once: 41 slices a minute, 3 query sets

What its windows are combined from is in optimizer.explain.combining.

A fold belongs to a node of the plan, the last one of its queries. A reader who may not see all queries gets the fold as
if those it may see were alone: their windows, what is kept for them, and only how many others there are. What was
counted depends on the others' conditions and windows, so it is left out where there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from optimizer.explain.combining import Combining, combining
from optimizer.explain.describe import first_few
from optimizer.explain.render import render
from optimizer.model.aggregates import BUILT_IN
from optimizer.model.expressions import Aggregate
from optimizer.model.folds import PIECES, SLICES, TIMES, FoldKey, fold_key, on_leaves, slices_a_minute
from optimizer.model.plan import JoinNode, Node, Plan, RunningQuery
from optimizer.model.windows import SessionWindow, Window
from optimizer.statistics.model import FoldObservation

FEW = 3

Counted = Callable[[str, str], FoldObservation | None]
"""What was counted of a fold (node name, fold name) an epoch."""


def nothing_counted(_node: str, _fold: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class FoldView:
    """`users`: ids, in order of their bits; `others`: how many more the reader may not see. `windows`: each once.
    `keeps`: what is kept of the tuples; `cut`: how time is cut, in words; `combining`: how windows that overlap are
    combined."""

    node: Node
    key: FoldKey
    users: tuple[str, ...]
    others: int
    groups: tuple[str, ...]
    windows: tuple[str, ...]
    keeps: tuple[str, ...]
    cut: str
    slices_a_minute: float | None
    combining: Combining
    counted: FoldObservation | None

    @property
    def name(self) -> str:
        return f"{self.node.name}-{self.key.name}"

    def holds(self, plan: Plan, rq: RunningQuery) -> bool:
        """Does this query of the plan fold here?"""
        return rq.query.folds and plan.by_uid[rq.uid].root == self.node and fold_key(rq) == self.key

    @property
    def what(self) -> str:
        """`W by geo`"""
        return f"{self.node} by {', '.join(self.groups)}" if self.groups else f"{self.node} as one group"

    @property
    def sentence(self) -> str:
        """For people, in one line."""
        everybody = len(self.users) + self.others
        who, verb = (self.users[0], "folds") if everybody == 1 else (_names(self.users, self.others), "fold")
        once = " once" if everybody > 1 else ""
        return f"{who} {verb} {self.what}{once}: {', '.join([self.cut, *self.figures])}"

    @property
    def figures(self) -> list[str]:
        c = self.counted
        if c is None:
            return []
        sets = f"{c.query_sets:,.0f} query set{'' if round(c.query_sets) == 1 else 's'}"
        made = f"{c.tuples:,.0f} tuples an epoch into {c.entries:,.0f} entries"
        return [sets, made, "query by query"] if c.by_query > 0.5 else [sets, made]

    @property
    def document(self) -> dict[str, Any]:
        c = self.counted
        return {
            "name": self.key.name,
            "node": self.node.name,
            "text": self.what,
            "queries": list(self.users),
            "others": self.others,
            "groups": list(self.groups),
            "windows": list(self.windows),
            "cut": self.key.cut.lower(),
            "slices_a_minute": self.slices_a_minute,
            "keeps": list(self.keeps),
            "combining": self.combining.document,
            "counted": None if c is None else {name: getattr(c, name) for name in c.__dataclass_fields__},
        }


@dataclass(frozen=True, slots=True)
class Folds:
    """What is known of the folds of a plan. `names`: of all queries that fold (by uid), also of those the reader may
    not see."""

    names: Mapping[str, str] = field(default_factory=dict)
    counted: Counted = nothing_counted

    @staticmethod
    def of(queries: Mapping[str, RunningQuery], counted: Counted = nothing_counted) -> Folds:
        return Folds({uid: fold_key(rq).name for uid, rq in queries.items() if rq.query.folds}, counted)


def fold_views(plan: Plan, queries: Mapping[str, RunningQuery], folds: Folds | None = None) -> tuple[FoldView, ...]:
    """The folds of queries in `queries`, by group, node and name; the plan's other queries are only counted."""
    folds = folds or Folds.of(queries)
    users: dict[tuple[int, str, str], list[str]] = {}
    for p in plan.placements:
        if p.uid in folds.names:
            users.setdefault((p.group, p.root.name, folds.names[p.uid]), []).append(p.uid)
    seen = ((uids, [queries[uid] for uid in uids if uid in queries]) for _, uids in sorted(users.items()))
    return tuple(_view(plan, mine, len(uids) - len(mine), folds.counted) for uids, mine in seen if mine)


def _view(plan: Plan, mine: list[RunningQuery], others: int, counted: Counted) -> FoldView:
    mine = sorted(mine, key=lambda rq: plan.by_uid[rq.uid].slot)
    node, key = plan.by_uid[mine[0].uid].root, fold_key(mine[0])
    windows = {rq.query.window: None for rq in mine}
    qualified = isinstance(node, JoinNode)
    return FoldView(
        node,
        key,
        tuple(rq.id for rq in mine),
        others,
        tuple(render(g, qualified=qualified) for g in key.groups),
        tuple(w.sql for w in windows),
        _kept(mine, qualified),
        _cut(key.cut, windows),
        slices_a_minute(windows) if key.cut == SLICES else None,
        combining(mine),
        None if others else counted(node.name, key.name),
    )


def _cut(cut: str, windows: Collection[Window]) -> str:
    if cut == SLICES:
        return f"{slices_a_minute(windows):,.10g} slices a minute"
    if cut == PIECES:
        gap = min((w for w in windows if isinstance(w, SessionWindow)), key=lambda w: w.gap_ms)
        return f"pieces without a gap of more than {gap.gap_ms:,} ms"
    return "a piece per event time" if cut == TIMES else "tuple by tuple"


def _kept(mine: list[RunningQuery], qualified: bool) -> tuple[str, ...]:
    """Like the tasks' components (runtime.aggregates.components), in words."""
    kept: dict[str, None] = {}
    for rq in mine:
        for aggregate in rq.query.aggregates:
            on = on_leaves(rq, aggregate)
            assert isinstance(on, Aggregate)
            arguments = ", ".join(render(a, qualified=qualified) for a in on.arguments)
            where = f" where {render(on.where, qualified=qualified)}" if on.where is not None else ""
            known = BUILT_IN.get(on.function)
            for kind in known.keeps if known is not None else (on.function,):
                kept[(f"{kind} of {arguments}" if arguments else kind) + where] = None
    return tuple(sorted(kept))


def _names(ids: tuple[str, ...], others: int) -> str:
    """`Q7, Q9 and 212 more and 3 of others`"""
    if others:
        return f"{first_few(ids, FEW)} and {others} of others"
    if len(ids) > FEW + 1:
        return first_few(ids, FEW)
    return f"{', '.join(ids[:-1])} and {ids[-1]}"
