"""Query groups among queries of one shape: Figure 7a of the paper.

1. For every pair of queries compare the cost of running them shared with running them separately. All pairs are
   priced at once: the unions come from one matrix product per leaf, the cost formula works on whole matrices.
2. Take the cheapest pair that gains by sharing as a new group, and let it grow: always by the free query that gains
   most, as long as sharing is cheaper than separate execution. Then the next pair, until no free pair gains.

Greedy growth starts from pairs and cannot see a gain that needs many queries at once (ten queries that each want 30 %
of the tuples at random: every two share little, all ten together want nearly everything only once). So the
alternatives "everyone in one group" and "the pair that saves most first" are priced too, and the cheapest of all is
taken.

Pairs are quadratic, so they are looked at in blocks: the first block's groups take in the queries that gain by joining
them, and the next block is formed from those that do not. The work is linear in the number of queries as long as
groups are few.

Queries with equal shape, window and columns want exactly the same; they are one query here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from optimizer.cost.model import CostModel, Member, Sink
from optimizer.search.clusters import Cluster, cluster, together
from optimizer.search.dynamic import best_tree
from optimizer.statistics.samples import intersections

BLOCK = 160
GAIN = 1e-6


def group_shape(model: CostModel, queries: Sequence[Member]) -> list[Cluster]:
    """Groups for queries of one shape; each cluster has one member."""
    distinct = _distinct(queries)
    root = best_tree(model, together(distinct))
    if len(distinct) == 1:
        return [cluster(model, [(distinct[0], root)])]
    space = _Space(model, root, distinct)
    groups: list[_Group] = []
    free = list(range(len(distinct)))
    while free:
        step = -(-len(free) // BLOCK)
        block, waiting = free[::step], [f for i, f in enumerate(free) if i % step]
        formed = _block(space, block)
        alone = [g for g in formed if len(g.who) == 1]
        groups += formed
        if len(alone) == len(formed) and waiting:
            # no query in a fair sample of the free ones shares; neither will the rest, except with the groups
            waiting = _take_in(space, groups, waiting)
            groups += [space.group([f]) for f in waiting]
            break
        free = _take_in(space, groups, waiting)
    whole = space.group(range(len(distinct)))
    if whole.cost < sum(g.cost for g in groups) * (1 - GAIN):
        groups = [whole]
    return [cluster(model, [(together([distinct[i] for i in g.who]), root)]) for g in groups]


def _distinct(queries: Sequence[Member]) -> list[Member]:
    same: dict[tuple[tuple[int, ...], float], list[Member]] = {}
    for q in sorted(queries, key=lambda q: q.uids):
        same.setdefault((q.bits, q.seconds), []).append(q)
    return [together(members) for members in same.values()]


class _Group:
    """A set of queries under construction: their numbers, union per leaf (packed words), window and cost."""

    __slots__ = ("cost", "seconds", "who", "words")

    def __init__(self, who: list[int], words: list[NDArray[np.uint64]], seconds: float, cost: float) -> None:
        self.who, self.words, self.seconds, self.cost = who, words, seconds, cost


class _Space:
    """The queries of one shape as arrays, so that one formula prices many sets at once."""

    def __init__(self, model: CostModel, root: int, queries: Sequence[Member]) -> None:
        self.model, self.sink = model, Sink(root, queries[0].shape.fold)
        self.leaves = queries[0].shape.leaves
        self.rows = [model.cardinalities.rows(leaf) for leaf in self.leaves]
        self.columns = [[q.bits[i] for q in queries] for i in range(len(self.leaves))]
        self.words = [_words(c, r) for c, r in zip(self.columns, self.rows, strict=True)]
        self.seconds = np.array([q.seconds for q in queries])
        counts = [np.bitwise_count(w).sum(axis=1) / r for w, r in zip(self.words, self.rows, strict=True)]
        self.alone = self.price(counts, self.seconds)

    def price(self, fractions: Sequence[NDArray[np.float64]], seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        of_leaf = dict(zip(self.leaves, fractions, strict=True))
        return np.asarray(self.model.tree_cost(self.sink, of_leaf, seconds), dtype=np.float64)

    def group(self, who: Sequence[int] | range) -> _Group:
        chosen = list(who)
        words = [np.bitwise_or.reduce(w[chosen], axis=0) for w in self.words]
        seconds = float(self.seconds[chosen].max())
        fractions = [np.bitwise_count(w).sum() / r for w, r in zip(words, self.rows, strict=True)]
        cost = self.price([np.asarray([f]) for f in fractions], np.asarray([seconds]))
        return _Group(chosen, words, seconds, float(cost[0]))

    def joined(self, group: _Group, candidates: NDArray[np.int64]) -> NDArray[np.float64]:
        """The cost of the group with each of the candidates added."""
        fractions = [
            np.bitwise_count(w[candidates] | g).sum(axis=1) / r
            for w, g, r in zip(self.words, group.words, self.rows, strict=True)
        ]
        return self.price(fractions, np.maximum(self.seconds[candidates], group.seconds))

    def add(self, group: _Group, one: int, cost: float) -> None:
        group.who.append(one)
        group.words = [g | w[one] for g, w in zip(group.words, self.words, strict=True)]
        group.seconds = max(group.seconds, float(self.seconds[one]))
        group.cost = cost


def _block(space: _Space, block: Sequence[int]) -> list[_Group]:
    """Groups for a block: cheapest pair first or most saving pair first, whichever ends up cheaper."""
    at = np.array(block)
    unions = []
    for columns, rows in zip(space.columns, space.rows, strict=True):
        common = intersections([columns[i] for i in block], rows)
        each = np.diag(common)
        unions.append(each[:, None] + each[None, :] - common)
    pairs = space.price(unions, np.maximum(space.seconds[at][:, None], space.seconds[at][None, :]))
    gains = space.alone[at][:, None] + space.alone[at][None, :] - pairs
    first, second = np.nonzero(np.triu(gains > GAIN * pairs, k=1))
    results = []
    for rank in (pairs[first, second], -gains[first, second]):
        by_rank = np.argsort(rank, kind="stable")
        seeds = [(block[first[k]], block[second[k]]) for k in by_rank]
        results.append(_grow(space, block, seeds))
    return min(results, key=lambda groups: sum(g.cost for g in groups))


def _grow(space: _Space, block: Sequence[int], seeds: Sequence[tuple[int, int]]) -> list[_Group]:
    free = dict.fromkeys(block)
    groups = []
    for a, b in seeds:
        if a not in free or b not in free:
            continue
        group = space.group([a, b])
        del free[a], free[b]
        while free:
            candidates = np.array(list(free))
            costs = space.joined(group, candidates)
            gains = group.cost + space.alone[candidates] - costs
            best = int(np.argmax(gains))
            if gains[best] <= GAIN * costs[best]:
                break
            space.add(group, int(candidates[best]), float(costs[best]))
            del free[int(candidates[best])]
        groups.append(group)
    return groups + [space.group([f]) for f in free]


def _take_in(space: _Space, groups: list[_Group], waiting: list[int]) -> list[int]:
    """Each waiting query joins the group where it gains most, if any; the others are returned."""
    if not waiting or not groups:
        return waiting
    at = np.array(waiting)
    left = []
    gains = np.stack([g.cost + space.alone[at] - space.joined(g, at) for g in groups])
    for k, best in enumerate(np.argmax(gains, axis=0)):
        group, one = groups[int(best)], np.array([waiting[k]])
        cost = float(space.joined(group, one)[0])  # again, because the group has grown since
        if group.cost + space.alone[one[0]] - cost > GAIN * cost:
            space.add(group, waiting[k], cost)
        else:
            left.append(waiting[k])
    return left


def _words(columns: Sequence[int], rows: int) -> NDArray[np.uint64]:
    width = -(-rows // 64) * 8
    raw = b"".join(c.to_bytes(width, "little") for c in columns)
    return np.frombuffer(raw, dtype=np.uint64).reshape(len(columns), width // 8)
