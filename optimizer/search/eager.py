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
(n <= 8), however many queries run. A batch keeps one working table and updates it query by query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from types import MappingProxyType

from optimizer.errors import InternalError
from optimizer.model.folds import fold_key
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

NOBODY: Mapping[str, RunningQuery] = MappingProxyType({})

_Shape = tuple[tuple[Leaf, ...], frozenset[KeyPart]]
"""What a subplan computes, apart from its inner order: sorted leaves and all equalities between them."""


def place(plan: Plan, rq: RunningQuery) -> Placement:
    """Where the new query would run next to the queries of `plan`."""
    return _Table(plan.placements).place(rq)


def create_delete(
    plan: Plan,
    created: Sequence[RunningQuery],
    deleted: Collection[str],
    apart: Collection[str] = (),
    running: Mapping[str, RunningQuery] = NOBODY,
) -> Plan:
    """The plan after one query batch. Deletions come first: their slots serve the created queries.

    Created queries keep away from the groups of those in `apart` (uids). `running`: the queries of the plan; of those
    that are not in it, it is not known what they fold.
    """
    kept = {p.uid: p for p in without(plan, deleted).placements}
    table = _Table(kept.values(), {kept[uid].group for uid in apart if uid in kept}, running)
    for rq in created:
        if rq.uid in kept:
            raise InternalError(f"query {rq.id!r} (uid {rq.uid}) is already in plan version {plan.version}")
        kept[rq.uid] = table.place(rq)
        table.add(kept[rq.uid], rq)
    if not created and not deleted:
        return plan
    return replace(plan, version=plan.version + 1, placements=tuple(kept[uid] for uid in sorted(kept)))


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


class _Table:
    """What runs where, indexed for placement. Mutable, owned by one call of `place` or `create_delete`.

    Of groups in `closed` it knows only that their numbers are taken.
    """

    def __init__(
        self,
        placements: Iterable[Placement],
        closed: Collection[int] = (),
        running: Mapping[str, RunningQuery] = NOBODY,
    ) -> None:
        self._subplans: dict[_Shape, Counter[JoinNode]] = {}
        self._scanned: dict[int, set[Leaf]] = {}
        self._slots: dict[int, set[int]] = {}
        every = tuple(placements)
        for p in every:
            self._slots.setdefault(p.group, set()).add(p.slot)
        known = tuple(p for p in every if p.group not in closed)
        self._count(Counter(node for p in known for node in p.root.joins))
        for root, group in {p.root: p.group for p in known}.items():
            self._scanned.setdefault(group, set()).update(root.leaves)
        self._alone: dict[Leaf, list[tuple[int, RunningQuery]]] = {}
        for p in known:
            if isinstance(p.root, SourceNode) and p.uid in running:
                self._alone.setdefault(p.root.leaf, []).append((p.group, running[p.uid]))

    def add(self, p: Placement, rq: RunningQuery) -> None:
        if isinstance(p.root, SourceNode):
            self._alone.setdefault(p.root.leaf, []).append((p.group, rq))
        self._count(Counter(p.root.joins))
        self._scanned.setdefault(p.group, set()).update(p.root.leaves)
        self._slots.setdefault(p.group, set()).add(p.slot)

    def _count(self, users: Counter[JoinNode]) -> None:
        """Each distinct join is looked at once, however many queries use it."""
        for node, n in users.items():
            self._subplans.setdefault((node.leaves, node.equalities), Counter())[node] += n

    def place(self, rq: RunningQuery) -> Placement:
        leaves = tuple(leaves_of(rq).values())
        asked = _equalities(predicates(rq))
        shared = self._largest(asked, leaves, group=None)
        group = shared.group if shared else self._folding(rq, leaves)
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

    def _folding(self, rq: RunningQuery, leaves: tuple[Leaf, ...]) -> int | None:
        """The group in which most queries fold as this query of one stream does."""
        if len(leaves) > 1 or not rq.query.folds:
            return None
        key = fold_key(rq)
        users = Counter(
            g for g, other in self._alone.get(leaves[0], ()) if other.query.folds and fold_key(other) == key
        )
        return min(users, key=lambda g: (-users[g], g), default=None)

    def _most_common(self, leaves: tuple[Leaf, ...]) -> int:
        """The group that scans most of the leaves already; the lowest free number when none scans any."""
        common = {g: len(scanned.intersection(leaves)) for g, scanned in self._scanned.items()}
        best = min(common, key=lambda g: (-common[g], g), default=0)
        if common.get(best, 0):
            return best
        return _lowest_free(self._slots.keys())

    def _free_slot(self, group: int) -> int:
        return _lowest_free(self._slots.get(group, set()))


def _equalities(parts: Iterable[KeyPart]) -> frozenset[KeyPart]:
    """Without direction: the smaller attribute stands left."""
    return frozenset(p if p.left < p.right else KeyPart(p.right, p.left, p.type) for p in parts)


def _within(parts: frozenset[KeyPart], leaves: tuple[Leaf, ...]) -> frozenset[KeyPart]:
    return frozenset(p for p in parts if p.left.leaf in leaves and p.right.leaf in leaves)


def _lowest_free(taken: Collection[int]) -> int:
    return next(i for i in range(len(taken) + 1) if i not in taken)
