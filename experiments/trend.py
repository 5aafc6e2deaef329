"""Does a measured quantity grow? A straight line through samples, and how sure one can be of its slope.

Neighbouring samples resemble each other (a garbage collection, a noisy minute), so an ordinary least-squares error
would be far too small. Samples are therefore averaged into at most twelve blocks of equal length first, and the line
is fitted through those; the confidence interval is Student's at 95 %. The first fifth of the samples is left out:
caches fill, the JVM compiles, the retention reaches its bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

BLOCKS = 12
WARM_UP = 0.2
STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""95 %, two-sided, for 1 to 10 degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Trend:
    """`first` and `last`: medians of the first and the last fifth after the warm-up; slopes per hour."""

    first: float
    last: float
    slope: float
    low: float
    high: float

    def grows(self, tolerated: float) -> bool:
        """Even the lower end of the interval is steeper than what is tolerated per hour."""
        return self.low > tolerated


def trend(hours: Sequence[float], values: Sequence[float]) -> Trend | None:
    """None: too few samples to say anything."""
    skip = int(len(values) * WARM_UP)
    xs, ys = _blocks(hours[skip:]), _blocks(values[skip:])
    if len(xs) < 3:
        return None
    kept = values[skip:]
    fifth = max(1, len(kept) // 5)
    x0, y0 = fmean(xs), fmean(ys)
    spread = sum((x - x0) ** 2 for x in xs)
    slope = sum((x - x0) * (y - y0) for x, y in zip(xs, ys, strict=True)) / spread
    left = sum((y - y0 - slope * (x - x0)) ** 2 for x, y in zip(xs, ys, strict=True))
    error = math.sqrt(left / (len(xs) - 2) / spread) * STUDENT[len(xs) - 3]
    return Trend(median(kept[:fifth]), median(kept[-fifth:]), slope, slope - error, slope + error)


def _blocks(values: Sequence[float]) -> list[float]:
    count = min(BLOCKS, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)] if count else [0]
    return [fmean(values[a:b]) for a, b in pairwise(edges)]
