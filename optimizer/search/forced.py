"""Plan changes a user asks for by name: a join order, query groups, the number of partitions, a split.

Each function is a step from plan to plan, one version up; a step that would change nothing gives back the
plan it got. They check what the user said and raise InvalidRequest; they never look at cost. That what was forced
stays is not decided here (model.pins).

`one_step` folds any number of steps into a single one: one query batch gives at most one changelog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from optimizer.errors import InternalError, InvalidRequest
from optimizer.model.plan import Partitioning, Placement, Plan, RunningQuery
from optimizer.model.trees import regroup, tree_from_order

MAX_PARTITIONS = 1024
MAX_WAYS = 64
MAX_GROUP = 4095


def force_order(plan: Plan, rq: RunningQuery, order: Any) -> Plan:
    """The query keeps its group and its bit and runs in the given order (nested lists of aliases)."""
    old = _placement(plan, rq.uid)
    return _with(plan, {rq.uid: replace(old, root=tree_from_order(rq, order, old.group))})


def force_groups(plan: Plan, queries: Mapping[str, RunningQuery], groups: Mapping[str, int]) -> Plan:
    """Queries (by uid) move with their trees into the named groups; queries not named stay where they are.

    All of them leave before the first one arrives, so two queries can change places. A query that is
    already in its group keeps its bit.
    """
    for uid, group in groups.items():
        if not _whole(group) or not 0 <= group <= MAX_GROUP:
            name = queries[uid].id if uid in queries else uid
            raise InvalidRequest(
                f"query {name!r} cannot move to group {group!r}",
                reason="INVALID_GROUP",
                hint=f"a group is a whole number from 0 to {MAX_GROUP}",
            )
    moving = {uid: g for uid, g in sorted(groups.items()) if _placement(plan, uid).group != g}
    staying = replace(plan, placements=tuple(p for p in plan.placements if p.uid not in moving))
    arrived: dict[str, Placement] = {}
    taken = {g: set(staying.slots(g)) for g in moving.values()}
    for uid, group in moving.items():
        slot = next(i for i in range(len(taken[group]) + 1) if i not in taken[group])
        taken[group].add(slot)
        arrived[uid] = Placement(uid, group, slot, regroup(_placement(plan, uid).root, group))
    return _with(plan, arrived)


def scale_to(plan: Plan, partitions: int) -> Plan:
    """Even hash ranges for so many partitions. Splits of partitions that no longer exist are dropped."""
    if not _whole(partitions) or not 1 <= partitions <= MAX_PARTITIONS:
        raise InvalidRequest(
            f"cannot scale to {partitions!r} partitions",
            reason="INVALID_PARTITIONS",
            hint=f"use a whole number from 1 to {MAX_PARTITIONS}",
        )
    if partitions == plan.partitioning.count:
        return plan
    splits = tuple((p, w) for p, w in plan.partitioning.splits if p < partitions)
    return _repartitioned(plan, replace(Partitioning.even(partitions), splits=splits))


def split(plan: Plan, partition: int, ways: int) -> Plan:
    """Scale one partition up to run `ways` ways; 1 scales it back down."""
    last = plan.partitioning.count - 1
    if not _whole(partition) or not 0 <= partition <= last:
        raise InvalidRequest(
            f"there is no partition {partition!r} to split",
            reason="INVALID_SPLIT",
            hint=f"partitions are numbered from 0 to {last}" if last else "the only partition is 0",
        )
    if not _whole(ways) or not 1 <= ways <= MAX_WAYS:
        raise InvalidRequest(
            f"cannot run partition {partition} {ways!r} ways",
            reason="INVALID_SPLIT",
            hint=f"use a whole number from 1 (not split) to {MAX_WAYS}",
        )
    return _repartitioned(plan, plan.partitioning.with_split(partition, ways))


def one_step(old: Plan, new: Plan) -> Plan:
    """`new` as the one version after `old`, however many steps led to it; `old` itself if nothing changed."""
    if new.placements == old.placements and new.partitioning == old.partitioning:
        return old
    return replace(new, version=old.version + 1)


def _placement(plan: Plan, uid: str) -> Placement:
    if uid not in plan.by_uid:
        raise InternalError(f"plan version {plan.version} does not run {uid}")
    return plan.by_uid[uid]


def _with(plan: Plan, changed: Mapping[str, Placement]) -> Plan:
    placements = tuple(changed.get(p.uid, p) for p in plan.placements)
    if placements == plan.placements:
        return plan
    return replace(plan, version=plan.version + 1, placements=placements)


def _repartitioned(plan: Plan, partitioning: Partitioning) -> Plan:
    if partitioning == plan.partitioning:
        return plan
    return replace(plan, version=plan.version + 1, partitioning=partitioning)


def _whole(n: object) -> bool:
    return isinstance(n, int) and not isinstance(n, bool)
