"""A changelog is the typed difference of two plans: what the optimizer tells the runtime between two epochs.

Guarantee: `apply(old, diff(old, new)) == new`, for any two plans. Entries come in this order, which is also
the order in which they are applied: deletions free their slots, moves and creations may take them, then
orders change; the subplans and groups that appear or vanish follow from that; the partition function stands
at the end.

Some entries are consequences of others: which subplans and groups come and go follows from the queries.
They are there because they are what a runtime acts on (state to build, state to drop) and what a person
wants to read. `apply` recomputes them and refuses a changelog whose consequences do not fit, so a changelog
from a damaged log or for another plan cannot be half applied.

The paper sends changelogs as markers through the operators, in an atomic and a non-atomic protocol. Here
every changelog takes effect between two epochs for all operators at once, so one protocol is enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from optimizer.errors import InternalError
from optimizer.model.plan import JoinNode, Node, Partitioning, Placement, Plan
from optimizer.model.trees import regroup


@dataclass(frozen=True, slots=True)
class QueryDeleted:
    uid: str
    group: int
    slot: int


@dataclass(frozen=True, slots=True)
class QueryMoved:
    """The query changes its group or its bit; its tree goes with it."""

    uid: str
    from_group: int
    from_slot: int
    to_group: int
    to_slot: int


@dataclass(frozen=True, slots=True)
class QueryCreated:
    uid: str
    group: int
    slot: int
    root: Node


@dataclass(frozen=True, slots=True)
class Rerooted:
    """The query runs in another join order. Both roots are in the query's new group."""

    uid: str
    old_root: Node
    new_root: Node


@dataclass(frozen=True, slots=True)
class SubplanRemoved:
    node: JoinNode


@dataclass(frozen=True, slots=True)
class SubplanAdded:
    node: JoinNode


@dataclass(frozen=True, slots=True)
class GroupRemoved:
    group: int


@dataclass(frozen=True, slots=True)
class GroupAdded:
    group: int


@dataclass(frozen=True, slots=True)
class PartitionFunctionChanged:
    old_bounds: tuple[int, ...]
    new_bounds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SplitChanged:
    """From now on the partition runs `ways` ways; 1: it is no longer split, or no longer exists."""

    partition: int
    ways: int


Entry = (
    QueryDeleted
    | QueryMoved
    | QueryCreated
    | Rerooted
    | SubplanRemoved
    | SubplanAdded
    | GroupRemoved
    | GroupAdded
    | PartitionFunctionChanged
    | SplitChanged
)


@dataclass(frozen=True, slots=True)
class Changelog:
    """Leads from plan `from_version` to plan `to_version`."""

    from_version: int
    to_version: int
    entries: tuple[Entry, ...]


def diff(old: Plan, new: Plan) -> Changelog:
    entries = (*_queries(old, new), *_consequences(old, new), *_partitioning(old, new))
    return Changelog(old.version, new.version, entries)


def apply(old: Plan, changelog: Changelog) -> Plan:
    """The plan the changelog leads to; InternalError when it was not made for `old`."""
    if changelog.from_version != old.version:
        raise _misfit(old, changelog, "it starts at another version")
    placements = dict(old.by_uid)
    bounds, splits = old.partitioning.bounds, dict(old.partitioning.splits)
    for entry in changelog.entries:
        match entry:
            case QueryDeleted(uid, group, slot):
                _expect(old, changelog, placements.get(uid), uid, group, slot)
                del placements[uid]
            case QueryMoved(uid, from_group, from_slot, to_group, to_slot):
                at = _expect(old, changelog, placements.get(uid), uid, from_group, from_slot)
                placements[uid] = Placement(uid, to_group, to_slot, regroup(at.root, to_group))
            case QueryCreated(uid, group, slot, root):
                if uid in placements:
                    raise _misfit(old, changelog, f"{uid} runs already")
                placements[uid] = Placement(uid, group, slot, root)
            case Rerooted(uid, old_root, new_root):
                if uid not in placements or placements[uid].root != old_root:
                    raise _misfit(old, changelog, f"{uid} does not run as {old_root}")
                at = placements[uid]
                placements[uid] = Placement(uid, at.group, at.slot, new_root)
            case PartitionFunctionChanged(old_bounds, new_bounds):
                if bounds != old_bounds:
                    raise _misfit(old, changelog, "the partition function is another one")
                bounds = new_bounds
            case SplitChanged(partition, ways):
                splits.pop(partition, None)
                if ways > 1:
                    splits[partition] = ways
            case _:
                pass  # a consequence, checked below
    new = Plan(
        changelog.to_version,
        tuple(placements[uid] for uid in sorted(placements)),
        Partitioning(bounds, tuple(sorted(splits.items()))),
    )
    said = tuple(
        e for e in changelog.entries if isinstance(e, SubplanRemoved | SubplanAdded | GroupRemoved | GroupAdded)
    )
    if said != tuple(_consequences(old, new)):
        raise _misfit(old, changelog, "its subplans and groups do not follow from its queries")
    return new


def _queries(old: Plan, new: Plan) -> Iterator[Entry]:
    """Deletions, moves, creations, new orders; each kind by uid."""
    before, after = old.by_uid, new.by_uid
    for uid in sorted(before.keys() - after.keys()):
        yield QueryDeleted(uid, before[uid].group, before[uid].slot)
    both = sorted(uid for uid in before.keys() & after.keys() if before[uid] != after[uid])
    for uid in both:
        a, b = before[uid], after[uid]
        if (a.group, a.slot) != (b.group, b.slot):
            yield QueryMoved(uid, a.group, a.slot, b.group, b.slot)
    for uid in sorted(after.keys() - before.keys()):
        yield QueryCreated(uid, after[uid].group, after[uid].slot, after[uid].root)
    for uid in both:
        moved = regroup(before[uid].root, after[uid].group)
        if moved != after[uid].root:
            yield Rerooted(uid, moved, after[uid].root)


def _consequences(old: Plan, new: Plan) -> Iterator[Entry]:
    """Consumers go before their inputs, inputs come before their consumers."""
    for node in reversed(tuple(old.nodes)):
        if node not in new.nodes:
            yield SubplanRemoved(node)
    for node in new.nodes:
        if node not in old.nodes:
            yield SubplanAdded(node)
    for group in sorted(old.groups.keys() - new.groups.keys()):
        yield GroupRemoved(group)
    for group in sorted(new.groups.keys() - old.groups.keys()):
        yield GroupAdded(group)


def _partitioning(old: Plan, new: Plan) -> Iterator[Entry]:
    if old.partitioning.bounds != new.partitioning.bounds:
        yield PartitionFunctionChanged(old.partitioning.bounds, new.partitioning.bounds)
    before, after = dict(old.partitioning.splits), dict(new.partitioning.splits)
    for partition in sorted(before.keys() | after.keys()):
        if before.get(partition) != after.get(partition):
            yield SplitChanged(partition, after.get(partition, 1))


def _expect(old: Plan, log: Changelog, at: Placement | None, uid: str, group: int, slot: int) -> Placement:
    if at is None or (at.group, at.slot) != (group, slot):
        raise _misfit(old, log, f"{uid} is not in slot {slot} of group {group}")
    return at


def _misfit(old: Plan, log: Changelog, why: str) -> InternalError:
    return InternalError(
        f"changelog {log.from_version} -> {log.to_version} does not fit plan version {old.version}: {why}",
        reason="CHANGELOG_MISFIT",
    )
