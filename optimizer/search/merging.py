"""Query groups across shapes: which clusters share enough indexes and joins to be one group.

Two clusters of different shapes can share indexes (same leaf, same key columns) and joins. For all pairs of clusters at
once, the exact change of the index cost follows from three matrix products per leaf,

    gain = k_a * |A| + k_b * |B| - (k_a + k_b - shared) * |A ∪ B|

(k: indexes on this leaf), and the joins they have in common and the combinations their sinks would expand together
are added. That ranks the pairs; each cluster's best few partners are then priced one by one, best gain first, and
merged when that is cheaper, the smaller into the larger. The next round begins with fewer clusters, until a round
merges nothing. At the end the merged clusters are reordered, because new neighbours may make another order better
(`ordering`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from optimizer.cost.cardinality import ARRAY
from optimizer.cost.model import CostModel, Shared, Sink, Tree
from optimizer.cost.shapes import Shape
from optimizer.search.clusters import Cluster, cluster, merged, ordered, together
from optimizer.statistics.samples import unpack

PARTNERS = 4
ROUNDS = 6
GAIN = 1e-6

Matrix = NDArray[np.float64]


def merge_thoroughly(model: CostModel, clusters: Sequence[Cluster]) -> list[Cluster]:
    """Merges the pair that gains most, found by trying all pairs with new orders, until none gains.

    For few clusters.
    """
    current = sorted(clusters, key=lambda c: c.uids)
    known: dict[tuple[str, ...], Cluster] = {}
    while len(current) > 1:
        options = []
        for i, j in combinations(range(len(current)), 2):
            a, b = current[i], current[j]
            uids = tuple(sorted((*a.uids, *b.uids)))
            if uids not in known:
                both = merged(model, a, b)
                known[uids] = ordered(model, [m for m, _ in both.trees], both.roots)
            options.append((known[uids].cost - a.cost - b.cost, i, j, known[uids]))
        change, i, j, both = min(options, key=lambda o: o[:3])
        if change >= -GAIN * both.cost:
            break
        rest = [c for k, c in enumerate(current) if k not in (i, j)]
        current = sorted([*rest, both], key=lambda c: c.uids)
    return current


def merge_all(model: CostModel, clusters: Sequence[Cluster]) -> list[Cluster]:
    current = sorted(clusters, key=lambda c: c.uids)
    groups = [Shared(model, c.trees) for c in current]
    for _ in range(ROUNDS):
        before = len(current)
        if before > 1:
            current, groups = _round(model, current, groups)
        if len(current) == before:
            break
    sizes = {c.uids for c in clusters}
    return [c if c.uids in sizes else _reordered(model, c) for c in current]


def _reordered(model: CostModel, c: Cluster) -> Cluster:
    return ordered(model, [m for m, _ in c.trees], c.roots)


def _round(
    model: CostModel, clusters: Sequence[Cluster], groups: Sequence[Shared]
) -> tuple[list[Cluster], list[Shared]]:
    gains = potential(model, clusters)
    n = len(clusters)
    best = np.argsort(-gains, axis=1, kind="stable")[:, : min(PARTNERS, n - 1)]
    pairs = {
        (-round(float(gains[i, j]), 6), min(i, int(j)), max(i, int(j)))
        for i in range(n)
        for j in best[i]
        if gains[i, j] > 0
    }
    held = {i: ([c], g) for i, (c, g) in enumerate(zip(clusters, groups, strict=True))}
    home = list(range(n))

    def find(i: int) -> int:
        while home[i] != i:
            home[i] = home[home[i]]
            i = home[i]
        return i

    for _, i, j in sorted(pairs):
        a, b = find(i), find(j)
        if a == b:
            continue
        if len(held[a][1].joins) < len(held[b][1].joins):
            a, b = b, a  # the work follows the smaller one
        if held[a][1].absorption(held[b][1]) < 0:
            held[a][1].absorb(held[b][1])
            held[a][0].extend(held[b][0])
            del held[b]
            home[b] = a
    done = [(_one(model, parts) if len(parts) > 1 else parts[0], g) for parts, g in held.values()]
    done.sort(key=lambda d: d[0].uids)
    return [c for c, _ in done], [g for _, g in done]


def _one(model: CostModel, clusters: Sequence[Cluster]) -> Cluster:
    """Several clusters as one; where they disagree about the order of a shape, the one with most queries leads."""
    by_shape: dict[Shape, list[Tree]] = {}
    for c in clusters:
        for member, root in c.trees:
            by_shape.setdefault(member.shape, []).append((member, root))
    return cluster(
        model,
        [
            (together([m for m, _ in trees]), max(trees, key=lambda t: (len(t[0].uids), t[0].uids))[1])
            for trees in by_shape.values()
        ],
    )


def potential(model: CostModel, clusters: Sequence[Cluster]) -> Matrix:
    """What each pair of clusters would gain as one group, orders as they are; exchanges are left out."""
    n = len(clusters)
    gains: Matrix = np.zeros((n, n))
    w, card, joins = model.weights, model.cardinalities, model.shapes.joins
    indexes: dict[int, dict[int, list[int]]] = {}
    shared: dict[int, list[int]] = {}
    sinks: dict[Sink, list[tuple[int, tuple[int, ...], float]]] = {}
    for i, c in enumerate(clusters):
        own_indexes: dict[int, None] = {}
        own_joins: dict[int, None] = {}
        for member, root in c.trees:
            own = dict(zip(member.shape.leaves, member.bits, strict=True))
            bits = tuple(own[leaf] for leaf in model.shapes.leaves(root))
            sinks.setdefault(Sink(root, member.shape.fold), []).append((i, bits, member.seconds))
            for number in model.shapes.subtree(root):
                own_joins[number] = None
                for index in joins[number].indexes:
                    own_indexes[index] = None
        for index in own_indexes:
            leaf = model.shapes.indexes[index].leaf
            indexes.setdefault(leaf, {}).setdefault(index, []).append(i)
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
    for sink, uses in sinks.items():
        if len(uses) > 1:
            who = [i for i, _, _ in uses]
            gains[np.ix_(who, who)] -= _expanded(model, sink, uses)
    np.fill_diagonal(gains, -np.inf)
    return gains


def _expanded(model: CostModel, sink: Sink, uses: Sequence[tuple[int, tuple[int, ...], float]]) -> Matrix:
    """The additional cost when two equal sinks become one."""
    leaves = model.shapes.leaves(sink.root)
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
    single = np.asarray(model.made(sink, alone, seconds, ARRAY))
    return np.asarray(model.made(sink, unions, longest, ARRAY) - single[:, None] - single[None, :])
