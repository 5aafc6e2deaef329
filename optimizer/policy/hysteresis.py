"""Is a better plan worth changing to? A change pays only if its gain outlives its price, and only if the gain lasts.

Price: joined state is a cache of source buckets, so the new plan's new indexes and joins are rebuilt for the windows
still open: their cost per second times the window. On top, one epoch runs slower. Gain: the difference in cost per
second, for as long as the statistics behind it can be believed: until they go stale, times the confidence in them.
Both are in the same unit.

Flapping has two guards. A wanted change must be wanted `confirmations` times in a row, so statistics that alternate
from one optimization to the next never change the plan. If they alternate more slowly, every applied change makes the
next one wait one doubling longer, and `calm` optimizations without a wanted change take one doubling back: a load
that swings for ever changes the plan ever more rarely.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HysteresisConfig:
    """`min_gain`: relative gain below which nothing is proposed. `slow_epoch_s`: seconds of work one change costs."""

    min_gain: float = 0.03
    slow_epoch_s: float = 1.0
    confirmations: int = 2
    calm: int = 10
    max_doublings: int = 6


@dataclass(frozen=True, slots=True)
class Verdict:
    applied: bool
    reason: str


class Hysteresis:
    """Mutable: counts what was wanted. Owned by one optimizer."""

    def __init__(self, config: HysteresisConfig) -> None:
        self.config = config
        self._wanted = 0
        self._quiet = 0
        self._doublings = 0

    @property
    def needed(self) -> int:
        """How often in a row a change must be wanted at the moment."""
        return int(max(1, self.config.confirmations)) << self._doublings

    def judge(self, before: float, after: float, price: float, horizon_s: float) -> Verdict:
        c = self.config
        gain = before - after
        if gain < c.min_gain * before:
            return self.content(f"gain {_percent(gain, before)} is below {c.min_gain:.0%}")
        worth = gain * horizon_s
        total = price + c.slow_epoch_s * before
        if worth <= total:
            return self.content(f"gain {gain:.4g}/s over {horizon_s:.0f} s does not pay the price of {total:.4g}")
        self._wanted += 1
        self._quiet = 0
        if self._wanted < self.needed:
            return Verdict(False, f"wanted {self._wanted} of {self.needed} times in a row")
        self.applied()
        return Verdict(True, f"gain {_percent(gain, before)}, pays its price of {total:.4g} in {total / gain:.1f} s")

    def applied(self) -> None:
        """A change was made, by judgement or by force."""
        self._wanted = self._quiet = 0
        self._doublings = min(self._doublings + 1, self.config.max_doublings)

    def content(self, reason: str) -> Verdict:
        """No change is wanted this time."""
        self._wanted = 0
        self._quiet += 1
        if self._quiet >= self.config.calm:
            self._quiet = 0
            self._doublings = max(self._doublings - 1, 0)
        return Verdict(False, reason)


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "0%"
