"""Running queries as the search sees them: each a member of its own, with the sampled tuples it wants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from optimizer.cost.model import Member
from optimizer.cost.shapes import Profile, Shapes
from optimizer.model.combining import entries_a_second
from optimizer.model.folds import rows_a_second
from optimizer.statistics.model import StatisticsModel
from optimizer.statistics.samples import DEFAULT_SELECTIVITY, guess


def members(shapes: Shapes, profiles: Sequence[Profile], stats: StatisticsModel) -> dict[str, Member]:
    """Each query as a member of its own, with its sampled columns.

    A query that was not sampled yet has the column of one with the same selection, or else a guessed one.
    """
    samples: dict[int, tuple[Mapping[str, int], int]] = {}
    equal: dict[tuple[int, str], int] = {}
    unknown: set[str] = set()
    for profile in profiles:
        for leaf, selection in zip(profile.shape.leaves, profile.selections, strict=True):
            if leaf not in samples:
                samples[leaf] = stats.columns(shapes.leaf_of(leaf))
            known = samples[leaf][0].get(profile.uid)
            if known is None:
                unknown.add(profile.uid)
            else:
                equal[leaf, selection] = known
    found = {}
    for profile in profiles:
        uid, leaves = profile.uid, profile.shape.leaves
        if uid not in unknown:
            bits = tuple([samples[leaf][0][uid] for leaf in leaves])
        else:
            bits = tuple(
                _column(uid, selection, samples[leaf], equal.get((leaf, selection)))
                for leaf, selection in zip(leaves, profile.selections, strict=True)
            )
        found[uid] = Member(profile.shape, bits, profile.seconds, (uid,), *_closed(shapes, profile, bits, stats))
    return found


def _closed(shapes: Shapes, profile: Profile, bits: tuple[int, ...], stats: StatisticsModel) -> tuple[float, float]:
    """Of windows that close, a second: rows, and the entries they are combined from."""
    if not profile.fold:
        return 0.0, 0.0
    streams = [(shapes.leaf_of(leaf), b.bit_count()) for leaf, b in zip(profile.shape.leaves, bits, strict=True)]
    tuples = max(stats.rate(leaf.stream) * n / max(stats.rows(leaf), 1) for leaf, n in streams)
    rows = rows_a_second(profile.window, stats.groups(profile.fold) if profile.grouped else 1.0, tuples)
    return rows, entries_a_second(profile.window, len(streams), rows, tuples)


def _column(uid: str, selection: str, sample: tuple[Mapping[str, int], int], equal: int | None) -> int:
    known = sample[0].get(uid, equal)
    return guess(selection, DEFAULT_SELECTIVITY, sample[1]) if known is None else known
