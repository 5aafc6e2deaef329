"""Which queries have other statistics than when the optimizer last looked at them.

A search that found nothing, or whose result did not pay, finds the same again until something changes. So what it has
seen is remembered in a few numbers, and only queries that *drifted* since are looked at again: those that want more or
fewer tuples by a quarter, one of whose streams brings another share of their tuples, whose joins became twice as
selective or half as much, or that now overlap with others more or less (the union of what is wanted on a leaf).
Counts are of sampled tuples, and sampling has noise: three standard deviations of it are no drift.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

from optimizer.cost.cardinality import independent
from optimizer.cost.model import CostModel
from optimizer.cost.shapes import Shape
from optimizer.policy.memory import Seen
from optimizer.search.clusters import Singles
from optimizer.statistics.samples import ROWS

QUARTER, NOISE, TWICE = 0.25, 3.0, math.log(2.0)


class _Leaf(NamedTuple):
    """Of one query: how many sampled tuples of a leaf it wants, how many all `users` of the leaf want together, and the
    part (of ROWS) that the leaf has of the tuples of the query's streams."""

    wants: float
    union: float
    users: float
    share: float


def seen(model: CostModel, singles: Singles) -> dict[str, tuple[float, ...]]:
    """Per query the number of its leaves, four numbers for each, and how selective its joins are."""
    card = model.cardinalities
    unions: dict[int, int] = {}
    users: dict[int, int] = {}
    for member in singles.values():
        for leaf, bits in zip(member.shape.leaves, member.bits, strict=True):
            unions[leaf] = unions.get(leaf, 0) | bits
            users[leaf] = users.get(leaf, 0) + 1
    scale = {leaf: ROWS / max(card.rows(leaf), 1) for leaf in unions}
    shared = {leaf: (bits.bit_count() * scale[leaf], float(users[leaf])) for leaf, bits in unions.items()}
    shapes: dict[Shape, tuple[dict[int, float], tuple[float, ...]]] = {}
    numbers = {}
    for uid, member in singles.items():
        shape = member.shape
        if shape not in shapes:
            total = sum(card.rate(leaf) for leaf in shape.leaves) or 1.0
            pairs = [frozenset(parts) for _, parts in independent(frozenset(shape.edges))]
            selective = tuple(math.log(max(card.selectivity(pair), 1e-300)) for pair in pairs)
            shapes[shape] = {leaf: ROWS * card.rate(leaf) / total for leaf in shape.leaves}, selective
        shares, selective = shapes[shape]
        own = [float(len(member.bits))]
        for leaf, bits in zip(shape.leaves, member.bits, strict=True):
            own += _Leaf(bits.bit_count() * scale[leaf], *shared[leaf], shares[leaf])
        numbers[uid] = (*own, *selective)
    return numbers


def drifted(before: Seen, now: Mapping[str, tuple[float, ...]]) -> frozenset[str]:
    return frozenset(uid for uid, numbers in before if uid in now and _differ(numbers, now[uid]))


def remembered(before: Seen, now: Mapping[str, tuple[float, ...]], looked_at: Collection[str] | None) -> Seen:
    """`looked_at` None: all were."""
    if looked_at is None:
        return tuple(sorted(now.items()))
    known = dict(before)
    return tuple((uid, now[uid] if uid in looked_at or uid not in known else known[uid]) for uid in sorted(now))


def _differ(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    if a == b:
        return False
    if len(a) != len(b):
        return True
    first = 1 + 4 * int(a[0])
    for at in range(1, first, 4):
        x, y = _Leaf(*a[at : at + 4]), _Leaf(*b[at : at + 4])
        if _moved(x.wants, y.wants) or _moved(x.share, y.share):
            return True
        if x.users == y.users and _moved(x.union, y.union):  # who comes and goes is looked at anyway
            return True
    return any(abs(x - y) > TWICE for x, y in zip(a[first:], b[first:], strict=True))


def _moved(a: float, b: float) -> bool:
    most = max(a, b)
    return abs(a - b) > QUARTER * most + NOISE * math.sqrt(most)
