"""The slow and obvious optimizer: every grouping, every combination of join orders, the cheapest.

Kept next to the fast one for ever; it is what "optimal" means in the tests. Groups share nothing, so the best plan is
the best partition of the queries into sets, each at its best combination of trees.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import product

from optimizer.cost.model import CostModel, Member
from optimizer.cost.shapes import Shape


def all_trees(model: CostModel, shape: Shape) -> list[int]:
    """Every tree without cross products."""

    @cache
    def trees(leaves: frozenset[int]) -> tuple[int, ...]:
        if len(leaves) == 1:
            return tuple(leaves)
        first, *rest = sorted(leaves)
        found = []
        for mask in range(1 << len(rest)):
            left = frozenset([first, *(r for i, r in enumerate(rest) if mask >> i & 1)])
            if left == leaves:
                continue
            for a, b in product(trees(left), trees(leaves - left)):
                joined = model.shapes.join(shape, a, b)
                if joined >= 0:
                    found.append(joined)
        return tuple(found)

    return list(trees(frozenset(shape.leaves)))


def optimum(model: CostModel, singles: Mapping[str, Member]) -> float:
    uids = sorted(singles)
    trees = {u: all_trees(model, singles[u].shape) for u in uids}

    @cache
    def group(members: int) -> float:
        chosen = [u for i, u in enumerate(uids) if members >> i & 1]
        orders = product(*(trees[u] for u in chosen))
        return min(model.cost([(singles[u], r) for u, r in zip(chosen, roots, strict=True)]) for roots in orders)

    @cache
    def best(rest: int) -> float:
        if not rest:
            return 0.0
        low = rest & -rest
        others = rest ^ low
        part, found = others, float("inf")
        while True:
            found = min(found, group(low | part) + best(others ^ part))
            if not part:
                return found
            part = (part - 1) & others

    return best((1 << len(uids)) - 1)
