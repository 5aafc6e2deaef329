"""From a plan to a better one, as what it does to each query: so that it can still be done when the plan has moved on.

A large change is prepared while the platform goes on, and meanwhile users create and delete queries. What was
decided is therefore kept as moves: this query, which stands there, is to stand here. Applied to a later plan, moves of
queries that are gone fall away, and a query that came meanwhile and stands where another one is to go gets the next
free slot. If a query stands elsewhere than it did, because somebody else moved it, or is pinned meanwhile, they no
longer hold. Unlike the parts of a change (optimizer.model.parts), moves name slots: bits have been written by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

from optimizer.model import parts
from optimizer.model.pins import NO_PINS, Pins
from optimizer.model.plan import Placement, Plan


class Move(NamedTuple):
    was: Placement
    to: Placement


@dataclass(frozen=True)
class Moves:
    """By uid. Queries that stay where they are have none."""

    of: Mapping[str, Move]

    @staticmethod
    def between(before: Plan, after: Plan) -> Moves:
        """Partitioning is left alone: another one needs no preparation."""
        old = before.by_uid
        return Moves({p.uid: Move(old[p.uid], p) for p in after.placements if p.uid in old and old[p.uid] != p})

    def applied(self, plan: Plan, pins: Pins = NO_PINS) -> tuple[Plan, Moves] | None:
        """The plan one version up with these moves done, and the moves as they were done, with those of queries that
        had to make room; None if the moves no longer hold, or there is nothing left to move."""
        here = {uid: move for uid, move in self.of.items() if uid in plan.by_uid}
        if not here or any(plan.by_uid[uid] != move.was for uid, move in here.items()):
            return None
        steps = (parts.Move(uid, m.was.group, m.was.root, m.to.group, m.to.root) for uid, m in here.items())
        if not pins.allow(parts.Part(tuple(steps))):
            return None
        owner = {(move.to.group, move.to.slot): uid for uid, move in here.items()}
        staying = [p for p in plan.placements if p.uid not in here]
        taken = {*owner, *((p.group, p.slot) for p in staying)}
        for p in staying:
            if (p.group, p.slot) in owner:
                slot = next(slot for slot in count() if (p.group, slot) not in taken)
                taken.add((p.group, slot))
                here[p.uid] = Move(p, replace(p, slot=slot))
        placements = tuple(here[p.uid].to if p.uid in here else p for p in plan.placements)
        return replace(plan, version=plan.version + 1, placements=placements), Moves(here)
