"""The shared plan as one frozen value: who runs where, in which order, with which bit.

A plan is a forest of join trees that overlap. Nodes are compared by value, so two queries share a join exactly when
their trees contain equal nodes: sharing is set membership. A node belongs to one query group, and only queries of that
group use it; groups with the same shape keep separate query sets and indexes (Figure 6 of the AJoin paper), but share
the tuples' columns.

Leaves: `Leaf(stream, occurrence)` is one use of a stream. The second use of the same stream in a query (a self-join)
is occurrence 1, with query sets of its own, so that each use has its own selection.

Slots: within its group every query owns one bit. A slot is free again after a deletion, so a bit means something only
together with a plan version; `changelog_set` tells which bits kept their meaning between two versions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from optimizer.model.query import Query
from optimizer.model.types import ColumnType


@dataclass(frozen=True, slots=True, order=True)
class Leaf:
    stream: str
    occurrence: int = 0

    def __str__(self) -> str:
        return self.stream if self.occurrence == 0 else f"{self.stream}'{self.occurrence}"


@dataclass(frozen=True, slots=True, order=True)
class Attribute:
    leaf: Leaf
    column: str

    def __str__(self) -> str:
        return f"{self.leaf}.{self.column}"


@dataclass(frozen=True, slots=True, order=True)
class KeyPart:
    """One equality of a join key: `left` is an attribute of the left input, `right` of the right one."""

    left: Attribute
    right: Attribute
    type: ColumnType


@dataclass(frozen=True, slots=True, order=True)
class SourceNode:
    leaf: Leaf
    group: int

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return (self.leaf,)

    @property
    def joins(self) -> tuple[JoinNode, ...]:
        return ()

    @property
    def equalities(self) -> frozenset[KeyPart]:
        return frozenset()

    @property
    def depth(self) -> int:
        return 0

    @property
    def name(self) -> str:
        return f"g{self.group}-{self.leaf}"

    def __str__(self) -> str:
        return str(self.leaf)


@dataclass(frozen=True)
class JoinNode:
    """left ⋈ right. Build with `join`, which puts the inputs and the key parts into canonical order."""

    left: Node
    right: Node
    keys: tuple[KeyPart, ...]
    group: int

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(sorted((*self.left.leaves, *self.right.leaves)))

    @cached_property
    def joins(self) -> tuple[JoinNode, ...]:
        """All joins of this tree, inputs before consumers; this one is the last."""
        return (*self.left.joins, *self.right.joins, self)

    @cached_property
    def equalities(self) -> frozenset[KeyPart]:
        """All key parts of this tree without direction: the smaller attribute stands left."""
        parts = (k for n in self.joins for k in n.keys)
        return frozenset(k if k.left < k.right else KeyPart(k.right, k.left, k.type) for k in parts)

    @cached_property
    def depth(self) -> int:
        """The longest way down to a source, in joins."""
        return 1 + max(self.left.depth, self.right.depth)

    @cached_property
    def name(self) -> str:
        """Short and stable: the group and a digest of the exact structure; safe in file names."""
        digest = hashlib.blake2b(repr(self).encode(), digest_size=6).hexdigest()
        return f"g{self.group}-{digest}"

    @cached_property
    def _hash(self) -> int:
        return hash((self.left, self.right, self.keys, self.group))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return f"({self.left} ⋈ {self.right})"


Node = SourceNode | JoinNode


def join(left: Node, right: Node, keys: tuple[KeyPart, ...]) -> JoinNode:
    """Canonical join: the input with the smallest leaf stands left, key parts are sorted."""
    if min(right.leaves) < min(left.leaves):
        left, right = right, left
    on_left = set(left.leaves)
    parts = {k if k.left.leaf in on_left else KeyPart(k.right, k.left, k.type) for k in keys}
    return JoinNode(left, right, tuple(sorted(parts)), left.group)


def walk(node: Node) -> Iterator[Node]:
    """Inputs before the node itself."""
    if isinstance(node, JoinNode):
        yield from walk(node.left)
        yield from walk(node.right)
    yield node


def uid_of(id: str, serial: int) -> str:
    """Unique for ever: an id can be used again after deletion, a serial number cannot."""
    return f"{id}#{serial}"


def id_of(uid: str) -> str:
    """The id under which the query with this uid was created."""
    return uid.rpartition("#")[0]


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """A created query."""

    uid: str
    id: str
    query: Query
    active_from: int | None

    def leaf_of(self, alias: str) -> Leaf:
        """Aliases become leaves in FROM order: the n-th use of a stream is its occurrence n."""
        seen = 0
        stream = self.query.stream_of(alias)
        for s in self.query.sources:
            if s.alias == alias:
                return Leaf(stream, seen)
            seen += s.stream == stream
        raise KeyError(alias)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one query runs: its group, its bit in that group's query sets, and its join tree.

    A query of one stream has no join: its root is the source itself.
    """

    uid: str
    group: int
    slot: int
    root: Node


