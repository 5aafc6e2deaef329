"""Join graphs without selections, and the joins that can be built from them, as small integers.

A *shape* is what remains of a query when selections, window and outputs are taken away: its leaves and its equi
predicates. Queries with equal shapes can share every join, so the optimizer decides per shape and group, not per query.
A query of one stream has no join; what it can share is its fold (optimizer.model.folds), or with queries that deliver
tuples the pass over them. Its tree is the leaf. The name of the fold is part of the shape wherever no rows are made for
it: over one stream, and over a join whose lists are folded. Shapes that differ in it only have the same joins.

`Shapes` is a table that gives every leaf, every possible join and every shape one number (hash consing): two
queries can share a join exactly when they name the same number. A join is its two inputs plus *all* predicates that
cross between them, as in `optimizer.model.trees`; it knows how its inputs must be indexed and whether a joined input
keeps the partitioning it already has (as optimizer.model.stages tells of a plan):

    (V ⋈ W on usrID) ⋈ C on W.usrID = C.usrID     the left input is already partitioned by usrID: no exchange
    (V ⋈ W on vID)   ⋈ C on W.usrID = C.usrID     it must be re-indexed by W.usrID and exchanged

The table only grows; its owner drops it as a whole (it is a cache of what the queries say).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from optimizer.model.expressions import Call, Case, Cast, ColumnRef, Expr, InList, Like, Literal, children
from optimizer.model.folds import fold_key, folds_lists
from optimizer.model.plan import Attribute, JoinNode, KeyPart, Leaf, Node, RunningQuery, SourceNode
from optimizer.model.trees import leaves_of, predicates
from optimizer.model.types import ColumnType
from optimizer.model.windows import Window

Columns = tuple[tuple[str, ColumnType], ...]
"""An index of a source: its key columns in hashing order, with the type they are compared in."""

Typed = tuple[Attribute, ColumnType]


@dataclass(frozen=True, slots=True)
class Side:
    """One input of a join: a leaf with the index it needs, or a join whose result is exchanged or kept as it is."""

    input: int
    index: int = -1
    exchange: int = -1


@dataclass(frozen=True, slots=True)
class Index:
    leaf: int
    columns: Columns


@dataclass(frozen=True, slots=True)
class Exchange:
    """A join's result indexed again by another key. `holder` is the index of the leaf that has all key attributes, at
    `position` among the join's leaves; -1 when the attributes come from several leaves."""

    join: int
    key: tuple[Typed, ...]
    holder: int
    position: int


@dataclass(slots=True)
class Join:
    """One possible join. `left` and `right` are numbers of leaves or joins; the left one holds the smallest leaf."""

    id: int
    left: Side
    right: Side
    parts: tuple[KeyPart, ...]
    leaves: tuple[int, ...]
    edges: frozenset[KeyPart]
    """All predicates below, smaller attribute on the left."""
    partition: tuple[frozenset[Typed], ...]
    """What the result is partitioned by: per key part, all attributes that are equal to it here."""
    subtree: tuple[int, ...]
    """The joins below and this one, inputs first."""
    indexes: tuple[int, ...]
    exchanges: tuple[int, ...]
    stages: int
    """How many stages the tree takes (optimizer.model.stages)."""
    text: str
    """The tree in words. Breaks ties: numbers depend on what was optimized before, the text does not."""


@dataclass(frozen=True, slots=True)
class Shape:
    """`leaves` are leaf numbers in leaf order; `edges` carry the smaller attribute on the left."""

    id: int
    leaves: tuple[int, ...]
    edges: tuple[KeyPart, ...]
    ends: tuple[tuple[int, int], ...] = field(compare=False)
    """Per edge, the leaf numbers of its two ends."""
    attributes: frozenset[tuple[int, str]] = field(compare=False)
    """(leaf number, column) of everything it joins on, of a single leaf (its number, fold): two shapes without a common
    one can share nothing."""
    text: str = field(compare=False)
    fold: str = ""
    """The name of the fold, if tuples or lists are folded without making rows; "" for what is made of rows."""

    def __hash__(self) -> int:
        return self.id


@dataclass(frozen=True, slots=True)
class Profile:
    """What the optimizer keeps of one query: shape, window, and per leaf of the shape a digest of its selection.
    `fold`: the name of its fold, if it folds; `grouped`: not everything into one group."""

    uid: str
    shape: Shape
    selections: tuple[str, ...]
    seconds: float
    window: Window
    fold: str = ""
    grouped: bool = False


