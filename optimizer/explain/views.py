"""What explain has to say about each node of a plan, gathered once for all formats.

A reader who may not see all queries gets a view of the plan with the queries it may see: their users, bits, conditions
and the indexes their joins need. Of the others it learns how many use a node, and no figures of a node they use: a rate
there is made by their conditions as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from optimizer.explain.render import render
from optimizer.explain.savings import Index, indexes
from optimizer.model.plan import JoinNode, Node, Plan, RunningQuery
from optimizer.model.stages import goes_on_into, stages_of
from optimizer.model.trees import leaves_of


@dataclass(frozen=True, slots=True)
class Figures:
    """Numbers to show next to the nodes, by node name."""

    observed: Mapping[str, float] = field(default_factory=dict)
    estimated: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node of the plan with everything a reader may want to know about it; `others`: users it may not see. `stage`:
    in which a join runs, from 1 on. `goes_on`: joins above it run in the same stage, over its result."""

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
    others: int = 0
    stage: int | None = None
    goes_on: bool = False


def node_views(plan: Plan, queries: Mapping[str, RunningQuery], figures: Figures) -> dict[Node, NodeView]:
    """Every node that `queries` use, inputs before consumers, sources first."""
    stages = stages_of(plan)
    everybody: dict[Node, tuple[str, ...]] = dict([*plan.sources.items(), *plan.nodes.items()])
    plan = seen(plan, queries)
    keys = indexes(plan)
    above = goes_on_into(plan.nodes, stages)
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
            observed=None if others else figures.observed.get(node.name),
            estimated=None if others else figures.estimated.get(node.name),
            others=others,
            stage=stages.number[node] if isinstance(node, JoinNode) else None,
            goes_on=node in above,
        )
        for node, uids, others in ((n, _by_slot(plan, u), len(everybody[n]) - len(u)) for n, u in users)
    }


def seen(plan: Plan, queries: Mapping[str, RunningQuery]) -> Plan:
    """The plan as if these queries ran alone."""
    mine = tuple(p for p in plan.placements if p.uid in queries)
    return plan if len(mine) == len(plan.placements) else replace(plan, placements=mine)


def groups_apart(plan: Plan, apart: Collection[str]) -> frozenset[int]:
    """The groups in which nobody is but queries (uids) that are kept apart."""
    return frozenset(g for g, members in plan.groups.items() if all(p.uid in apart for p in members))


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
