"""Join trees of one query: from an order of aliases to a canonical tree, and back.

A query's equi predicates are the edges of a graph over its leaves. A join of two disjoint leaf sets is
legal exactly when at least one edge crosses from one to the other, and its key is *all* the edges that
cross: in a cyclic graph the last join of the cycle gets a composite key. Nothing else decides a key, so
every tree over the same leaves checks every predicate exactly once, whatever its shape, and all shapes give
the same rows. Two predicates written twice, or once in each direction, are one key part.

Because `plan.join` puts inputs and key parts into canonical order, ["V", "W"] and ["W", "V"] build equal
nodes: the order of a pair is not a decision, only the nesting is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from optimizer.errors import InternalError, InvalidRequest
from optimizer.model.plan import Attribute, JoinNode, KeyPart, Leaf, Node, RunningQuery, SourceNode, join

Order = str | tuple["Order", ...]


def leaves_of(rq: RunningQuery) -> Mapping[str, Leaf]:
    """Every alias with its leaf, in FROM order."""
    return {s.alias: rq.leaf_of(s.alias) for s in rq.query.sources}


def predicates(rq: RunningQuery) -> tuple[KeyPart, ...]:
    """The query's equi predicates, with leaves in place of aliases."""
    leaf = leaves_of(rq)
    return tuple(
        KeyPart(
            Attribute(leaf[p.left.alias], p.left.column),
            Attribute(leaf[p.right.alias], p.right.column),
            p.type,
        )
        for p in rq.query.equi
    )


def crossing(parts: Iterable[KeyPart], left: Collection[Leaf], right: Collection[Leaf]) -> tuple[KeyPart, ...]:
    """The parts with one end in each leaf set, turned so that `left` is on the left, sorted, each once."""
    parts_between = set()
    for p in parts:
        if p.left.leaf in left and p.right.leaf in right:
            parts_between.add(p)
        elif p.right.leaf in left and p.left.leaf in right:
            parts_between.add(KeyPart(p.right, p.left, p.type))
    return tuple(sorted(parts_between))


def tree_from_order(rq: RunningQuery, order: Any, group: int) -> Node:
    """The tree for nested lists of aliases; a list of more than two items is folded from the left.

    `order` comes from a user: everything that can be wrong with it is an InvalidRequest with
    INVALID_JOIN_ORDER.
    """
    leaf = leaves_of(rq)
    used: set[str] = set()
    parts = predicates(rq)

    if len(leaf) == 1 and not isinstance(order, str):
        raise _invalid(rq, "it reads one stream, so there is nothing to order")

    def build(item: Any, depth: int) -> Node:
        if isinstance(item, str):
            if item not in leaf:
                raise _invalid(rq, f"query {rq.id!r} has no alias {item!r}")
            if item in used:
                raise _invalid(rq, f"alias {item!r} is named twice")
            used.add(item)
            return SourceNode(leaf[item], group)
        if not isinstance(item, list | tuple):
            raise _invalid(rq, f"{item!r} is neither an alias nor a list")
        if len(item) < 2:
            raise _invalid(rq, f"{item!r} joins nothing: a list needs at least two items")
        if depth >= len(leaf):  # deeper than any legal order, so do not follow it
            raise _invalid(rq, "it is nested deeper than the query has streams")
        node = build(item[0], depth + 1)
        for following in item[1:]:
            other = build(following, depth + 1)
            keys = crossing(parts, node.leaves, other.leaves)
            if not keys:
                a, b = _text(order_of(rq, node)), _text(order_of(rq, other))
                raise _invalid(rq, f"no equality connects {a} and {b}")
            node = join(node, other, keys)
        return node

    root = build(order, 0)
    missing = [alias for alias in leaf if alias not in used]
    if missing:
        raise _invalid(rq, f"it leaves out {', '.join(missing)}")
    return root


def left_deep(rq: RunningQuery, group: int) -> Node:
    """The default order: the first source, then always the next connected one in FROM order."""
    return chain(rq, [SourceNode(leaf, group) for leaf in leaves_of(rq).values()])


def chain(rq: RunningQuery, inputs: Iterable[Node]) -> Node:
    """Joins the inputs one after another, skipping ahead where the next one is not connected yet.

    A single input is its own tree.
    """
    parts = predicates(rq)
    node, *waiting = inputs
    while waiting:
        for i, other in enumerate(waiting):
            keys = crossing(parts, node.leaves, other.leaves)
            if keys:
                node = join(node, other, keys)
                del waiting[i]
                break
        else:
            rest = ", ".join(str(n) for n in waiting)
            raise InternalError(f"the join graph of query {rq.id!r} is not connected: {node} and {rest}")
    return node


def regroup(node: Node, group: int) -> Node:
    """The same tree in another group."""
    if isinstance(node, SourceNode):
        return SourceNode(node.leaf, group)
    return JoinNode(regroup(node.left, group), regroup(node.right, group), node.keys, group)


def order_of(rq: RunningQuery, node: Node) -> Order:
    """The tree as nested pairs of aliases, as a user would write it: what FROM names first stands left.

    `tree_from_order` builds the same tree again from that.
    """
    alias = {leaf: a for a, leaf in leaves_of(rq).items()}
    position = {leaf: i for i, leaf in enumerate(alias)}

    def first(n: Node) -> int:
        return min(position[leaf] for leaf in n.leaves)

    def order(n: Node) -> Order:
        if isinstance(n, SourceNode):
            return alias[n.leaf]
        left, right = sorted((n.left, n.right), key=first)
        return (order(left), order(right))

    return order(node)


def _text(order: Order) -> str:
    return order if isinstance(order, str) else f"({' ⋈ '.join(_text(o) for o in order)})"


def _invalid(rq: RunningQuery, what: str) -> InvalidRequest:
    return InvalidRequest(
        f"not a join order of query {rq.id!r}: {what}",
        reason="INVALID_JOIN_ORDER",
        hint=f"name each of {', '.join(leaves_of(rq))} once, and join only what an equality connects",
    )
