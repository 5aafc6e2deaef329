"""What the optimizer and the control plane may ask of a window, whatever its kind.

A window value describes all windows of a query. A single window is named by its start. All answers are exact functions
of integers, so every process and every replay of the log gives the same ones.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import Field
from typing import Any, ClassVar, Protocol

_UNITS = (("DAY", 86_400_000), ("HOUR", 3_600_000), ("MINUTE", 60_000), ("SECOND", 1000), ("MILLISECOND", 1))


class Window(Hashable, Protocol):
    """A frozen dataclass of integers: equal windows are equal objects, and the log and explain can write any kind."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def length_ms(self) -> int:
        """How much event time one window covers, for the cost model."""
        ...

    @property
    def most_per_tuple(self) -> int:
        """In how many windows one tuple can be."""
        ...

    @property
    def sql(self) -> str:
        """As it is written after the keyword WINDOW."""
        ...

    def first_start_at_or_after(self, time: int) -> int:
        """A query that begins at `time` has windows from this start on: no earlier one would be complete."""
        ...

    def end(self, start: int) -> int:
        """The first time after the window that starts at `start`."""
        ...

    def closed(self, start: int, watermark: int) -> bool:
        """Is the window that starts at `start` complete once no tuple before `watermark` is expected?"""
        ...

    def first_alive(self, horizon: int) -> int:
        """Start of the first window that a tuple at or after `horizon` can still fall into. Tuples before that start
        are in dead windows only, so they are not needed any more."""
        ...


def duration(ms: int) -> str:
    """In the largest unit that divides it: 90000 is "90 SECONDS"."""
    unit, size = next((unit, size) for unit, size in _UNITS if ms % size == 0)
    count = ms // size
    return f"{count} {unit}" if count == 1 else f"{count} {unit}S"
