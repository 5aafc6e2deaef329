"""Is a better plan worth changing to? A part of a change pays only if its gain outlives its price, and lasts.

Price: joined state is a cache of source buckets, so the part's new indexes and joins are rebuilt for the windows still
open: their cost per second times the window. On top, one epoch runs slower. Gain: the difference in cost per second,
for as long as the statistics behind it can be trusted: until they go stale, times the confidence in them. Both are in
the same unit. Whether a gain is too small to care is measured against what the queries that change cost themselves
(`basis`), never against the whole plan: one query among a thousand can be placed badly too.

What is worth it is a *wish*. It is remembered with the very moves it consists of, so the next optimization need not
find it again: it prices it with the statistics of that time. A wish that is no longer worth anything is forgotten, one
that has been worth it `confirmations` times in a row comes true. So statistics that alternate from one optimization to
the next never change the plan.

If they alternate more slowly, queries become *restless*: a query that is moved again although its last move was not
long ago must be wanted twice as often the next time, and so on; `calm` optimizations without a wish take one doubling
back, and after the last one the query is forgotten. A query that swings for ever is moved ever more rarely, and nothing
else waits for it: other queries need the plain number of confirmations, and those that were just created none at all,
as long as nobody else's state is rebuilt for them (search.judging).

Everything remembered is a value that goes in and comes out; nothing here looks at a clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from optimizer.model.parts import Part


@dataclass(frozen=True, slots=True)
class HysteresisConfig:
    """`min_gain`: gain, relative to what the queries that change cost, below which nothing is done. `slow_epoch_s`:
    seconds of their work that one change costs. `calm`: optimizations without a wish after which one doubling goes."""

    min_gain: float = 0.03
    slow_epoch_s: float = 1.0
    confirmations: int = 2
    calm: int = 6
    max_doublings: int = 6


@dataclass(frozen=True, slots=True)
class Wish:
    """A part that would be better, and for how many optimizations in a row it has paid its price."""

    part: Part
    wanted: int = 0


@dataclass(frozen=True, slots=True)
class Restless:
    """A query that was moved not long ago. `calm`: optimizations since without a wish to move it."""

    uid: str
    calm: int = 0
    doublings: int = 0


@dataclass(frozen=True, slots=True)
class Hysteresis:
    """`restless` is sorted by uid."""

    wishes: tuple[Wish, ...] = ()
    restless: tuple[Restless, ...] = ()

    def doublings(self) -> dict[str, int]:
        return {r.uid: r.doublings for r in self.restless if r.doublings}

    def needed(self, config: HysteresisConfig, uids: Iterable[str]) -> int:
        """How often in a row a change of these queries must be wanted at the moment."""
        known = self.doublings()
        return max(1, config.confirmations) << max((known.get(uid, 0) for uid in uids), default=0)

    def wanted(self, part: Part) -> int:
        """How often in a row another place was wanted for more than half of the queries that it moves. It need not be
        the same place: while statistics settle, the best one changes, and what was best before is worth it still, or
        it would not be a wish any more."""
        asked = part.uids
        again = [w.wanted for w in self.wishes if len(asked & w.part.uids) * 2 > len(asked)]
        return max(again, default=0)

    def after(
        self,
        config: HysteresisConfig,
        wishes: Iterable[Wish],
        moved: Collection[str],
        running: Collection[str],
    ) -> Hysteresis:
        """After an optimization that left these wishes and moved these queries."""
        left = tuple(wishes)
        wanting = {uid for w in left if w.wanted for uid in w.part.uids}
        known = {r.uid: r for r in self.restless if r.uid in running}
        for uid, r in list(known.items()):
            if uid in moved:
                continue
            if uid in wanting:
                known[uid] = replace(r, calm=0)
            elif r.calm + 1 < config.calm:
                known[uid] = replace(r, calm=r.calm + 1)
            elif r.doublings > 0:
                known[uid] = Restless(uid, 0, r.doublings - 1)
            else:
                del known[uid]
        for uid in moved:
            doublings = known[uid].doublings + 1 if uid in known else 0
            known[uid] = Restless(uid, 0, min(doublings, config.max_doublings))
        return Hysteresis(left, tuple(known[uid] for uid in sorted(known)))


@dataclass(frozen=True, slots=True)
class Worth:
    """`seen`: it would be better by enough to be remembered. `pays`: and its price comes back in time."""

    seen: bool
    pays: bool
    reason: str


def worth(config: HysteresisConfig, *, gain: float, basis: float, price: float, horizon_s: float) -> Worth:
    """Is a gain per second, of queries that cost `basis`, worth `price` with statistics that hold `horizon_s`?"""
    if gain <= 0 or gain < config.min_gain * basis:
        return Worth(False, False, f"gain {_percent(gain, basis)} is below {config.min_gain:.0%}")
    total = price + config.slow_epoch_s * basis
    if gain * horizon_s <= total:
        reason = f"gain {gain:.4g}/s over {horizon_s:.0f} s does not pay the price of {total:.4g}"
        return Worth(True, False, reason)
    return Worth(True, True, f"gain {_percent(gain, basis)}, pays its price of {total:.4g} in {total / gain:.1f} s")


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "0%"
