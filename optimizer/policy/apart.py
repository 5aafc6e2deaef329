"""Which queries should have a query group of their own, because they make more work than an epoch has room for.

The runtime puts off what a query makes beyond its share of an epoch; such a query is *behind* its streams by some
epochs. One that is behind by `after` epochs counts as *heavy* and is kept apart: it shares no group with others, so the
tuples only it wants are in nobody else's indexes and joins, and what it puts off keeps nobody else's state. That
costs the indexes and joins it could have shared, so at most `most` queries are kept apart at once, those that are
furthest behind first; a query that is apart keeps its place.

Flapping has two guards, as in `hysteresis`. A query may share again only after `patience` optimizations in a row at
which it was not behind at all. If it becomes heavy again after that, it must keep up twice as long the next time, up to
`max_doublings` doublings. Only a query that has kept up for the longest of these times is forgotten. So a load that
swings between two optimizations never changes the plan after the first time, and one that swings slowly changes it
ever more rarely.

Time is counted in optimizations, because the plan changes only there. What is remembered is a tuple of frozen values
that goes in and comes out; nothing here looks at a clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ApartConfig:
    """`after`: epochs a query must be behind to count as heavy. `patience`: optimizations in a row at which it must not
    be behind before it may share again. `most`: queries that are kept apart at once."""

    after: int = 3
    patience: int = 6
    max_doublings: int = 5
    most: int = 8

    @property
    def longest(self) -> int:
        """The longest time a query must keep up before it may share again."""
        return self.patience << self.max_doublings


@dataclass(frozen=True, slots=True)
class Watched:
    """A query that is kept apart, or was not long ago. `calm`: for how many optimizations in a row it has kept up;
    `doublings`: how many times the number required of it is doubled."""

    uid: str
    calm: int = 0
    doublings: int = 0

    def apart(self, config: ApartConfig) -> bool:
        return self.calm < config.patience << self.doublings


def kept_apart(config: ApartConfig, watched: Collection[Watched]) -> frozenset[str]:
    """The uids of those that must not share a group at the moment."""
    return frozenset(w.uid for w in watched if w.apart(config))


def watch(
    config: ApartConfig, watched: Collection[Watched], behind: Mapping[str, int], running: Collection[str]
) -> tuple[Watched, ...]:
    """What to remember after one optimization. `behind`: epochs, per uid; those that keep up are not in it."""
    known = {w.uid: _seen(config, w, w.uid in behind) for w in watched if w.uid in running}
    heavy = [uid for uid, epochs in behind.items() if epochs >= config.after and uid in running]
    apart = kept_apart(config, known.values())
    room = max(config.most - len(apart), 0)
    for uid in sorted((u for u in heavy if u not in apart), key=lambda u: (-behind[u], u))[:room]:
        before = known.get(uid)
        known[uid] = Watched(uid, 0, min(before.doublings + 1, config.max_doublings) if before else 0)
    return tuple(known[uid] for uid in sorted(known) if known[uid].calm < config.longest)


def _seen(config: ApartConfig, w: Watched, behind: bool) -> Watched:
    if not behind:
        return replace(w, calm=w.calm + 1)
    return replace(w, calm=0) if w.apart(config) else w
