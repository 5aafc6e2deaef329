"""The next plan after a few changes: only created queries are placed, only their groups and neighbours are looked at.

A created query was placed by shape alone (`eager`); now that its selectivity is known it is taken out and put where
it costs least: into the group that gains most by it, in the best order next to that group's joins, or into a group of
its own. Then the queries that have a join in common with a created or deleted query are reordered once, because what
was worth sharing with it may not be any more, and the other way round. All other groups, and all other orders, stay
as they are.

The work is proportional to the number of changes and to the size of the groups they touch; each touched group is
taken apart once, and a placement is priced in time proportional to the query placed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from optimizer.cost.model import CostModel, Member, Shared, Tree
from optimizer.model.plan import Attribute
from optimizer.search.clusters import Cluster, Singles, cluster, ordered, together
from optimizer.search.dynamic import TOLERANCE, best_tree, saving
from optimizer.search.refine import Alone, never_above_unshared

TRIED = 4
NEIGHBOURS = 16
WORTH = 0.1
"""In a large group a reordering is judged by an estimate; it must save this part of the shape's own cost."""


class _Open:
    """A cluster that may change: its trees, taken apart when first needed."""

    def __init__(
        self, model: CostModel, trees: Sequence[Tree], same: Cluster | None, origin: Cluster | None = None
    ) -> None:
        self.model = model
        self.trees = list(trees)
        self.same = same  # what it is as long as nothing changes; None once something has
        self.origin = origin  # what it was before queries were taken out; they may all come back
        self._shared: Shared | None = None
        self._exact = True
        self.leaf_bits: dict[int, int] = {}
        self.attributes: set[tuple[int, str]] = set()
        for member, _ in trees:
            self._widen(member)

    @property
    def shared(self) -> Shared:
        if self._shared is None:
            self._shared = Shared(self.model, self.trees)
        return self._shared

    def _widen(self, member: Member) -> None:
        for leaf, bits in zip(member.shape.leaves, member.bits, strict=True):
            self.leaf_bits[leaf] = self.leaf_bits.get(leaf, 0) | bits
        self.attributes.update(member.shape.attributes)

    def add(self, single: Member, root: int) -> None:
        self.shared.add(single, root)
        self._widen(single)
        for i, (member, known) in enumerate(self.trees):
            if known == root and member.shape == single.shape:
                self.trees[i] = (member.plus(single), root)
                break
        else:
            self.trees.append((single, root))
        self.same = None

    def reorder(self, i: int, root: int) -> None:
        member, old = self.trees[i]
        self.shared.remove(member, old)
        self.shared.add(member, root)
        self.trees[i] = (member, root)
        self.same, self._exact = None, False

    def closed(self) -> Cluster:
        if self.same is None:
            trees = sorted(self.trees, key=lambda t: (t[0].shape.text, t[0].uids))
            if self.origin is not None and _signature(trees) == _signature(self.origin.trees):
                self.same = self.origin
            elif self._shared is not None and self._exact:
                self.same = Cluster(tuple(trees), self._shared.cost())
            else:
                self.same = cluster(self.model, trees)
        return self.same


def _signature(trees: Sequence[Tree]) -> list[tuple[tuple[str, ...], int]]:
    return [(member.uids, root) for member, root in trees]


def optimize_incrementally(
    model: CostModel,
    singles: Singles,
    before: Mapping[int, Cluster],
    created: Collection[str],
    deleted: Iterable[Attribute],
    alone: Alone,
) -> list[Cluster]:
    """`before` is the running plan, created queries included; `deleted` are the attributes that deleted queries joined
    on."""
    movers = sorted(u for u in created if u in singles)
    moving = set(movers)
    opened: list[_Open] = []
    for _, c in sorted(before.items()):
        if moving.isdisjoint(c.uids):
            opened.append(_Open(model, c.trees, c))
            continue
        trees = [(_without(m, moving, singles), root) for m, root in c.trees]
        left = [(m, root) for m, root in trees if m is not None]
        if left:
            opened.append(_Open(model, left, None, c))
    for uid in movers:
        _place(model, singles[uid], opened, alone)
    wanted = {a for uid in movers for a in singles[uid].shape.attributes}
    wanted.update((model.shapes.leaf_id(a.leaf), a.column) for a in deleted)
    for o in opened:
        if o.same is None or not o.attributes.isdisjoint(wanted):
            _reorder_neighbours(model, o, wanted)
    small: list[Cluster] = []
    large: list[Cluster] = []
    for o in opened:
        guarded = o.same is None and len(o.trees) <= NEIGHBOURS
        (small if guarded else large).append(o.closed())
    return sorted([*never_above_unshared(small, alone), *large], key=lambda c: c.uids)


def _without(member: Member, gone: set[str], singles: Singles) -> Member | None:
    left = [singles[u] for u in member.uids if u not in gone]
    if len(left) == len(member.uids):
        return member
    return together(left) if left else None


def _place(model: CostModel, single: Member, opened: list[_Open], alone: Alone) -> None:
    """Puts one query where it costs least."""
    card = model.cardinalities
    wanted = single.shape.attributes
    ranked = []
    for i, o in enumerate(opened):
        usable = wanted & o.attributes
        common = sum(
            card.rate(leaf) * card.fraction(leaf, bits & o.leaf_bits[leaf])
            for leaf, bits in zip(single.shape.leaves, single.bits, strict=True)
            if any(leaf == at for at, _ in usable)
        )
        if usable:
            ranked.append((-common, i))
    (uid,) = single.uids
    by_itself = alone(uid)
    best = (by_itself.cost, -1, by_itself.trees[0][1])
    for _, i in sorted(ranked)[:TRIED]:
        group = opened[i].shared
        known = next((root for m, root in opened[i].trees if m.shape == single.shape), -1)
        root = known if known >= 0 else best_tree(model, single, group)
        one = Shared(model, [(single, root)])
        price = one.cost() + group.absorption(one)
        if price < best[0] * (1 - TOLERANCE):
            best = (price, i, root)
    if best[1] >= 0:
        opened[best[1]].add(single, best[2])
    else:
        opened.append(_Open(model, by_itself.trees, by_itself))


def _reorder_neighbours(model: CostModel, o: _Open, wanted: set[tuple[int, str]]) -> None:
    """Reorders the group, or in a large one only the shapes that have most attributes in common with the changes."""
    if len(o.trees) <= NEIGHBOURS // 2:
        if len({m.shape for m, _ in o.trees}) == len(o.trees):
            members = sorted((m for m, _ in o.trees), key=lambda m: m.shape.text)
            roots = {m.shape: root for m, root in o.trees}
            reordered = ordered(model, members, roots)
            if o.same is None or reordered.cost < o.same.cost * (1 - TOLERANCE):
                o.trees, o.same = list(reordered.trees), reordered
        return
    near = []
    for i, (member, _) in enumerate(o.trees):
        common = len(wanted & member.shape.attributes)
        if len(member.shape.leaves) > 2 and common > 2:
            near.append((-common, member.shape.text, i))
    for _, _, i in sorted(near)[:NEIGHBOURS]:
        member, root = o.trees[i]
        better = best_tree(model, member, o.shared, root)
        if better != root and saving(model, member, o.shared, root, better) > WORTH:
            o.reorder(i, better)
