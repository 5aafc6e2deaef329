"""Local search over query groups: single queries leave, move, or start a group of their own while the plan gets cheaper.

Grouping is greedy and never takes a query back. Here every query is asked, in turn, whether the plan would be cheaper with it
somewhere else, with orders adapted to the move; the best place is taken. It ends when nobody moves.

Every step lowers the cost, so it ends; `rounds` bounds the work. A step costs one ordering per candidate group, so
it is meant for small plans and for the few groups that an incremental step touches.

`never_above_unshared` is the last word of every optimization: a group that costs more than its queries one by one is dissolved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from optimizer.clusters import Cluster, Singles, members_of, ordered
from optimizer.cost import CostModel, Shared
from optimizer.dynamic import TOLERANCE, best_tree


class Alone:
    """The cost of every query by itself in its best order, computed when asked for."""

    def __init__(self, model: CostModel, singles: Singles) -> None:
        self._model = model
        self._singles = singles
        self._known: dict[str, Cluster] = {}

    def __call__(self, uid: str) -> Cluster:
        found = self._known.get(uid)
        if found is None:
            found = self._known[uid] = ordered(self._model, [self._singles[uid]])
        return found

    def at_least(self, uid: str) -> float:
        """What no order can save: an index per leaf, a fixed cost per join, the materialization. Much faster to get."""
        if uid in self._known:
            return self._known[uid].cost
        model, single = self._model, self._singles[uid]
        card = model.cardinalities
        pairs = zip(single.shape.leaves, single.bits, strict=True)
        fractions = [(leaf, card.fraction(leaf, bits)) for leaf, bits in pairs]
        cost = sum(model.index(leaf, f) for leaf, f in fractions) + (len(fractions) - 1) * model.weights.fixed
        results = math.prod(card.rate(leaf) * f for leaf, f in fractions) * card.selectivity(single.shape.edges)
        return float(cost + model.weights.materialization * results * single.seconds ** (len(fractions) - 1))


def refine(
    model: CostModel,
    singles: Singles,
    clusters: Sequence[Cluster],
    alone: Alone,
    movers: Iterable[str] | None = None,
    rounds: int = 4,
) -> list[Cluster]:
    """Moves single queries (all, or only `movers`) while that makes the plan cheaper."""
    asked = sorted(movers) if movers is not None else sorted(u for c in clusters for u in c.uids)
    current = list(clusters)
    known: dict[tuple[str, ...], Cluster] = {c.uids: c for c in clusters}

    def with_members(uids: Iterable[str], roots: Mapping[object, int]) -> Cluster:
        key = tuple(sorted(uids))
        found = known.get(key)
        if found is None:
            found = known[key] = ordered(model, members_of(singles, key), roots)  # type: ignore[arg-type]
        return found

    for _ in range(rounds):
        moved = False
        for uid in asked:
            home = next(i for i, c in enumerate(current) if uid in c.uids)
            here = current[home]
            rest = [u for u in here.uids if u != uid]
            left = with_members(rest, here.roots) if rest else None
            saved = here.cost - (left.cost if left else 0.0)
            options: list[tuple[float, int, Cluster]] = []
            if left:
                options.append((alone(uid).cost, -1, alone(uid)))
            leaves = set(singles[uid].shape.leaves)
            for i, c in enumerate(current):
                if i != home and not leaves.isdisjoint(c.leaf_bits):
                    both = with_members((*c.uids, uid), c.roots)
                    options.append((both.cost - c.cost, i, both))
            if not options:
                continue
            added, target, place = min(options, key=lambda o: (o[0], o[1]))
            if added < saved - TOLERANCE * here.cost:
                moved = True
                after = [c for i, c in enumerate(current) if i not in (home, target)]
                current = sorted([*after, place, *([left] if left else [])], key=lambda c: c.uids)
        if not moved:
            break
    return current


def best_place(
    model: CostModel, singles: Singles, clusters: Sequence[Cluster], uid: str, alone: Alone, tried: int = 4
) -> tuple[int, Cluster]:
    """The cluster in which one more query costs least, and that cluster with it; -1: a new one for itself.

    Clusters are ranked by the tuples they have in common with the query on indexes it could use; only the best few are priced.
    """
    single = singles[uid]
    card = model.cardinalities
    wanted = {
        (model.shapes.leaf_id(a.leaf), a.column) for e in single.shape.edges for a in (e.left, e.right)
    }
    ranked = []
    for i, c in enumerate(clusters):
        common = 0.0
        offered = {(leaf, col) for m, _ in c.trees for leaf, col in _columns(model, m.shape.edges)}
        for leaf, bits in zip(single.shape.leaves, single.bits, strict=True):
            theirs = c.leaf_bits.get(leaf)
            usable = sum(1 for x in wanted if x[0] == leaf and x in offered)
            if theirs is not None and usable:
                common += card.rate(leaf) * usable * card.fraction(leaf, bits & theirs) + model.weights.fixed
        if common > 0:
            ranked.append((-common, i))
    best = (alone(uid).cost, -1, alone(uid))
    for _, i in sorted(ranked)[:tried]:
        both = joined(model, clusters[i], singles, uid)
        if both.cost - clusters[i].cost < best[0] * (1 - TOLERANCE):
            best = (both.cost - clusters[i].cost, i, both)
    return best[1], best[2]


def joined(model: CostModel, c: Cluster, singles: Singles, uid: str) -> Cluster:
    """The cluster with one more query; the others keep their orders, the new one takes the best next to them."""
    single = singles[uid]
    trees = [(m.plus(single) if m.shape == single.shape else m, r) for m, r in c.trees]
    if single.shape not in c.roots:
        trees.append((single, best_tree(model, single, Shared(model, trees))))
    trees.sort(key=lambda t: t[0].shape.text)
    return Cluster(tuple(trees), model.cost(trees))


def never_above_unshared(clusters: Sequence[Cluster], alone: Alone) -> list[Cluster]:
    """Dissolves clusters that cost more than their queries one by one."""
    result = []
    for c in clusters:
        if len(c.uids) == 1 or c.cost <= sum(alone.at_least(u) for u in c.uids):
            result.append(c)
        elif c.cost > sum(alone(u).cost for u in c.uids):
            result += [alone(u) for u in c.uids]
        else:
            result.append(c)
    return sorted(result, key=lambda c: c.uids)


def _columns(model: CostModel, edges: Iterable[object]) -> Iterable[tuple[int, str]]:
    for e in edges:
        for a in (e.left, e.right):  # type: ignore[attr-defined]
            yield model.shapes.leaf_id(a.leaf), a.column
