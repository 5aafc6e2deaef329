"""What explain has to say about each node of a plan, gathered once for all formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from optimizer.explain.render import render
from optimizer.explain.savings import Index, indexes
from optimizer.model.plan import JoinNode, Node, Plan, RunningQuery
from optimizer.model.trees import leaves_of


@dataclass(frozen=True, slots=True)
class Figures:
    """Numbers to show next to the nodes, by node name; `cost` is one query's (alone, shared)."""

    observed: Mapping[str, float] = field(default_factory=dict)
    estimated: Mapping[str, float] = field(default_factory=dict)
    cost: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node of the plan with everything a reader may want to know about it."""

    node: Node
    name: str
    inputs: tuple[str, ...]
    on: tuple[str, ...]
    indexes: tuple[Index, ...]
    users: tuple[str, ...]
    bits: tuple[int, ...]
    sinks: tuple[str, ...]
    selections: tuple[tuple[str, str], ...]
    observed: float | None
    estimated: float | None


def node_views(plan: Plan, queries: Mapping[str, RunningQuery], figures: Figures) -> dict[Node, NodeView]:
    """Every node of the plan, inputs before consumers, sources first."""
    keys = indexes(plan)
    sinks: dict[Node, list[str]] = {}
    for p in plan.placements:
        sinks.setdefault(p.root, []).append(queries[p.uid].id)
    users: list[tuple[Node, tuple[str, ...]]] = [*plan.sources.items(), *plan.nodes.items()]
    return {
        node: NodeView(
            node=node,
            name=node.name,
            inputs=(node.left.name, node.right.name) if isinstance(node, JoinNode) else (),
            on=tuple(f"{k.left} = {k.right}" for k in node.keys) if isinstance(node, JoinNode) else (),
            indexes=keys.get(node, ()),
            users=tuple(queries[u].id for u in uids),
            bits=tuple(plan.by_uid[u].slot for u in uids),
            sinks=tuple(sinks.get(node, ())),
            selections=_selections(node, [queries[u] for u in uids]),
            observed=figures.observed.get(node.name),
            estimated=figures.estimated.get(node.name),
        )
        for node, uids in ((n, _by_slot(plan, u)) for n, u in users)
    }


def _selections(node: Node, users: list[RunningQuery]) -> tuple[tuple[str, str], ...]:
    """What each user of a source selects there; users that take everything are left out."""
    if isinstance(node, JoinNode):
        return ()
    shown = []
    for rq in users:
        alias = next(a for a, leaf in leaves_of(rq).items() if leaf == node.leaf)
        shown += [(rq.id, render(e, qualified=False)) for a, e in rq.query.selections if a == alias]
    return tuple(shown)


def _by_slot(plan: Plan, uids: tuple[str, ...]) -> list[str]:
    return sorted(uids, key=lambda uid: plan.by_uid[uid].slot)
