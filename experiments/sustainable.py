"""Search for the sustainable throughput: the highest rate that a system keeps up with.

The rate is doubled until it cannot be sustained, then the interval is halved until it is narrow enough.
Every probe is a run of its own; a failed probe does not spoil the next. The answer is a rate that was
sustained, never one that was only interpolated.
"""

from __future__ import annotations

from collections.abc import Callable


def search(probe: Callable[[float], bool], start: float, *, precision: float = 0.1, most_probes: int = 12) -> float:
    """0 when not even a thousandth of `start` is sustained."""
    good, bad, rate = 0.0, float("inf"), start
    for _ in range(most_probes):
        if probe(rate):
            good = max(good, rate)
        else:
            bad = min(bad, rate)
        if good and bad <= good * (1 + precision):
            break
        if not good and bad < start / 1000:
            break
        rate = good * 2 if bad == float("inf") else (bad / 4 if not good else (good + bad) / 2)
    return good
