"""Join ordering for all queries of a group at once: Figure 7b of the paper, then a polish per shape.

**Iterative dynamic programming** (`iterate`). Every query starts as a list of terms, its leaves. In each iteration

1. all joins of two connected terms are candidates; equal candidates of different queries are one candidate, shared by
   them. Its *shared cost* SCOST is its cost over the tuples all of them want, divided by the number of those queries
   (MaxShared); for comparison the cost for one query alone is MinShared;
2. candidates are taken by rising SCOST and substituted in all their queries (T1, T2, ...). A candidate of which a query
   was already served in this iteration can no longer be shared as priced; its other queries wait for the next
   iteration, where it is priced again without the lost one. (In the figure: Q3.W⋈C loses Q2 in the first iteration
   and is priced alone in the second.)

What lies in different groups is never compared: the function sees one group. The paper keeps groups per join
(V⋈W.G1); here a query lives in one group with all its joins, so a V⋈W and a W⋈C of one query are never in different
groups, and MinShared is not an option *within* a group: equal joins of a group are one join. Executing something
separately means leaving the group, which `grouping` decides by cost.

**Polish** (`polish`). The iteration is greedy, so each shape is then reordered by exact dynamic programming over its
leaf sets, pricing what the rest of the group already has at nothing (`dynamic`). A round of new trees is kept only if
the cost of the whole group falls. For a group of one shape this alone gives the optimum.

Bushy trees, composite keys and cycles need no special case: a candidate is any two terms with at least one predicate
between them, and its key is all predicates between them. An exchange is part of a candidate's price, so orders that
keep the partitioning attribute win when the rest is equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from optimizer.cost.cardinality import SCALAR
from optimizer.cost.model import CostModel, Member, Shared, Tree
from optimizer.cost.shapes import Join
from optimizer.search.dynamic import TOLERANCE, best_tree

ROUNDS = 3
FEW = 16


@dataclass(frozen=True, slots=True)
class Choice:
    """One line of Figure 7b: in this iteration these queries took this join.

    `max_shared` is its SCOST, `min_shared` its cost for each of the queries alone, in the order of `uids`.
    """

    iteration: int
    join: str
    uids: tuple[str, ...]
    max_shared: float
    min_shared: tuple[float, ...]


def order(model: CostModel, members: Sequence[Member], before: Sequence[int] = ()) -> tuple[list[Tree], float]:
    """The best trees found for the members of one group, and their cost; never worse than the trees `before`, if given.

    Large groups start from the iteration only: the more queries, the less does any one's own best order matter.
    """
    if len(members) == 1:
        starts = [[(members[0], best_tree(model, members[0]))]]
    else:
        starts = [list(zip(members, iterate(model, members), strict=True))]
        if len(members) <= FEW:
            starts.append([(m, best_tree(model, m)) for m in members])
        starts = [polish(model, trees) for trees in starts]
    if before:
        starts.append(list(zip(members, before, strict=True)))
    priced = [(model.cost(trees), i, trees) for i, trees in enumerate(starts)]
    cost, _, best = min(priced, key=lambda p: p[:2])
    return best, cost


def iterate(model: CostModel, members: Sequence[Member], trace: list[Choice] | None = None) -> list[int]:
    """The roots of the members' trees, in their order."""
    shapes = model.shapes
    group = Shared(model)
    for m in members:
        for leaf, bits in zip(m.shape.leaves, m.bits, strict=True):
            group.leaf_bits[leaf] = group.leaf_bits.get(leaf, 0) | bits
    own = [dict(zip(m.shape.leaves, m.bits, strict=True)) for m in members]
    terms = [list(m.shape.leaves) for m in members]
    users: dict[int, list[int]] = {}
    prices: dict[int, tuple[float, str, int]] = {}

    def offer(i: int, pairs: Iterable[tuple[int, int]], withdraw: bool = False) -> None:
        for a, b in pairs:
            candidate = shapes.join(members[i].shape, a, b)
            if candidate < 0:
                continue
            prices.pop(candidate, None)
            if withdraw:
                users[candidate].remove(i)
                if not users[candidate]:
                    del users[candidate]
            else:
                users.setdefault(candidate, []).append(i)

    def price(candidate: int, who: Iterable[int]) -> float:
        return _price(model, group, candidate, [(own[i], members[i]) for i in who])

    for i in range(len(members)):
        offer(i, combinations(terms[i], 2))
    iteration = 0
    while users:
        iteration += 1
        for candidate, sharing in users.items():
            if candidate not in prices:
                queries = sum(len(members[i].uids) for i in sharing)
                shared_cost = price(candidate, sharing) / queries
                prices[candidate] = (shared_cost, shapes.joins[candidate].text, candidate)
        served: set[int] = set()
        asked = {candidate: tuple(who) for candidate, who in users.items()}
        for shared_cost, text, candidate in sorted(prices.values()):
            who = asked[candidate]
            if served.isdisjoint(who):
                if trace is not None:
                    alone = sorted((uid, price(candidate, [i])) for i in who for uid in members[i].uids)
                    uids, each = tuple(u for u, _ in alone), tuple(cost for _, cost in alone)
                    trace.append(Choice(iteration, text, uids, shared_cost, each))
                join = shapes.joins[candidate]
                for i in who:
                    rest = [t for t in terms[i] if t not in (join.left.input, join.right.input)]
                    offer(i, combinations(terms[i], 2), withdraw=True)
                    terms[i] = [*rest, candidate]
                    offer(i, combinations(terms[i], 2))
            served.update(who)
    return [t[0] for t in terms]


