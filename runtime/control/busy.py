"""How busy partitions are: seconds of their tasks per second of time, smoothed.

The time is that which passes, not that which epochs take: an epoch of a tenth of a second every second leaves the
machine idle for the rest, however busy its tasks were. An epoch's seconds are spread evenly over its duration, and what
is `SMOOTHED_S` old counts a third (exponential decay), also while no epoch runs.

With another partition function everything begins anew, at the end of the last epoch before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from optimizer.model.plan import Partitioning
from runtime.operators.join import JoinReport

SMOOTHED_S = 10.0

OTHERS = -1
"""In place of a partition: work that belongs to none."""


class Busy:
    """Owned by the engine's thread. Times are seconds on any clock; one that stands still or goes back does no harm."""

    def __init__(self) -> None:
        self._begin(Partitioning(()), 0.0)

    def _begin(self, partitioning: Partitioning, at: float) -> None:
        self._partitioning, self._since, self._at = partitioning, at, at
        self._work: dict[int, float] = {}
        self._combinations: dict[int, float] = {}
        self._hottest: dict[int, float] = {}

    def observe(
        self, partitioning: Partitioning, joins: Iterable[JoinReport], others: float, at: float, seconds: float
    ) -> None:
        """An epoch that took `seconds` and ended at `at`; `others`: seconds of tasks of no partition."""
        if partitioning != self._partitioning:
            began = at - seconds
            self._begin(partitioning, min(began, self._at) if self._partitioning.bounds else began)
        at = max(at, self._at + seconds)
        kept = math.exp((self._at - at) / SMOOTHED_S)
        share = 1.0 if seconds <= 0 else SMOOTHED_S / seconds * (1 - math.exp(-seconds / SMOOTHED_S))
        for values in (self._work, self._combinations, self._hottest):
            for p in values:
                values[p] *= kept
        for j in joins:
            done = sum(j.matches.values())
            _add(self._work, j.partition, (j.join_seconds + j.sink_seconds) * share)
            _add(self._combinations, j.partition, done * share)
            _add(self._hottest, j.partition, min(j.hottest, done) * share)
        _add(self._work, OTHERS, others * share)
        self._at = at

    def shares(self, partitioning: Partitioning, at: float) -> dict[int, float]:
        """Per partition, and for `OTHERS`; empty if no epoch has run with this partition function."""
        if partitioning != self._partitioning:
            return {}
        at = max(at, self._at)
        weight = SMOOTHED_S * (1 - math.exp((self._since - at) / SMOOTHED_S))
        kept = math.exp((self._at - at) / SMOOTHED_S)
        return {p: work * kept / weight for p, work in self._work.items()} if weight > 0 else {}

    def hottest(self) -> dict[int, float]:
        """Per partition, which part of its combinations the heaviest key of each task had."""
        return {p: self._hottest[p] / total for p, total in self._combinations.items() if total > 0}


def _add(to: dict[int, float], partition: int, value: float) -> None:
    to[partition] = to.get(partition, 0.0) + value