@dataclass
class Shapes:
    """Mutable; owned by one optimizer."""

    leaf: list[Leaf | None] = field(default_factory=list)
    joins: dict[int, Join] = field(default_factory=dict)
    indexes: list[Index] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    _index_ids: dict[Index, int] = field(default_factory=dict)
    _exchange_ids: dict[tuple[int, tuple[Typed, ...]], int] = field(default_factory=dict)
    _leaf_ids: dict[Leaf, int] = field(default_factory=dict)
    _join_ids: dict[tuple[int, int, tuple[KeyPart, ...]], int] = field(default_factory=dict)
    _shapes: dict[tuple[tuple[int, ...], tuple[KeyPart, ...], str], Shape] = field(default_factory=dict)
    _joined: dict[tuple[int, int, int], int] = field(default_factory=dict)
    _trees: dict[JoinNode, int] = field(default_factory=dict)
    least_stages: dict[int, int] = field(default_factory=dict)
    """Per shape (its id), as far as known: how many stages it takes in the order that takes least."""
    _plan_nodes: dict[tuple[int, int], Node] = field(default_factory=dict)

    def profile(self, rq: RunningQuery) -> Profile:
        by_leaf = {leaf: alias for alias, leaf in leaves_of(rq).items()}
        fold = fold_key(rq).name if rq.query.folds else ""
        shape = self.shape(by_leaf, predicates(rq), fold if folds_lists(rq.query) else "")
        wanted = dict(rq.query.selections)
        texts = []
        for number in shape.leaves:
            selection = wanted.get(by_leaf[self.leaf_of(number)])
            texts.append("" if selection is None else digest(selection))
        window = rq.query.window
        return Profile(rq.uid, shape, tuple(texts), window.length_ms / 1000, window, fold, bool(rq.query.groups))

    def shape(self, leaves: Iterable[Leaf], parts: Iterable[KeyPart], fold: str = "") -> Shape:
        numbers = tuple(self.leaf_id(leaf) for leaf in sorted(leaves))
        edges = tuple(sorted({p if p.left < p.right else KeyPart(p.right, p.left, p.type) for p in parts}))
        shape = self._shapes.get((numbers, edges, fold))
        if shape is None:
            ends = tuple((self.leaf_id(e.left.leaf), self.leaf_id(e.right.leaf)) for e in edges)
            text = "&".join(f"{e.left}={e.right}:{e.type}" for e in edges)
            attributes = frozenset((self.leaf_id(a.leaf), a.column) for e in edges for a in (e.left, e.right))
            if len(numbers) == 1:
                text, attributes = str(self.leaf_of(numbers[0])), frozenset({(numbers[0], fold)})
            shape = Shape(len(self._shapes), numbers, edges, ends, attributes, f"{text} {fold}".rstrip(), fold)
            self._shapes[numbers, edges, fold] = shape
        return shape

    def leaf_id(self, leaf: Leaf) -> int:
        number = self._leaf_ids.get(leaf)
        if number is None:
            number = self._leaf_ids[leaf] = len(self.leaf)
            self.leaf.append(leaf)
        return number

    def leaf_of(self, number: int) -> Leaf:
        leaf = self.leaf[number]
        assert leaf is not None, f"{number} is a join"
        return leaf

    def leaves(self, number: int) -> tuple[int, ...]:
        join = self.joins.get(number)
        if join is not None:
            return join.leaves
        return (number,)

    def subtree(self, number: int) -> tuple[int, ...]:
        """The joins of a tree, inputs first; a leaf has none."""
        join = self.joins.get(number)
        return () if join is None else join.subtree

    def stages(self, number: int) -> int:
        """How many join stages a tree takes."""
        join = self.joins.get(number)
        return 0 if join is None else join.stages

    def text(self, number: int) -> str:
        join = self.joins.get(number)
        return str(self.leaf_of(number)) if join is None else join.text

    def join(self, shape: Shape, a: int, b: int) -> int:
        """The number of a ⋈ b under the shape's predicates, or -1 when no predicate connects them."""
        number = self._joined.get((shape.id, a, b))
        if number is None:
            number = self._join(shape, a, b)
            self._joined[shape.id, a, b] = self._joined[shape.id, b, a] = number
        return number

    def _join(self, shape: Shape, a: int, b: int) -> int:
        in_a, in_b = self.leaves(a), self.leaves(b)
        if min(self.leaf_of(n) for n in in_b) < min(self.leaf_of(n) for n in in_a):
            a, b, in_a, in_b = b, a, in_b, in_a
        parts = set()
        for edge, (x, y) in zip(shape.edges, shape.ends, strict=True):
            if x in in_a and y in in_b:
                parts.add(edge)
            elif y in in_a and x in in_b:
                parts.add(KeyPart(edge.right, edge.left, edge.type))
        return self._intern(a, b, tuple(sorted(parts))) if parts else -1

    def _intern(self, a: int, b: int, parts: tuple[KeyPart, ...]) -> int:
        number = self._join_ids.get((a, b, parts))
        if number is not None:
            return number
        number = self._join_ids[a, b, parts] = len(self.leaf)
        self.leaf.append(None)
        left_key = tuple((p.left, p.type) for p in parts)
        right_key = tuple((p.right, p.type) for p in parts)
        stay_left, stay_right = self._keeps(a, left_key), self._keeps(b, right_key)
        partition = tuple(
            frozenset({x, y}).union(
                *(c for c in (stay_left or ()) if x in c), *(c for c in (stay_right or ()) if y in c)
            )
            for x, y in zip(left_key, right_key, strict=True)
        )
        below = [self.joins[n] for n in (a, b) if n in self.joins]
        sides = (self._side(a, left_key, stay_left is not None), self._side(b, right_key, stay_right is not None))
        self.joins[number] = Join(
            id=number,
            left=sides[0],
            right=sides[1],
            parts=parts,
            leaves=tuple(sorted((*self.leaves(a), *self.leaves(b)), key=self.leaf_of)),
            edges=frozenset(_plain(p) for p in parts).union(*(j.edges for j in below)),
            partition=partition,
            subtree=(*(n for j in below for n in j.subtree), number),
            indexes=tuple(side.index for side in sides if side.index >= 0),
            exchanges=tuple(side.exchange for side in sides if side.exchange >= 0),
            stages=max((self.joins[s.input].stages + (s.exchange >= 0) for s in sides if s.index < 0), default=1),
            text=f"({self.text(a)} ⋈ {self.text(b)})",
        )
        return number

    def _side(self, number: int, key: tuple[Typed, ...], stays: bool) -> Side:
        join = self.joins.get(number)
        if join is None:
            return Side(number, index=self._index(number, key))
        if stays:
            return Side(number)
        known = self._exchange_ids.get((number, key))
        if known is None:
            known = self._exchange_ids[number, key] = len(self.exchanges)
            holders = {a.leaf for a, _ in key}
            leaf = self.leaf_id(holders.pop()) if len(holders) == 1 else -1
            self.exchanges.append(
                Exchange(
                    number,
                    key,
                    self._index(leaf, key) if leaf >= 0 else -1,
                    join.leaves.index(leaf) if leaf >= 0 else -1,
                )
            )
        return Side(number, exchange=known)

    def _index(self, leaf: int, key: tuple[Typed, ...]) -> int:
        return self._index_id(Index(leaf, tuple((a.column, type) for a, type in key)))

    def _index_id(self, index: Index) -> int:
        known = self._index_ids.get(index)
        if known is None:
            known = self._index_ids[index] = len(self.indexes)
            self.indexes.append(index)
        return known

    def _keeps(self, number: int, key: tuple[Typed, ...]) -> tuple[frozenset[Typed], ...] | None:
        """The partitioning of an input if it is already the one `key` asks for, part by part; else None."""
        join = self.joins.get(number)
        if join is None or len(join.partition) != len(key):
            return None
        same = all(attribute in part for attribute, part in zip(key, join.partition, strict=True))
        return join.partition if same else None

    # -- to and from plans ---------------------------------------------------------------------------------------

    def tree(self, shape: Shape, node: Node) -> int:
        """The number of a tree of a running plan."""
        if isinstance(node, SourceNode):
            return self.leaf_id(node.leaf)
        number = self._trees.get(node)
        if number is None:
            number = self.join(shape, self.tree(shape, node.left), self.tree(shape, node.right))
            self._trees[node] = number
        return number

    def plan_node(self, number: int, group: int) -> Node:
        """The tree as it stands in a plan."""
        node = self._plan_nodes.get((number, group))
        if node is None:
            join = self.joins.get(number)
            if join is None:
                node = SourceNode(self.leaf_of(number), group)
            else:
                left, right = (self.plan_node(side.input, group) for side in (join.left, join.right))
                node = JoinNode(left, right, join.parts, group)
            self._plan_nodes[number, group] = node
        return node


def digest(selection: Expr) -> str:
    """A name for a selection: equal for equal conditions, whatever alias they are written with."""
    return hashlib.blake2b(repr(_fields(selection)).encode(), digest_size=8).hexdigest()


def _fields(expr: Expr) -> tuple[Any, ...]:
    own: Iterator[Any]
    match expr:
        case ColumnRef(_, column, type):
            own = iter((column, type.value))
        case Literal(value, type):
            own = iter((value, type.value))
        case InList(_, values, _):
            own = iter(_fields(v) for v in values)
        case Like(_, pattern, escape, _):
            own = iter((pattern, escape))
        case Call(function, _, _):
            own = iter((function,))
        case Cast(_, type) | Case(_, _, type):
            own = iter((type.value,))
        case _:
            own = iter((getattr(expr, "op", ""),))
    return (type_name(expr), *own, *(_fields(c) for c in children(expr)))


def type_name(expr: Expr) -> str:
    return expr.__class__.__name__


def _plain(p: KeyPart) -> KeyPart:
    return p if p.left < p.right else KeyPart(p.right, p.left, p.type)
