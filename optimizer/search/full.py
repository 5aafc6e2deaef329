"""A plan from scratch: group the queries of each shape, merge groups across shapes, refine. The result never costs more
than no sharing, nor more than the plan it started from.
"""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.cost.model import CostModel, Member
from optimizer.cost.shapes import Shape
from optimizer.search.clusters import Cluster, Singles, ordered, together
from optimizer.search.grouping import group_shape
from optimizer.search.merging import merge_all, merge_thoroughly
from optimizer.search.refine import Alone, never_above_unshared, refine

SMALL = 6
"""Up to so many queries every step tries all alternatives with new orders."""


def optimize_fully(model: CostModel, singles: Singles, alone: Alone, start: Sequence[Cluster] = ()) -> list[Cluster]:
    """`start`: a plan to beat, if there is one."""
    by_shape: dict[Shape, list[Member]] = {}
    for uid in sorted(singles):
        by_shape.setdefault(singles[uid].shape, []).append(singles[uid])
    clusters = [c for s in sorted(by_shape, key=lambda s: s.text) for c in group_shape(model, by_shape[s])]
    small = len(singles) <= SMALL
    clusters = merge_thoroughly(model, clusters) if small else merge_all(model, clusters)
    if small:
        clusters = refine(model, singles, clusters, alone)
        everyone = ordered(model, _members(by_shape))
        starts = [clusters, refine(model, singles, [everyone], alone), list(start)]
        clusters = min((s for s in starts if s), key=lambda s: sum(c.cost for c in s))
    clusters = never_above_unshared(clusters, alone)
    if start and sum(c.cost for c in start) <= sum(c.cost for c in clusters):
        return list(start)
    return clusters


def _members(by_shape: dict[Shape, list[Member]]) -> list[Member]:
    return [together(by_shape[s]) for s in sorted(by_shape, key=lambda s: s.text)]
