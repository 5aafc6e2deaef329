"""The rules that every plan obeys, as a check.

`validate_plan` costs one walk over all trees; tests call it after every step, and code that reads a plan
from outside (the log on disk) calls it once. A plan that passes cannot mix up two queries' bits, and
with the queries at hand it also cannot compute anything but what they ask for: each tree covers the query's
leaves exactly once and checks each of its equi predicates exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping

from optimizer.errors import InternalError
from optimizer.model.plan import (
    FULL_RANGE,
    JoinNode,
    Partitioning,
    Placement,
    Plan,
    RunningQuery,
    join,
    walk,
)
from optimizer.model.trees import crossing, leaves_of, predicates


def validate_plan(plan: Plan, queries: Mapping[str, RunningQuery] | None = None) -> None:
    """Raises InternalError naming the first broken rule; with `queries` (by uid), also what trees compute."""
    uids = [p.uid for p in plan.placements]
    _check(plan, uids == sorted(set(uids)), f"placements are not sorted by uid, each once: {uids}")
    owner: dict[tuple[int, int], str] = {}
    checked: set[JoinNode] = set()
    for p in plan.placements:
        first = owner.setdefault((p.group, p.slot), p.uid)
        _check(plan, first == p.uid, f"{first} and {p.uid} share slot {p.slot} of group {p.group}")
        _check(plan, p.slot >= 0 and p.group >= 0, f"{p.uid} has slot {p.slot} of group {p.group}")
        _validate_tree(plan, p, checked)
        if queries is not None:
            _check(plan, p.uid in queries, f"{p.uid} runs but is not known")
            _validate_answers(plan, p, queries[p.uid])
    if queries is not None:
        missing = queries.keys() - set(uids)
        _check(plan, not missing, f"{', '.join(sorted(missing))} should run but do not")
    _validate_partitioning(plan, plan.partitioning)


def _validate_tree(plan: Plan, p: Placement, checked: set[JoinNode]) -> None:
    for node in walk(p.root):
        _check(plan, node.group == p.group, f"{p.uid} of group {p.group} uses {node} of group {node.group}")
        if not isinstance(node, JoinNode) or node in checked:
            continue
        checked.add(node)
        left, right = set(node.left.leaves), set(node.right.leaves)
        _check(plan, not left & right, f"{node} reads a leaf twice")
        _check(plan, bool(node.keys), f"{node} is a cross product")
        inside = all(k.left.leaf in left and k.right.leaf in right for k in node.keys)
        _check(plan, inside, f"a key of {node} is not between its inputs")
        _check(plan, join(node.left, node.right, node.keys) == node, f"{node} is not in canonical order")


def _validate_answers(plan: Plan, p: Placement, rq: RunningQuery) -> None:
    same = p.root.leaves == tuple(sorted(leaves_of(rq).values()))
    _check(plan, same, f"{p.root} does not read exactly the sources of {rq.id!r}")
    parts = predicates(rq)
    for node in p.root.joins:
        exact = node.keys == crossing(parts, node.left.leaves, node.right.leaves)
        _check(plan, exact, f"the key of {node} is not what {rq.id!r} says")


def _validate_partitioning(plan: Plan, at: Partitioning) -> None:
    whole = at.count >= 1 and at.bounds[0] == 0 and at.bounds[-1] == FULL_RANGE
    _check(plan, whole, "the partitions do not cover the hash range")
    rising = all(a < b for a, b in zip(at.bounds, at.bounds[1:], strict=False))
    _check(plan, rising, "an empty or backward partition")
    split = [partition for partition, _ in at.splits]
    _check(plan, split == sorted(set(split)), "splits are not sorted, each partition once")
    legal = all(0 <= partition < at.count and ways > 1 for partition, ways in at.splits)
    _check(plan, legal, f"illegal splits {at.splits}")


def _check(plan: Plan, holds: bool, broken: str) -> None:
    if not holds:
        raise InternalError(f"plan version {plan.version}: {broken}", reason="PLAN_BROKEN")
