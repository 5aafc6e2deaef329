"""What the optimizer and the control plane may ask of a window, whatever its kind.

A window value describes all windows of a query. All answers are exact functions of integers, so every process and
every replay of the log gives the same ones. Of aligned windows a single one is named by its start.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import Field
from typing import Any, ClassVar, Protocol, TypeGuard, runtime_checkable

NEVER = 1 << 61
"""Later than every event time."""

_UNITS = (("DAY", 86_400_000), ("HOUR", 3_600_000), ("MINUTE", 60_000), ("SECOND", 1000), ("MILLISECOND", 1))


class Window(Hashable, Protocol):
    """A frozen dataclass: equal windows are equal objects, and the log and explain can write any kind."""

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
        """A query that begins at `time` sees tuples from this time on; of aligned windows it is the start of one: no
        earlier window would be complete."""
        ...

    def first_alive(self, horizon: int) -> int:
        """Tuples before this time are not needed any more once every new tuple lies at or after `horizon`. Of aligned
        windows it is the start of the first one that such a tuple can fall into."""
        ...


@runtime_checkable
class AlignedWindow(Window, Protocol):
    """Windows known from the clock alone, so that a slice of event time lies in one as a whole or not at all."""

    def end(self, start: int) -> int:
        """The first time after the window that starts at `start`."""
        ...

    def closed(self, start: int, watermark: int) -> bool:
        """Is the window that starts at `start` complete once no tuple before `watermark` is expected?"""
        ...


_ALIGNED: dict[type, bool] = {}


def is_aligned(window: Window) -> TypeGuard[AlignedWindow]:
    """`isinstance` of a protocol looks at every member, some 150 microseconds; a kind of window is or is not."""
    kind = type(window)
    if kind not in _ALIGNED:
        _ALIGNED[kind] = isinstance(window, AlignedWindow)
    return _ALIGNED[kind]


def duration(ms: int) -> str:
    """In the largest unit that divides it: 90000 is "90 SECONDS"."""
    unit, size = next((unit, size) for unit, size in _UNITS if ms % size == 0)
    count = ms // size
    return f"{count} {unit}" if count == 1 else f"{count} {unit}S"
