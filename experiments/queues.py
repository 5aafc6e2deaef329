"""The driver's two queues, and when a system can no longer sustain what they hold.

Tuple queue: tuple i of every stream becomes available at t0 + i / rate and waits until the system pulls it,
so the longer it waits, the higher its event-time latency. The queue need not be materialised: its length is
what is due minus what was pulled. A system sustains the rate if the queue stays short and does not keep
growing.

Request queue: user requests are pushed at their times; the system acknowledges each. A system cannot
sustain the requests if an acknowledgement takes longer than the timeout, or if every one takes longer than
the one before.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass
class TupleQueue:
    """`rate`: tuples per second and stream. Times are seconds since the queue was opened."""

    rate: float
    samples: list[tuple[float, float]] = field(default_factory=list)

    def observe(self, seconds: float, pulled: int) -> None:
        self.samples.append((seconds, max(0.0, seconds * self.rate - pulled)))

    @property
    def longest_seconds(self) -> float:
        """The queue's greatest length, as seconds of input."""
        return max((length for _, length in self.samples), default=0.0) / self.rate

    def growth(self) -> float:
        """How fast the queue grew in the second half, as a share of the input rate; 1: nothing was pulled at all."""
        half = self.samples[len(self.samples) // 2 :]
        if len(half) < 3:
            return 0.0
        t, length = np.array(half).T
        return float(np.polyfit(t, length, 1)[0] / self.rate)

    def sustained(self, longest: float, growth: float = 0.1) -> bool:
        return self.longest_seconds <= longest and self.growth() <= growth


@dataclass
class RequestQueue:
    """Ack durations in the order of the requests."""

    timeout: float
    acks: list[float] = field(default_factory=list)

    def acknowledged(self, seconds: float) -> None:
        self.acks.append(seconds)

    def sustained(self) -> bool:
        return all(a <= self.timeout for a in self.acks) and not keeps_increasing(self.acks)


def keeps_increasing(values: Sequence[float], at_least: int = 8) -> bool:
    """Is every one of the last values greater than the one before?"""
    last = values[-at_least:]
    return len(last) == at_least and all(a < b for a, b in itertools.pairwise(last))


def percentiles(values: Sequence[float], prefix: str) -> dict[str, float]:
    if not len(values):
        return {}
    array = np.asarray(values, float)
    found = {f"{prefix}_p{p}": float(np.percentile(array, p)) for p in (50, 90, 99)}
    return found | {
        f"{prefix}_min": float(array.min()),
        f"{prefix}_mean": float(array.mean()),
        f"{prefix}_max": float(array.max()),
    }
