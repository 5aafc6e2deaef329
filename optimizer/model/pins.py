"""What a person has decided about the plan, and nobody else may change until it is released.

A pin says *that* something stays, not what: the plan itself says where a pinned query runs, and in which order. So
pins and plan cannot contradict each other. A query that ends takes its pins with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from optimizer.model.parts import Move, Part, combined
from optimizer.model.plan import Plan
from optimizer.model.trees import regroup


@dataclass(frozen=True, slots=True)
class Pins:
    """Uids whose join order or query group stays; `scale`: the partition function stays."""

    orders: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    scale: bool = False

    def __bool__(self) -> bool:
        return bool(self.orders or self.groups or self.scale)

    def with_order(self, uid: str) -> Pins:
        return replace(self, orders=self.orders | {uid})

    def with_groups(self, uids: Iterable[str]) -> Pins:
        return replace(self, groups=self.groups | set(uids))

    def without(self, uids: Collection[str]) -> Pins:
        return replace(self, orders=self.orders.difference(uids), groups=self.groups.difference(uids))

    def of(self, uid: str) -> tuple[str, ...]:
        """For people: what is pinned of a query."""
        return (("order",) if uid in self.orders else ()) + (("group",) if uid in self.groups else ())

    def respected(self, plan: Plan, candidate: Plan) -> Plan:
        """The candidate with everything pinned as it is in `plan`.

        A query with a pinned group may still get another order there, one with a pinned order may still move with it.
        """
        if not (self.orders or self.groups):
            return candidate
        before = plan.by_uid
        placements = []
        for p in candidate.placements:
            old = before[p.uid]
            group = old.group if p.uid in self.groups else p.group
            root = old.root if p.uid in self.orders else p.root
            placements.append(replace(p, group=group, root=regroup(root, group)))
        if all(p == q for p, q in zip(placements, candidate.placements, strict=True)):
            return candidate
        moves = (Move(p.uid, before[p.uid].group, before[p.uid].root, p.group, p.root) for p in placements)
        changed = [m for m in moves if (m.group, m.root) != (m.old_group, m.old_root)]
        return combined(plan, [Part(tuple(changed))])

    def allow(self, part: Part) -> bool:
        """Does the part leave everything pinned as it is?"""
        return not any(
            (m.uid in self.groups and m.group != m.old_group)
            or (m.uid in self.orders and m.root != regroup(m.old_root, m.group))
            for m in part.moves
        )


NO_PINS = Pins()
