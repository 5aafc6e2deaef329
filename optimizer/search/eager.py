"""Step 1 of the optimizer (Section 4 of the paper): a new query is shared at once, before anything is known.

A created query must not wait for statistics, so it is placed by shape alone, without looking at selections
or cost:

1. the largest common subquery: the join of the running plan with the most leaves that computes a part of
   the new query. A node computes a part of a query when its leaves are leaves of the query and, at every
   level, its key is exactly the query's equi predicates between its two inputs. Selections do not matter:
   they only decide bits. Among equally large ones the node with most users wins, then the lowest group,
   then the name, so that the choice is deterministic;
2. the leaves left over are covered the same way with further subplans of that group (so the tree may be
   bushy), and what is still left is joined on, one source after another;
3. without any common subquery the query goes where most of its sources are already scanned for others (scan
   sharing);
   A query of one stream that folds goes where its fold runs already, else where its stream is scanned;
4. without a common source it gets a group of its own: it would only make the query sets of others wider.

Groups with a query that is to be kept apart (`policy.apart`) are passed over, as if they did not run: a new query
should not begin its life beside a heavy one. The first of several new ones then opens a group, the next ones join it.

The node found in step 1 is maximal, so no running join combines it with anything else the query needs;
joins built on top are always new. The cost-based optimizer may undo any of this later: equal rows are
guaranteed by the trees, not by the choice.

Cost: in a tree over some leaves every predicate between them is checked at exactly one level. So a node
computes a part of a query exactly when all its equalities together are the query's equalities between those
leaves, and subplans can be looked up by (leaves, equalities): a query of n streams costs at most 2^n lookups
(n <= 8), however many queries run. Folds are looked up by their key. A `Table` holds both and follows the plan query
by query; who keeps it from one batch to the next pays for what is new only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from types import MappingProxyType
from typing import TypeVar

from optimizer.errors import InternalError
from optimizer.model.folds import FoldKey, fold_key
from optimizer.model.plan import (
    JoinNode,
    KeyPart,
    Leaf,
    Node,
    Placement,
    Plan,
    RunningQuery,
    SourceNode,
)
from optimizer.model.trees import chain, leaves_of, predicates

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)

NOBODY: Mapping[str, RunningQuery] = MappingProxyType({})

_Shape = tuple[tuple[Leaf, ...], frozenset[KeyPart]]
"""What a subplan computes, apart from its inner order: sorted leaves and all equalities between them."""


def place(plan: Plan, rq: RunningQuery) -> Placement:
    """Where the new query would run next to the queries of `plan`."""
    return Table(plan.placements).place(rq)


def create_delete(
    plan: Plan,
    created: Sequence[RunningQuery],
    deleted: Collection[str],
    apart: Collection[str] = (),
    running: Mapping[str, RunningQuery] = NOBODY,
    table: Table | None = None,
) -> Plan:
    """The plan after one query batch. Deletions come first: their slots serve the created queries.

    Created queries keep away from the groups of those in `apart` (uids). `running`: the queries of the plan; of those
    that are not in it, it is not known what they fold. `table`: that of `plan`, if somebody has it, with these groups
    closed; it becomes the table of the new plan.
    """
    if not created and not deleted:
        return plan
    if table is None:
        table = Table(plan.placements, closed_groups(plan, apart, deleted), running)
    kept = list(without(plan, deleted).placements)
    for uid in set(deleted):
        table.remove(plan.by_uid[uid])
    for rq in created:
        at = bisect_left(kept, rq.uid, key=lambda p: p.uid)
        if at < len(kept) and kept[at].uid == rq.uid:
            raise InternalError(f"query {rq.id!r} (uid {rq.uid}) is already in plan version {plan.version}")
        placed = table.place(rq)
        kept.insert(at, placed)
        table.add(placed, rq)
    return replace(plan, version=plan.version + 1, placements=tuple(kept))


def closed_groups(plan: Plan, apart: Collection[str], deleted: Collection[str]) -> frozenset[int]:
    """The groups of queries kept apart that stay (uids)."""
    return frozenset(plan.by_uid[uid].group for uid in set(apart).difference(deleted) if uid in plan.by_uid)


def without(plan: Plan, uids: Collection[str]) -> Plan:
    """The plan without these queries; joins that no other query uses go with them."""
    gone = set(uids)
    unknown = gone - plan.by_uid.keys()
    if unknown:
        raise InternalError(f"plan version {plan.version} does not run {', '.join(sorted(unknown))}")
    if not gone:
        return plan
    kept = tuple(p for p in plan.placements if p.uid not in gone)
    return replace(plan, version=plan.version + 1, placements=kept)


class Table:
    """What runs where, indexed for placement. Mutable, owned by who made it.

    Of groups in `closed` it knows only that their numbers are taken.
    """

    def __init__(
        self,
        placements: Iterable[Placement],
        closed: Collection[int] = (),
        running: Mapping[str, RunningQuery] = NOBODY,
    ) -> None:
        self._closed = frozenset(closed)
        self._subplans: dict[_Shape, Counter[JoinNode]] = {}
        self._scanned: dict[int, Counter[Leaf]] = {}
        self._folding: dict[FoldKey, Counter[int]] = {}
        self._folds: dict[str, FoldKey] = {}
        self._slots: dict[int, _Slots] = {}
        for p in placements:
            self.add(p, running.get(p.uid))

    def add(self, p: Placement, rq: RunningQuery | None) -> None:
        self._slots.setdefault(p.group, _Slots()).take(p.slot)
        if p.group in self._closed:
            return
        if rq is not None and rq.query.folds and isinstance(p.root, SourceNode):
            self._folds[p.uid] = fold_key(rq)
        self._count(p, 1)

    def remove(self, p: Placement) -> None:
        self._slots[p.group].free(p.slot)
        if not self._slots[p.group].taken:
            del self._slots[p.group]
        if p.group not in self._closed:
            self._count(p, -1)
            self._folds.pop(p.uid, None)

    def _count(self, p: Placement, n: int) -> None:
        for node in p.root.joins:
            _change(self._subplans, (node.leaves, node.equalities), node, n)
        for leaf in p.root.leaves:
            _change(self._scanned, p.group, leaf, n)
        if p.uid in self._folds:
            _change(self._folding, self._folds[p.uid], p.group, n)

    def place(self, rq: RunningQuery) -> Placement:
        leaves = tuple(leaves_of(rq).values())
        asked = _equalities(predicates(rq))
        shared = self._largest(asked, leaves, group=None)
        group = shared.group if shared else self._fold_group(rq, leaves)
        if group is None:
            group = self._most_common(leaves)

        inputs: list[Node] = []
        rest = leaves
        while shared:
            inputs.append(shared)
            covered = set(shared.leaves)
            rest = tuple(leaf for leaf in rest if leaf not in covered)
            shared = self._largest(asked, rest, group)
        inputs += [SourceNode(leaf, group) for leaf in rest]
        return Placement(rq.uid, group, self._free_slot(group), chain(rq, inputs))

    def _largest(self, asked: frozenset[KeyPart], leaves: tuple[Leaf, ...], group: int | None) -> JoinNode | None:
        """The largest subplan that computes a part of the query from these leaves, in `group` if given."""
        for size in range(len(leaves), 1, -1):
            candidates = [
                (-users, node.group, node.name, node)
                for subset in combinations(sorted(leaves), size)
                for node, users in self._subplans.get((subset, _within(asked, subset)), {}).items()
                if group in (None, node.group)
            ]
            if candidates:
                return min(candidates, key=lambda f: f[:3])[3]
        return None

    def _fold_group(self, rq: RunningQuery, leaves: tuple[Leaf, ...]) -> int | None:
        """The group in which most queries fold as this query of one stream does."""
        if len(leaves) > 1 or not rq.query.folds:
            return None
        users: Mapping[int, int] = self._folding.get(fold_key(rq), {})
        return min(users, key=lambda g: (-users[g], g), default=None)

    def _most_common(self, leaves: tuple[Leaf, ...]) -> int:
        """The group that scans most of the leaves already; the lowest free number when none scans any."""
        common = {g: sum(leaf in scanned for leaf in leaves) for g, scanned in self._scanned.items()}
        best = min(common, key=lambda g: (-common[g], g), default=0)
        if common.get(best, 0):
            return best
        return next(g for g in range(len(self._slots) + 1) if g not in self._slots)

    def _free_slot(self, group: int) -> int:
        return self._slots[group].lowest if group in self._slots else 0


class _Slots:
    """Of one group: which are taken, and the lowest that is not."""

    def __init__(self) -> None:
        self.taken: set[int] = set()
        self.lowest = 0

    def take(self, slot: int) -> None:
        self.taken.add(slot)
        while self.lowest in self.taken:
            self.lowest += 1

    def free(self, slot: int) -> None:
        self.taken.remove(slot)
        self.lowest = min(self.lowest, slot)


def _change(counts: dict[K, Counter[V]], key: K, value: V, n: int) -> None:
    """What nobody uses any more is not there."""
    users = counts.setdefault(key, Counter())
    users[value] += n
    if not users[value]:
        del users[value]
    if not users:
        del counts[key]


def _equalities(parts: Iterable[KeyPart]) -> frozenset[KeyPart]:
    """Without direction: the smaller attribute stands left."""
    return frozenset(p if p.left < p.right else KeyPart(p.right, p.left, p.type) for p in parts)


def _within(parts: frozenset[KeyPart], leaves: tuple[Leaf, ...]) -> frozenset[KeyPart]:
    return frozenset(p for p in parts if p.left.leaf in leaves and p.right.leaf in leaves)
