"""Is a better plan worth changing to? A change pays only if its gain outlives its price, and only if the gain lasts.

Price: joined state is a cache of source buckets, so the new plan's new indexes and joins are rebuilt for the windows
still open: their cost per second times the window. On top, one epoch runs slower. Gain: the difference in cost per
second, for as long as the statistics behind it can be trusted: until they go stale, times the confidence in them.
Both are in the same unit.

Flapping has two guards. A wanted change must be wanted `confirmations` times in a row, so statistics that alternate
from one optimization to the next never change the plan. If they alternate more slowly, every applied change makes the
next one wait one doubling longer, and `calm` optimizations without a wanted change take one doubling back: a load
that swings for ever changes the plan ever more rarely.

The counts are a value that goes in and comes out with the verdict, so judging changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class HysteresisConfig:
    """`min_gain`: relative gain below which nothing is proposed. `slow_epoch_s`: seconds of work one change costs."""

    min_gain: float = 0.03
    slow_epoch_s: float = 1.0
    confirmations: int = 2
    calm: int = 10
    max_doublings: int = 6


@dataclass(frozen=True, slots=True)
class Hysteresis:
    """`wanted`: how often in a row a change was wanted; `calm`: how many optimizations wanted none since the last one
    that did; `doublings`: how many times the required number of wishes is doubled at the moment."""

    wanted: int = 0
    calm: int = 0
    doublings: int = 0

    def needed(self, config: HysteresisConfig) -> int:
        """How often in a row a change must be wanted at the moment."""
        return int(max(1, config.confirmations)) << self.doublings

    def applied(self, config: HysteresisConfig) -> Hysteresis:
        """After a change, made by judgement or by force."""
        return Hysteresis(doublings=min(self.doublings + 1, config.max_doublings))

    def content(self, config: HysteresisConfig) -> Hysteresis:
        """After an optimization that wanted no change."""
        if self.calm + 1 < config.calm:
            return Hysteresis(0, self.calm + 1, self.doublings)
        return Hysteresis(0, 0, max(self.doublings - 1, 0))


@dataclass(frozen=True, slots=True)
class Verdict:
    """`hysteresis`: the counts after this verdict."""

    applied: bool
    reason: str
    hysteresis: Hysteresis


def judge(
    config: HysteresisConfig, at: Hysteresis, *, before: float, after: float, price: float, horizon_s: float
) -> Verdict:
    """Should a plan of cost `before` become one of cost `after`, for `price`, with statistics that hold `horizon_s`?"""
    gain = before - after
    if gain < config.min_gain * before:
        reason = f"gain {_percent(gain, before)} is below {config.min_gain:.0%}"
        return Verdict(False, reason, at.content(config))
    total = price + config.slow_epoch_s * before
    if gain * horizon_s <= total:
        reason = f"gain {gain:.4g}/s over {horizon_s:.0f} s does not pay the price of {total:.4g}"
        return Verdict(False, reason, at.content(config))
    wished = replace(at, wanted=at.wanted + 1, calm=0)
    if wished.wanted < wished.needed(config):
        return Verdict(False, f"wanted {wished.wanted} of {wished.needed(config)} times in a row", wished)
    reason = f"gain {_percent(gain, before)}, pays its price of {total:.4g} in {total / gain:.1f} s"
    return Verdict(True, reason, wished.applied(config))


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "0%"