FULL_RANGE = 1 << 64


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The partition function: partition i owns key hashes in [bounds[i], bounds[i+1]); a split runs it k ways."""

    bounds: tuple[int, ...] = (0, FULL_RANGE)
    splits: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def even(partitions: int) -> Partitioning:
        return Partitioning(tuple(FULL_RANGE * i // partitions for i in range(partitions + 1)))

    @property
    def count(self) -> int:
        return len(self.bounds) - 1

    def ways(self, partition: int) -> int:
        return dict(self.splits).get(partition, 1)

    def with_split(self, partition: int, ways: int) -> Partitioning:
        kept = {p: w for p, w in self.splits if p != partition}
        if ways > 1:
            kept[partition] = ways
        return Partitioning(self.bounds, tuple(sorted(kept.items())))


@dataclass(frozen=True)
class Plan:
    """Version 0 is the empty plan. `placements` is sorted by uid."""

    version: int = 0
    placements: tuple[Placement, ...] = ()
    partitioning: Partitioning = Partitioning()

    @cached_property
    def by_uid(self) -> Mapping[str, Placement]:
        return {p.uid: p for p in self.placements}

    @cached_property
    def nodes(self) -> Mapping[JoinNode, tuple[str, ...]]:
        """Every join of the plan with the queries that use it, inputs before consumers."""
        users: dict[JoinNode, list[str]] = {}
        for p in self.placements:
            for n in p.root.joins:
                users.setdefault(n, []).append(p.uid)
        ordered = sorted(users, key=lambda n: (n.depth, n.name))
        return {n: tuple(users[n]) for n in ordered}

    @cached_property
    def sources(self) -> Mapping[SourceNode, tuple[str, ...]]:
        users: dict[SourceNode, list[str]] = {}
        for p in self.placements:
            for n in walk(p.root):
                if isinstance(n, SourceNode):
                    users.setdefault(n, []).append(p.uid)
        return {n: tuple(users[n]) for n in sorted(users)}

    @cached_property
    def groups(self) -> Mapping[int, tuple[Placement, ...]]:
        members: dict[int, list[Placement]] = {}
        for p in self.placements:
            members.setdefault(p.group, []).append(p)
        return {g: tuple(sorted(members[g], key=lambda p: p.slot)) for g in sorted(members)}

    def slots(self, group: int) -> Mapping[int, str]:
        return {p.slot: p.uid for p in self.groups.get(group, ())}

    def words(self, group: int) -> int:
        """64-bit words a query set of this group needs."""
        return max((p.slot for p in self.groups.get(group, ())), default=0) // 64 + 1


def changelog_set(before: Mapping[int, str], after: Mapping[int, str]) -> frozenset[int]:
    """Slots whose bit means the same query in both slot tables (the paper's changelog set, as slot numbers)."""
    return frozenset(slot for slot, uid in after.items() if before.get(slot) == uid)