def _price(model: CostModel, group: Shared, candidate: int, users: Sequence[tuple[dict[int, int], Member]]) -> float:
    """COST of one join for these users: indexes, exchanges, intersection.

    Materialization is left out: a query expands the same combinations whatever its order.
    """
    join = model.shapes.joins[candidate]
    bits = [0] * len(join.leaves)
    seconds = 0.0
    for own, member in users:
        bits = [b | own[leaf] for b, leaf in zip(bits, join.leaves, strict=True)]
        seconds = max(seconds, member.seconds)
    of_leaf = dict(zip(join.leaves, bits, strict=True))
    fractions = {leaf: model.cardinalities.fraction(leaf, b) for leaf, b in of_leaf.items()}
    cost = sum(group.index(i) for i in join.indexes)
    for exchange in join.exchanges:
        below = [fractions[leaf] for leaf in model.shapes.joins[model.shapes.exchanges[exchange].join].leaves]
        cost += model.exchange(exchange, below, seconds)
    keys = _keys(model, group, join, fractions, seconds)
    return float(cost + model.weights.intersection * keys + model.weights.fixed)


def _keys(model: CostModel, group: Shared, join: Join, fractions: dict[int, float], seconds: float) -> float:
    """Keys that survive the join when its inputs were joined for these users."""
    card = model.cardinalities
    sides = []
    for side in (join.left, join.right):
        if side.index >= 0:
            sides.append(float(card.keys(side.index, group.fraction(side.input))))
            continue
        below = model.shapes.joins[side.input]
        if side.exchange >= 0:
            own = [fractions[leaf] for leaf in below.leaves]
            sides.append(float(card.exchanged_keys(side.exchange, own, seconds, SCALAR)))
        else:
            sides.append(_keys(model, group, below, fractions, seconds))
    return min(sides)


def polish(model: CostModel, trees: Sequence[Tree]) -> list[Tree]:
    """Reorders one member after another against the rest of the group, as long as that makes the group cheaper."""
    best = list(trees)
    cost = model.cost(best)
    for _ in range(ROUNDS):
        group = Shared(model, best)
        current = []
        for member, root in best:
            better = best_tree(model, member, group, root)
            if better != root:
                group.remove(member, root)
                group.add(member, better)
            current.append((member, better))
        price = model.cost(current) if current != best else cost
        if price >= cost * (1 - TOLERANCE):
            break
        best, cost = current, price
    return best
