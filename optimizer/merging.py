"""Query groups across shapes: which clusters share enough indexes and joins to be one group.

Two clusters of different shapes can share indexes (same leaf, same key columns) and joins. For all pairs of clusters at
once, the exact change of the index cost follows from three matrix products per leaf,

    gain = k_a * |A| + k_b * |B| - (k_a + k_b - shared) * |A ∪ B|

(k: indexes on this leaf), and the joins they have in common and the combinations their sinks would expand
together are added. That ranks the pairs; each cluster's best few partners are then priced exactly, best gain first, and
merged when that is cheaper. After a round the merged clusters are reordered, because new neighbours may make another order better
(`ordering`), and the next round begins with fewer clusters, until a round merges nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from optimizer.clusters import Cluster, merged, ordered
from optimizer.cost import CostModel
from optimizer.samples import unpack

PARTNERS = 4
ROUNDS = 6
GAIN = 1e-6

Matrix = NDArray[np.float64]


def merge_all(model: CostModel, clusters: Sequence[Cluster], thorough: bool) -> list[Cluster]:
    """`thorough`: try every merge with a new order, not only with the orders the two clusters have."""
    current = sorted(clusters, key=lambda c: c.uids)

    def together(a: Cluster, b: Cluster) -> Cluster:
        both = merged(model, a, b)
        return ordered(model, [m for m, _ in both.trees], both.roots) if thorough else both

    for _ in range(ROUNDS):
        if len(current) < 2:
            break
        after = _round(model, current, together, everyone=thorough)
        if len(after) == len(current):
            break
        known = {c.uids for c in current}
        current = [c if c.uids in known or thorough else _reordered(model, c) for c in after]
    return current


def _reordered(model: CostModel, c: Cluster) -> Cluster:
    return ordered(model, [m for m, _ in c.trees], c.roots)


def _round(
    model: CostModel, clusters: Sequence[Cluster], together: Callable[[Cluster, Cluster], Cluster], everyone: bool
) -> list[Cluster]:
    gains = potential(model, clusters)
    n = len(clusters)
    partners = n - 1 if everyone else min(PARTNERS, n - 1)
    floor = -np.inf if everyone else 0.0
    best = np.argsort(-gains, axis=1, kind="stable")[:, :partners]
    pairs = sorted(
        {
            (-round(float(gains[i, j]), 6), min(i, int(j)), max(i, int(j)))
            for i in range(n)
            for j in best[i]
            if i != j and gains[i, j] > floor
        }
    )
    alive: dict[int, Cluster] = dict(enumerate(clusters))
    where = list(range(n))
    for _, i, j in pairs:
        a, b = where[i], where[j]
        if a == b:
            continue
        both = together(alive[a], alive[b])
        if both.cost < (alive[a].cost + alive[b].cost) * (1 - GAIN):
            alive[a] = both
            del alive[b]
            where = [a if w == b else w for w in where]
    return sorted(alive.values(), key=lambda c: c.uids)


def potential(model: CostModel, clusters: Sequence[Cluster]) -> Matrix:
    """What each pair of clusters would gain as one group, orders as they are; exchanges are left out."""
    n = len(clusters)
    gains: Matrix = np.zeros((n, n))
    w, card, joins = model.weights, model.cardinalities, model.shapes.joins
    indexes: dict[int, dict[object, list[int]]] = {}
    shared: dict[int, list[int]] = {}
    sinks: dict[int, list[tuple[int, tuple[int, ...], float]]] = {}
    for i, c in enumerate(clusters):
        own_indexes, own_joins = {}, {}
        for member, root in c.trees:
            own = dict(zip(member.shape.leaves, member.bits, strict=True))
            bits = tuple(own[leaf] for leaf in joins[root].leaves)
            sinks.setdefault(root, []).append((i, bits, member.seconds))
            for number in joins[root].subtree:
                own_joins[number] = None
                for index in joins[number].indexes:
                    own_indexes[index] = None
        for leaf, key in own_indexes:
            indexes.setdefault(leaf, {}).setdefault(key, []).append(i)
        for number in own_joins:
            shared.setdefault(number, []).append(i)
    for leaf, keys in indexes.items():
        at = sorted({i for who in keys.values() for i in who})
        place = {i: k for k, i in enumerate(at)}
        rows = card.rows(leaf)
        columns = unpack([clusters[i].leaf_bits[leaf] for i in at], rows)
        common = np.asarray(columns @ columns.T, dtype=np.float64) / rows
        each = np.diag(common)
        has = np.zeros((len(at), len(keys)), dtype=np.float32)
        for k, who in enumerate(keys.values()):
            has[[place[i] for i in who], k] = 1
        both = np.asarray(has @ has.T, dtype=np.float64)
        count = np.diag(both)
        before = (count * each)[:, None] + (count * each)[None, :]
        after = (count[:, None] + count[None, :] - both) * (each[:, None] + each[None, :] - common)
        gains[np.ix_(at, at)] += w.index * card.rate(leaf) * (before - after) + w.fixed * both
    for who in shared.values():
        if len(who) > 1:
            gains[np.ix_(who, who)] += w.fixed
    for root, uses in sinks.items():
        if len(uses) > 1:
            who = [i for i, _, _ in uses]
            gains[np.ix_(who, who)] -= _expanded(model, root, uses)
    np.fill_diagonal(gains, -np.inf)
    return gains


def _expanded(model: CostModel, root: int, uses: Sequence[tuple[int, tuple[int, ...], float]]) -> Matrix:
    """The additional cost of materialization when two sinks of the same join become one."""
    leaves = model.shapes.joins[root].leaves
    seconds = np.array([s for _, _, s in uses])
    alone, unions = [], []
    for k, leaf in enumerate(leaves):
        rows = model.cardinalities.rows(leaf)
        columns = unpack([bits[k] for _, bits, _ in uses], rows)
        common = np.asarray(columns @ columns.T, dtype=np.float64) / rows
        each = np.diag(common)
        alone.append(each)
        unions.append(each[:, None] + each[None, :] - common)
    longest = np.maximum(seconds[:, None], seconds[None, :])
    single = np.asarray(model.materialization(root, alone, seconds))
    return np.asarray(model.materialization(root, unions, longest) - single[:, None] - single[None, :])
