"""What the optimizer remembers from one call to the next: one frozen value, handed in and handed back.

A call never changes the memory it was given; it returns the next one beside its plan. The caller decides whether
that plan is run, and only then keeps the new memory: a query that was refused, a changelog that did not reach the
disk or a dry run leaves no trace. All of it may be lost: without it the optimizer gives plans as good, but may
change them sooner.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from optimizer.model.plan import Attribute, Plan
from optimizer.policy.apart import Watched
from optimizer.policy.hysteresis import Hysteresis
from optimizer.policy.scaling import Quiet

Seen = tuple[tuple[str, tuple[float, ...]], ...]
"""Per query (uid) the numbers that its place depends on, sorted by uid (search.drift)."""


@dataclass(frozen=True, slots=True)
class DeletedQuery:
    """A query that is gone, and the attributes it joined on: by them its former neighbours are found."""

    uid: str
    attributes: frozenset[Attribute]


@dataclass(frozen=True, slots=True)
class Memory:
    """- `created`, `deleted`: queries no applied optimization has looked at yet; with them those that were kept apart
      until the last one and may share again.
    - `changes`: how many queries came or went since the last applied full run.
    - `calls`: optimizations since the last full one.
    - `achieved`: cost of the plan that the last full run found, as a part of what its queries would cost one by one.
    - `promised`: which part of its cost the running plan could have been spared then.
    - `seen`: what the queries' statistics were when they were last looked at; `drifted`: those that are to be looked at
      once more, because theirs were changing, or because they were pinned until now.
    - `hysteresis`, `quiet`: what the two policies that wait for confirmation remember.
    - `apart`: the queries that are kept apart, or were not long ago.
    """

    created: frozenset[str] = frozenset()
    deleted: frozenset[DeletedQuery] = frozenset()
    changes: int = 0
    calls: int = 0
    achieved: float | None = None
    promised: float = 0.0
    seen: Seen = ()
    drifted: frozenset[str] = frozenset()
    hysteresis: Hysteresis = field(default_factory=Hysteresis)
    quiet: Quiet = field(default_factory=Quiet)
    apart: tuple[Watched, ...] = ()

    def after_batch(self, plan: Plan, created: Iterable[str], deleted: Collection[str]) -> Memory:
        """`plan` is the one before the batch; `created` and `deleted` are uids."""
        new, gone = frozenset(created), frozenset(deleted)
        known = frozenset(DeletedQuery(uid, _attributes(plan, uid)) for uid in gone - self.created)
        return replace(
            self,
            created=(self.created - gone) | new,
            deleted=self.deleted | known,
            changes=self.changes + len(new) + len(gone),
        )


def _attributes(plan: Plan, uid: str) -> frozenset[Attribute]:
    return frozenset(a for part in plan.by_uid[uid].root.equalities for a in (part.left, part.right))
