"""Changelogs for people: one line a fact, names instead of uids.

With the plan the changelog led to at hand, a line also says with whom a query shares what; without it, only
which running joins it reuses. Lists of queries are cut after a few, because a plan may run a thousand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from optimizer.model.changelog import (
    Changelog,
    Entry,
    GroupAdded,
    GroupRemoved,
    PartitionFunctionChanged,
    QueryCreated,
    QueryDeleted,
    QueryMoved,
    Rerooted,
    SplitChanged,
    SubplanAdded,
    SubplanRemoved,
)
from optimizer.model.plan import JoinNode, Node, Plan

FEW = 3


def describe(
    changelog: Changelog,
    names: Mapping[str, str],
    plan: Plan | None = None,
    savings: Mapping[str, float] | None = None,
) -> tuple[str, ...]:
    """`names` gives the id of each uid (a uid without one stands for itself); `plan` is the new plan.

    `savings` tells, per uid, which part of the query's own cost it is spared by sharing.
    """
    added = {e.node for e in changelog.entries if isinstance(e, SubplanAdded)}
    spared = savings or {}
    return tuple(f"{line}{_saving(e, spared)}" for e in changelog.entries for line in _lines(e, added, names, plan))


def _saving(entry: Entry, savings: Mapping[str, float]) -> str:
    if not isinstance(entry, QueryCreated | QueryMoved | Rerooted):
        return ""
    part = savings.get(entry.uid, 0.0)
    return f", saves {part:.0%} of its cost" if part >= 0.005 else ""


def shared_with(plan: Plan, uid: str) -> Iterator[tuple[Node, tuple[str, ...]]]:
    """The largest subplans, else the sources, that one query has in common with others, and with whom."""

    def find(node: Node) -> Iterator[tuple[Node, tuple[str, ...]]]:
        users = plan.nodes[node] if isinstance(node, JoinNode) else plan.sources[node]
        others = tuple(u for u in users if u != uid)
        if others:
            yield node, others
        elif isinstance(node, JoinNode):
            yield from find(node.left)
            yield from find(node.right)

    return find(plan.by_uid[uid].root)


def first_few(items: Sequence[str], few: int = FEW) -> str:
    """The first few, and how many more there are."""
    if len(items) <= few + 1:
        return ", ".join(items)
    return f"{', '.join(items[:few])} and {len(items) - few} more"


def and_others(names: str, others: int) -> str:
    """Also those that may not be named."""
    return f"{names} and {others} of others" if names and others else names or f"{others} of others"


def _lines(entry: Entry, added: set[JoinNode], names: Mapping[str, str], plan: Plan | None) -> Iterator[str]:
    def name(uid: str) -> str:
        return names.get(uid, uid)

    match entry:
        case QueryCreated(uid, group, slot, root):
            yield f"{name(uid)} created: group {group}, slot {slot}{_sharing(uid, root, added, names, plan)}"
        case QueryDeleted(uid, group, slot):
            yield f"{name(uid)} deleted: slot {slot} of group {group} is free"
        case QueryMoved(uid, from_group, from_slot, to_group, to_slot):
            yield (
                f"{name(uid)} moved: group {from_group}, slot {from_slot} -> group {to_group}, slot {to_slot}"
                f"{_sharing(uid, None, added, names, plan)}"
            )
        case Rerooted(uid, old_root, new_root):
            sharing = _sharing(uid, new_root, added, names, plan)
            yield f"{name(uid)} reordered: {old_root} -> {new_root}{sharing}"
        case SubplanAdded(node):
            yield f"join added: {node} in group {node.group}"
        case SubplanRemoved(node):
            yield f"join removed: {node} in group {node.group}"
        case GroupAdded(group):
            yield f"group {group} added"
        case GroupRemoved(group):
            yield f"group {group} removed"
        case PartitionFunctionChanged(old_bounds, new_bounds):
            before, after = len(old_bounds) - 1, len(new_bounds) - 1
            if before == after:
                yield f"the ranges of the {after} partitions changed"
            else:
                yield f"scaled {'out' if after > before else 'in'}: {before} -> {after} partitions"
        case SplitChanged(partition, ways):
            yield f"partition {partition} " + (f"runs {ways} ways" if ways > 1 else "is no longer split")


def _sharing(uid: str, root: Node | None, added: set[JoinNode], names: Mapping[str, str], plan: Plan | None) -> str:
    if plan is not None:
        common = list(shared_with(plan, uid))
        parts = [f"{_what(node)} with {first_few([names.get(u, u) for u in others])}" for node, others in common]
        return f", shares {'; '.join(parts)}" if parts else ", shares nothing"
    reused = [str(node) for node in _reused(root, added)] if root else []
    return f", reuses {first_few(reused)}" if reused else ""


def _reused(node: Node, added: set[JoinNode]) -> Iterator[JoinNode]:
    if isinstance(node, JoinNode):
        if node not in added:
            yield node
        else:
            yield from _reused(node.left, added)
            yield from _reused(node.right, added)


def _what(node: Node) -> str:
    return str(node) if isinstance(node, JoinNode) else f"the scan of {node}"
