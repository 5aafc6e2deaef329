"""Back-pressure made visible: what input waits, which streams are throttled, how long tuples take.

Sources bound what one epoch reads, so when input outruns the machine, epochs grow up to that bound and the rest waits
where it is: in the topic, the directory, the generator's arithmetic. Nothing is dropped. When the range of an epoch is
chosen, every source is asked what it leaves behind; a stream is *throttled* while that is more than nothing. The answer
counts when the epoch is committed, because a range that was read ahead may still be thrown away.

How long it takes until rows can be read is measured in runtime.engine.latency. Only the engine's thread writes; values
are replaced, so any thread may look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

WALL_CLOCK_LIKE_MS = 7 * 24 * 3600 * 1000
"""Event times further from now than this are not wall-clock times; then lag says nothing."""


@dataclass(frozen=True, slots=True)
class Gauges:
    """As of the last committed epoch. `latency_seconds`: the age of its oldest tuple then. `backlog`: per stream,
    what its source had left to read, in its own unit."""

    latency_seconds: float = 0.0
    backlog: Mapping[str, int] = field(default_factory=dict)

    @property
    def throttled(self) -> tuple[str, ...]:
        """The streams whose last epoch hit its bound."""
        return tuple(sorted(name for name, waiting in self.backlog.items() if waiting > 0))


class Pressure:
    def __init__(self) -> None:
        self.gauges = Gauges()
        self._planned: dict[int, Mapping[str, int]] = {}

    def planned(self, epoch: int, backlog: Mapping[str, int]) -> None:
        """The epoch's range was chosen; choosing it again forgets the first time."""
        self._planned[epoch] = backlog

    def committed(self, epoch: int, latency_seconds: float) -> Gauges:
        """One that was planned by an earlier process says nothing new of the backlog."""
        backlog = self._planned.pop(epoch, self.gauges.backlog)
        self._planned = {e: p for e, p in self._planned.items() if e > epoch}
        self.gauges = Gauges(latency_seconds, backlog)
        return self.gauges


def lag_ms(now_ms: int, watermark: int | None) -> int | None:
    """How far event time trails the clock; None where event time is not wall-clock time."""
    if watermark is None or abs(now_ms - watermark) > WALL_CLOCK_LIKE_MS:
        return None
    return max(0, now_ms - watermark)
