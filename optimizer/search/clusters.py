"""A query group during the search: its queries (shape by shape) with their trees, and what they cost together.

Groups share nothing, so a plan under construction is just a list of clusters, its cost the sum of theirs, and every
decision is a comparison of the clusters before and after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from optimizer.cost.model import CostModel, Member, Tree
from optimizer.cost.shapes import Shape
from optimizer.search.ordering import order

Singles = Mapping[str, Member]
"""Every query as a member of its own, by uid."""


@dataclass(frozen=True)
class Cluster:
    """`trees` is sorted by shape. The optimizer gives each shape one order; a plan that was forced may have several."""

    trees: tuple[Tree, ...]
    cost: float

    @cached_property
    def uids(self) -> tuple[str, ...]:
        return tuple(sorted(u for member, _ in self.trees for u in member.uids))

    @cached_property
    def roots(self) -> Mapping[Shape, int]:
        """Per shape the order that most of its queries have."""
        leading: dict[Shape, Tree] = {}
        for member, root in self.trees:
            if member.shape not in leading or len(leading[member.shape][0].uids) < len(member.uids):
                leading[member.shape] = (member, root)
        return {shape: root for shape, (_, root) in leading.items()}

    @cached_property
    def leaf_bits(self) -> Mapping[int, int]:
        bits: dict[int, int] = {}
        for member, _ in self.trees:
            for leaf, b in zip(member.shape.leaves, member.bits, strict=True):
                bits[leaf] = bits.get(leaf, 0) | b
        return bits


def members_of(singles: Singles, uids: Iterable[str]) -> list[Member]:
    """The queries taken together shape by shape, in shape order."""
    by_shape: dict[Shape, list[Member]] = {}
    for uid in sorted(uids):
        by_shape.setdefault(singles[uid].shape, []).append(singles[uid])
    return [together(by_shape[s]) for s in sorted(by_shape, key=lambda s: s.text)]


def together(members: Sequence[Member]) -> Member:
    """One member for several of the same shape."""
    if len(members) == 1:
        return members[0]
    bits = list(members[0].bits)
    for m in members[1:]:
        bits = [a | b for a, b in zip(bits, m.bits, strict=True)]
    uids = tuple(sorted(u for m in members for u in m.uids))
    rows, entries = sum(m.rows for m in members), sum(m.entries for m in members)
    return Member(members[0].shape, tuple(bits), max(m.seconds for m in members), uids, rows, entries)


def cluster(model: CostModel, trees: Iterable[Tree]) -> Cluster:
    ordered = tuple(sorted(trees, key=lambda t: (t[0].shape.text, t[0].uids)))
    return Cluster(ordered, model.cost(ordered))


def ordered(model: CostModel, members: Sequence[Member], roots: Mapping[Shape, int] | None = None) -> Cluster:
    """The members in the best order found; never worse than `roots`, if given for all of them."""
    known = [roots[m.shape] for m in members] if roots and all(m.shape in roots for m in members) else ()
    trees, cost = order(model, members, known)
    return Cluster(tuple(trees), cost)


def merged(model: CostModel, a: Cluster, b: Cluster) -> Cluster:
    """Both in one group, each shape in the order it has; where both have a shape, the one with more queries leads."""
    members: dict[Shape, Tree] = {}
    for member, root in (*a.trees, *b.trees):
        known = members.get(member.shape)
        if known is None:
            members[member.shape] = (member, root)
        else:
            leading = known[1] if len(known[0].uids) >= len(member.uids) else root
            members[member.shape] = (known[0].plus(member), leading)
    return cluster(model, members.values())
