"""Between plans and clusters: read a running plan as clusters, and write clusters as the next plan with as few
changes as possible.

State is kept under group numbers and slots: the tuples of a query that changes either must be tagged again. So a
cluster takes the number of the old group with which it has most queries in common, a query that stays in its group
keeps its slot, and clusters that are the same as before give back exactly the placements they came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from optimizer.cost.model import CostModel, Member, Tree
from optimizer.cost.shapes import Shape, Shapes
from optimizer.model.plan import Placement, Plan
from optimizer.search.clusters import Cluster, Singles, cluster, together


def clusters_of(model: CostModel, plan: Plan, singles: Singles) -> dict[int, Cluster]:
    """Every group of the plan as a cluster, exactly as it runs: a shape may stand there with several orders."""
    return {g: cluster(model, trees_of(model.shapes, members, singles)) for g, members in plan.groups.items()}


def trees_of(shapes: Shapes, placements: Iterable[Placement], singles: Singles) -> list[Tree]:
    by_tree: dict[tuple[Shape, int], list[Member]] = {}
    for p in placements:
        single = singles[p.uid]
        by_tree.setdefault((single.shape, shapes.tree(single.shape, p.root)), []).append(single)
    return [(together(members), root) for (_, root), members in by_tree.items()]


def to_plan(plan: Plan, clusters: Sequence[Cluster], shapes: Shapes) -> Plan:
    """The plan that runs these clusters; `plan` itself when that is what it does already."""
    numbers = _numbers(plan, clusters)
    placed: list[Placement] = []
    for c, group in zip(clusters, numbers, strict=True):
        root_of = {u: root for member, root in c.trees for u in member.uids}
        before = {u: plan.by_uid[u] for u in c.uids if u in plan.by_uid}
        slot_of = {u: p.slot for u, p in before.items() if p.group == group}
        taken = set(slot_of.values())
        free = (s for s in range(len(c.uids) + len(taken)) if s not in taken)
        for uid in c.uids:
            slot = slot_of.get(uid)
            if slot is None:
                slot = next(free)
            placed.append(Placement(uid, group, slot, shapes.plan_node(root_of[uid], group)))
    placements = tuple(sorted(placed, key=lambda p: p.uid))
    if placements == plan.placements:
        return plan
    return replace(plan, version=plan.version + 1, placements=placements)


def _numbers(plan: Plan, clusters: Sequence[Cluster]) -> list[int]:
    """Group numbers: most queries in common first; new clusters take numbers that no running group has."""
    common: dict[tuple[int, int], int] = {}
    for i, c in enumerate(clusters):
        for uid in c.uids:
            p = plan.by_uid.get(uid)
            if p is not None:
                common[i, p.group] = common.get((i, p.group), 0) + 1
    numbers: dict[int, int] = {}
    taken: set[int] = set()
    for (i, group), _ in sorted(common.items(), key=lambda c: (-c[1], c[0][1], clusters[c[0][0]].uids[0])):
        if i not in numbers and group not in taken:
            numbers[i] = group
            taken.add(group)
    running: Mapping[int, object] = plan.groups
    unused = (g for g in range(len(clusters) + len(running) + 1) if g not in running and g not in taken)
    return [numbers[i] if i in numbers else next(unused) for i in range(len(clusters))]
