"""Which joins of a plan run together: a chain of joins on one key needs one stage.

A task owns a range of key hashes. What a join finds there has keys with hashes in that range, too. So if the join above
asks for the same key, the task can go straight on with its own result: nothing has to be hashed again, sorted, or
exchanged with other tasks (Figure 4d and e of the AJoin paper).

What a result is *partitioned* by is told per part of the key by the attributes that are equal there, with the type in
which they are compared: V.a = W.a = C.a, also where C.a is compared with W.a and D.a with V.a. An input *keeps* its
partitioning if every part of the new key is an attribute of that part, compared in that type; a composite key must be
the whole tuple in the same order. The cost model has the same rule over numbers (optimizer.cost.shapes).

Stages are numbered by what is needed: a join over sources runs in the first stage; one above joins in the stage of the
inputs that keep their partitioning, and after the stage of those that do not. Where a partition is split, a task has
only its part of a result. Joining that with the whole other side is right, as a join distributes over union; but two
such parts would not meet all of each other. Such a join waits for the next stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from optimizer.model.plan import Attribute, JoinNode, Plan
from optimizer.model.types import ColumnType

Typed = tuple[Attribute, ColumnType]
Partition = tuple[frozenset[Typed], ...]
"""Per part of a key, all attributes that are equal to it."""


def key_of(node: JoinNode, left: bool) -> tuple[Typed, ...]:
    """What a join asks of one of its inputs."""
    return tuple((k.left if left else k.right, k.type) for k in node.keys)


def same_partition(key: tuple[Typed, ...], partition: Partition) -> bool:
    """Does a result that is partitioned like this stay where it is, if it is asked for by this key?"""
    return len(key) == len(partition) and all(part in equal for part, equal in zip(key, partition, strict=True))


class Stages:
    """Of a plan. `number`: the stage of each join, from 1 on; `partition`: what its result is partitioned by."""

    def __init__(self, nodes: Iterable[JoinNode], *, split: bool = False) -> None:
        """`nodes`: inputs before consumers. `split`: several tasks work on one partition."""
        self.number: dict[JoinNode, int] = {}
        self.partition: dict[JoinNode, Partition] = {}
        for node in nodes:
            self._add(node, split)

    def _add(self, node: JoinNode, split: bool) -> None:
        below = [(side, child) for side, child in ((True, node.left), (False, node.right)) if child in self.number]
        kept = {child for side, child in below if isinstance(child, JoinNode) and self.keeps(node, left=side)}
        stages = [self.number[child] + (child not in kept) for _, child in below if isinstance(child, JoinNode)]
        number = max(stages, default=1)
        if split and len(kept) == 2 and all(self.number[child] == number for child in kept):
            number += 1
        self.number[node] = number
        equal: list[set[Typed]] = []
        for left, right in zip(key_of(node, left=True), key_of(node, left=False), strict=True):
            part = {left, right}
            for child in kept:
                for known in self.partition[child]:
                    part |= known if not known.isdisjoint((left, right)) else set()
            equal.append(part)
        self.partition[node] = tuple(frozenset(part) for part in equal)

    def keeps(self, node: JoinNode, *, left: bool) -> bool:
        """Does this input of the join keep its partitioning?"""
        child = node.left if left else node.right
        return isinstance(child, JoinNode) and same_partition(key_of(node, left), self.partition[child])

    def goes_on(self, node: JoinNode, *, left: bool) -> bool:
        """Does the join go on with what its own task has found for this input?"""
        child = node.left if left else node.right
        return isinstance(child, JoinNode) and self.keeps(node, left=left) and self.number[child] == self.number[node]

    @property
    def joins(self) -> list[list[JoinNode]]:
        """The joins of each stage, inputs before consumers."""
        stages: dict[int, list[JoinNode]] = {}
        for node, number in self.number.items():
            stages.setdefault(number, []).append(node)
        return [stages[number] for number in sorted(stages)]


def stages_of(plan: Plan) -> Stages:
    return Stages(plan.nodes, split=bool(plan.partitioning.splits))


def goes_on_into(nodes: Iterable[JoinNode], stages: Stages) -> Mapping[JoinNode, tuple[JoinNode, ...]]:
    """Per join the ones above it that run in the same stage, over its result."""
    out: dict[JoinNode, list[JoinNode]] = {}
    for node in nodes:
        for left, child in ((True, node.left), (False, node.right)):
            if isinstance(child, JoinNode) and stages.goes_on(node, left=left):
                out.setdefault(child, []).append(node)
    return {node: tuple(above) for node, above in out.items()}
