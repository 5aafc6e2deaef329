"""What a platform is running, in a form that can be compared: two systems with the same physical plan are one system.

The `aspects` of a plan are those that cost depends on, each as a short digest:

    groups      which queries share query sets, indexes and joins
    orders      the tree of every query
    lists       which leaves joined buckets expose, per join and key: what is open, what stays closed
    buckets     one per read, or one per read and group
    partitions  the partition function

Numbers of groups, uids and plan versions say nothing about cost and are left out, so plans of different engines can be
compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from optimizer.model.plan import JoinNode, Node, Plan
from runtime.engine.engine import Engine
from runtime.execution.compile import compile_plan
from runtime.execution.physical import Physical

ASPECTS = ("groups", "orders", "lists", "buckets", "partitions")

Aspects = Mapping[str, str]


def aspects(engine: Engine) -> dict[str, str]:
    running, sharing = engine.state.running, engine.parts.sharing
    physical = compile_plan(engine.plan, running, engine.schemas(), closed_lists=sharing.closed_lists)
    names = {uid: rq.id for uid, rq in running.items()}
    return described(engine.plan, physical, names, own_buckets=sharing.own_buckets)


def described(plan: Plan, physical: Physical, names: Mapping[str, str], *, own_buckets: bool) -> dict[str, str]:
    members = {group: sorted(names[p.uid] for p in placed) for group, placed in plan.groups.items()}
    trees = {node.name: tree(node) for node in plan.nodes}
    found: dict[str, Any] = {
        "groups": sorted(members.values()),
        "orders": sorted((names[p.uid], tree(p.root)) for p in plan.placements),
        "lists": sorted(
            (members[join.group], trees[join.name], repr(output.key), [str(leaf) for leaf in output.exposed])
            for join in physical.joins
            for output in join.outputs
        ),
        "buckets": "one per group" if own_buckets and len(members) > 1 else "one",
        "partitions": repr(plan.partitioning),
    }
    return {what: hashlib.blake2b(repr(found[what]).encode(), digest_size=6).hexdigest() for what in ASPECTS}


def tree(node: Node) -> str:
    if isinstance(node, JoinNode):
        keys = ", ".join(f"{k.left}={k.right}" for k in node.keys)
        return f"({tree(node.left)} ⋈ {tree(node.right)} on {keys})"
    return str(node.leaf)


def differences(mine: Mapping[str, Aspects], other: Mapping[str, Aspects]) -> str:
    """`mine` and `other`: aspects by moment (end of warm-up, end of run). "same plan" if they agree at both."""
    found = [a for a in ASPECTS if any(mine[at].get(a) != other[at].get(a) for at in mine.keys() & other.keys())]
    return ", ".join(found) or SAME


SAME = "same plan"
