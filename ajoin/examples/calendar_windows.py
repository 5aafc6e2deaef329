"""WINDOW CALENDAR (unit [, 'time zone']): days, weeks, months, quarters and years as people count them.

    ajoin serve --plugin ajoin.examples.calendar_windows
    SELECT shop, SUM(amount) AS total FROM sales GROUP BY shop WINDOW CALENDAR (MONTH, 'Europe/Berlin')

Months have different lengths, and where clocks change so have days: no TUMBLING window can say this. Weeks begin on
Monday; without a time zone it is UTC.

Units are numbered from the one that holds 1 January 1970. In UTC the calendar is arithmetic, for which numpy's dates
are exact over the whole range of event times. In another time zone, where units start is looked up in a table of the
years TABLE, made once per process from the system's time zones (one entry per unit: 110,000 for days, a quarter of a
second). Before and after these years the zone keeps the distance to UTC that it has at that end of the table. If the
rules of a zone change with an update, make sure that no window is open across a change: a window that has been cut
stays as it was cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from ajoin.plugins import Consecutive, ConsecutiveWindow, WindowPlugin, register_window

I64 = npt.NDArray[np.int64]

UTC = "UTC"
DAY_MS = 86_400_000
TABLE = (1900, 2200)
STEPS = {"DAY": ("D", 1, 0), "WEEK": ("D", 7, 3), "MONTH": ("M", 1, 0), "QUARTER": ("M", 3, 0), "YEAR": ("Y", 1, 0)}
"""Of each unit: numpy's unit that it consists of, how many of them, and how many lie between the beginning of the first
one and 1 January 1970, which was a Thursday."""
LENGTHS = {"DAY": 1, "WEEK": 7, "MONTH": 30, "QUARTER": 91, "YEAR": 365}


def local_numbers(unit: str, local: I64) -> I64:
    """Of times on the clock of the time zone."""
    base, count, before = STEPS[unit]
    numbers: I64 = (local.astype("M8[ms]").astype(f"M8[{base}]").astype(np.int64) + before) // count
    return numbers


def local_starts(unit: str, numbers: I64) -> I64:
    base, count, before = STEPS[unit]
    starts: I64 = (numbers * count - before).astype(f"M8[{base}]").astype("M8[ms]").astype(np.int64)
    return starts


@dataclass(frozen=True)
class Zone:
    """Where the units of a time zone start: number `first` at edges[0], and so on; and how far its clock is ahead of
    UTC at both ends."""

    first: int
    edges: I64
    ahead: tuple[int, int]

    def numbers_of(self, unit: str, times: I64) -> I64:
        inside = self.first - 1 + np.searchsorted(self.edges, times, "right")
        early, late = (local_numbers(unit, times + a) for a in self.ahead)
        return np.where(times < self.edges[0], early, np.where(times >= self.edges[-1], late, inside))

    def starts_of(self, unit: str, numbers: I64) -> I64:
        at = numbers - self.first
        inside = self.edges[np.clip(at, 0, len(self.edges) - 1)]
        early, late = (local_starts(unit, numbers) - a for a in self.ahead)
        return np.where(at < 0, early, np.where(at >= len(self.edges), late, inside))


@lru_cache(maxsize=64)
def zone_of(name: str, unit: str) -> Zone:
    low, high = (np.array([f"{year}-01-01"], "M8[ms]").astype(np.int64) for year in TABLE)
    first, last = int(local_numbers(unit, low)[0]) + 1, int(local_numbers(unit, high)[0])
    local = local_starts(unit, np.arange(first, last + 1))
    zone = ZoneInfo(name)
    # Midnight that the clock skips is the moment at which it skips it; of two midnights the first counts.
    dates = local.astype("M8[ms]").astype(object)
    edges = np.array([round(d.replace(tzinfo=zone).timestamp() * 1000) for d in dates], np.int64)
    edges = np.maximum.accumulate(edges)
    return Zone(first, edges, (int(local[0] - edges[0]), int(local[-1] - edges[-1])))


@dataclass(frozen=True, slots=True)
class CalendarWindow(ConsecutiveWindow):
    unit: str
    zone: str = UTC

    @property
    def length_ms(self) -> int:
        return LENGTHS[self.unit] * DAY_MS

    @property
    def sql(self) -> str:
        return f"CALENDAR ({self.unit})" if self.zone == UTC else f"CALENDAR ({self.unit}, '{self.zone}')"

    def numbers_of(self, times: I64) -> I64:
        if self.zone == UTC:
            return local_numbers(self.unit, times)
        return zone_of(self.zone, self.unit).numbers_of(self.unit, times)

    def starts_of(self, numbers: I64) -> I64:
        if self.zone == UTC:
            return local_starts(self.unit, numbers)
        return zone_of(self.zone, self.unit).starts_of(self.unit, numbers)


def make(unit: Any, zone: Any = UTC) -> CalendarWindow:
    name = str(unit).upper().removesuffix("S")
    if name not in STEPS:
        raise ValueError(f"{unit!r} is no unit; there are {', '.join(STEPS)}")
    try:
        ZoneInfo(zone)
    except Exception:
        raise ValueError(f"{zone!r} is no time zone; write one like 'Europe/Berlin'") from None
    return CalendarWindow(name, zone)


register_window(WindowPlugin("CALENDAR", "CALENDAR (unit [, 'time zone'])", CalendarWindow, Consecutive, make))
