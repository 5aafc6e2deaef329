"""A change of plan in parts that can be made one without the other.

Query groups share nothing, neither state nor cost, and neither do queries of one group whose streams are others, as
long as no query links them. So where a wanted plan differs from the running one, the streams of groups that exchange
queries or are joined by one belong together, and everything else is independent. Such a *part* says, for each query
that changes, from where to where; it needs nothing else, so it can be kept, priced again when statistics have changed,
and made on a plan that has moved on meanwhile, as long as the queries that it moves still are where it found them.

A part can also be cut by queries: what is left of it moves the others only, and is a legal plan too, because a query
runs with its tree in any group. Whether that is still worth anything must be asked again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from networkx.utils import UnionFind

from optimizer.model.plan import Leaf, Node, Placement, Plan
from optimizer.model.trees import regroup


class Move(NamedTuple):
    """One query: where it runs, and where it is to run."""

    uid: str
    old_group: int
    old_root: Node
    group: int
    root: Node


@dataclass(frozen=True, slots=True)
class Part:
    """`moves` by uid; `opened`: groups that do not exist yet."""

    moves: tuple[Move, ...]
    opened: frozenset[int] = frozenset()

    @property
    def uids(self) -> frozenset[str]:
        return frozenset(m.uid for m in self.moves)

    @property
    def groups(self) -> frozenset[int]:
        """All groups that lose, get or change a query."""
        return frozenset(g for m in self.moves for g in (m.old_group, m.group))

    @property
    def places(self) -> frozenset[tuple[int, Leaf]]:
        """What it touches: in which groups which streams are used differently."""
        return frozenset((g, leaf) for m in self.moves for g in (m.old_group, m.group) for leaf in m.root.leaves)

    def only(self, uids: Collection[str]) -> Part:
        return replace(self, moves=tuple(m for m in self.moves if m.uid in uids))

    def rest_of(self, done: Part) -> Part:
        """What is left when a part of it, made of some of its moves, has been made."""
        opened = self.opened - {m.group for m in done.moves}
        return Part(tuple(m for m in self.moves if m.uid not in done.uids), opened)


def parts_of(plan: Plan, candidate: Plan) -> tuple[Part, ...]:
    """The independent parts of the way from `plan` to `candidate`, which runs the same queries."""
    before = plan.by_uid
    moves = [
        Move(p.uid, before[p.uid].group, before[p.uid].root, p.group, p.root)
        for p in candidate.placements
        if (p.group, p.root) != (before[p.uid].group, before[p.uid].root)
    ]
    linked: UnionFind[tuple[int, Leaf]] = UnionFind()
    for p in (*plan.placements, *candidate.placements):
        linked.union(*((p.group, leaf) for leaf in p.root.leaves))
    for m in moves:
        leaf = m.root.leaves[0]
        linked.union((m.old_group, leaf), (m.group, leaf))
    found: dict[tuple[int, Leaf], list[Move]] = {}
    for m in moves:
        found.setdefault(linked[m.group, m.root.leaves[0]], []).append(m)
    fresh = candidate.groups.keys() - plan.groups.keys()
    return tuple(Part(tuple(own), frozenset(m.group for m in own if m.group in fresh)) for own in found.values())


def fitted(part: Part, plan: Plan) -> Part | None:
    """The part on a plan that has changed since: without queries that are gone, and with other numbers for groups that
    were to be opened and are taken now. None: a query that it moves is no longer where it was, or nothing is left."""
    left = [m for m in part.moves if m.uid in plan.by_uid]
    if not left or any((plan.by_uid[m.uid].group, plan.by_uid[m.uid].root) != (m.old_group, m.old_root) for m in left):
        return None
    targets = {m.group for m in left}
    taken = part.opened & plan.groups.keys()
    opened = (part.opened | (targets - plan.groups.keys())) & targets
    if not taken:
        return part if len(left) == len(part.moves) and opened == part.opened else Part(tuple(left), opened)
    free = (g for g in range(len(plan.groups) + len(targets) + 1) if g not in plan.groups and g not in targets)
    numbers = {g: next(free) for g in sorted(taken)}
    moves = [
        m._replace(group=numbers[m.group], root=regroup(m.root, numbers[m.group])) if m.group in numbers else m
        for m in left
    ]
    return Part(tuple(moves), frozenset(numbers.get(g, g) for g in opened))


def combined(plan: Plan, parts: Iterable[Part]) -> Plan:
    """The plan after these parts, one version up; the plan itself if they change nothing.

    A query that stays in its group keeps its bit; those that arrive take the lowest that are free then.
    """
    moves = {m.uid: m for part in parts for m in part.moves}
    if not moves:
        return plan
    taken: dict[int, set[int]] = {}
    for p in plan.placements:
        if p.uid not in moves or moves[p.uid].group == p.group:
            taken.setdefault(p.group, set()).add(p.slot)
    lowest: dict[int, int] = {}
    placements = []
    for p in plan.placements:
        m = moves.get(p.uid)
        if m is None:
            placements.append(p)
        elif m.group == p.group:
            placements.append(replace(p, root=m.root))
        else:
            used, slot = taken.setdefault(m.group, set()), lowest.get(m.group, 0)
            while slot in used:
                slot += 1
            used.add(slot)
            lowest[m.group] = slot
            placements.append(Placement(p.uid, m.group, slot, m.root))
    if tuple(placements) == plan.placements:
        return plan
    return replace(plan, version=plan.version + 1, placements=tuple(placements))
