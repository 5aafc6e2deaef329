"""What sharing saves, counted: what the queries ask for against what the plan runs.

Four things can be shared. A *scan*: a stream is read once for everybody, even across groups. An *index*:
an input of a join (a source or a joined result) ordered by that join's key; the same input by the same key
is indexed once per group. A *join*: a node of the plan. A *fold*: what queries that aggregate alike keep of their
tuples (optimizer.model.folds). Asked for is what the queries would run one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from optimizer.model.folds import fold_key
from optimizer.model.plan import Attribute, JoinNode, Node, Plan, RunningQuery
from optimizer.model.types import ColumnType

Index = tuple[Attribute, ...]

NO_QUERIES: Mapping[str, RunningQuery] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Savings:
    scans_asked: int
    scans_run: int
    indexes_asked: int
    indexes_run: int
    joins_asked: int
    joins_run: int
    folds_asked: int = 0
    folds_run: int = 0

    def __str__(self) -> str:
        folds = f" · {self.folds_asked} folds asked for, {self.folds_run} made" if self.folds_asked else ""
        return (
            f"{self.joins_asked} joins asked for, {self.joins_run} run"
            f" · {self.indexes_asked} indexes asked for, {self.indexes_run} built"
            f" · {self.scans_asked} scans asked for, {self.scans_run} made{folds}"
        )


def what_sharing_saves(plan: Plan, queries: Mapping[str, RunningQuery] = NO_QUERIES) -> Savings:
    """Folds are counted of the queries given."""
    folding = [p for p in plan.placements if p.uid in queries and queries[p.uid].query.folds]
    joins = [node for p in plan.placements for node in p.root.joins]
    streams = [{leaf.stream for leaf in p.root.leaves} for p in plan.placements]
    return Savings(
        scans_asked=sum(len(s) for s in streams),
        scans_run=len(set[str]().union(*streams)),
        indexes_asked=sum(len(_indexes(p.root.joins)) for p in plan.placements),
        indexes_run=len(_indexes(plan.nodes)),
        joins_asked=len(joins),
        joins_run=len(plan.nodes),
        folds_asked=len(folding),
        folds_run=len({(p.root, fold_key(queries[p.uid])) for p in folding}),
    )


def indexes(plan: Plan) -> Mapping[Node, tuple[Index, ...]]:
    """By which keys each node is indexed for the joins that read it; the result of a last join has none."""
    keys_of: dict[Node, list[Index]] = {}
    for node, key in sorted(_indexes(plan.nodes), key=lambda index: index[1]):
        keys_of.setdefault(node, []).append(tuple(attribute for attribute, _ in key))
    return {node: tuple(dict.fromkeys(keys)) for node, keys in keys_of.items()}


def _indexes(joins: Iterable[JoinNode]) -> set[tuple[Node, tuple[tuple[Attribute, ColumnType], ...]]]:
    """With the types in which keys are compared: 1 as a BIGINT and 1 as a DOUBLE are hashed differently."""
    return {
        index
        for node in joins
        for index in (
            (node.left, tuple((k.left, k.type) for k in node.keys)),
            (node.right, tuple((k.right, k.type) for k in node.keys)),
        )
    }
