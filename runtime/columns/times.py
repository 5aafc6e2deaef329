"""The calendar in whole-column arithmetic: fields of times, and times cut to a unit. Times are milliseconds, UTC.

The Gregorian calendar repeats every 400 years, which are 146,097 days, so a day is looked at by its place in such a
cycle that begins on a first of March: then the leap day is the last day of a year and the lengths of months follow a
straight line. Everything floors, so times before 1970 are treated like those after it, and works over all 64 bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]

DAY_MS = 86_400_000
_UNIT_MS = {"MILLISECOND": 1, "SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": DAY_MS}
_PLACES = {"MILLISECOND": (1, 1_000), "SECOND": (1_000, 60), "MINUTE": (60_000, 60), "HOUR": (3_600_000, 24)}
_CYCLE = 146_097  # days of 400 years
_MARCH_FIRST = 719_468  # days from 0000-03-01 to 1970-01-01


class _Dates(NamedTuple):
    year: I64
    month: I64
    day: I64


def extract(field: str, times: I64) -> I64:
    """MILLISECOND and SECOND are those of the time of day; weeks are ISO's; DOW counts from Sunday, which is 1."""
    if field in _PLACES:
        unit, size = _PLACES[field]
        return times // unit % size
    if field == "EPOCH":
        return times // 1_000
    days = times // DAY_MS
    match field:
        case "DOW":
            return (days + 4) % 7 + 1  # 1970-01-01 was a Thursday
        case "ISODOW":
            return (days + 3) % 7 + 1
        case "WEEK" | "ISOYEAR":
            # a week belongs to the year of its Thursday
            thursday = days - (days + 3) % 7 + 3
            year = _dates(thursday).year
            return year if field == "ISOYEAR" else (thursday - _days(year, 1)) // 7 + 1
        case "DOY":
            return days - _days(_dates(days).year, 1) + 1
    year, month, day = _dates(days)
    match field:
        case "YEAR":
            return year
        case "QUARTER":
            return (month + 2) // 3
        case "MONTH":
            return month
        case "DAY":
            return day
        case _:
            raise ValueError(field)


def truncate(unit: str, times: I64) -> I64:
    """The last moment not after `times` at which such a unit began; weeks begin on Monday."""
    if unit in _UNIT_MS:
        return times - times % _UNIT_MS[unit]
    days = times // DAY_MS
    if unit == "WEEK":
        return (days - (days + 3) % 7) * DAY_MS
    year, month, _ = _dates(days)
    match unit:
        case "MONTH":
            return _days(year, month) * DAY_MS
        case "QUARTER":
            return _days(year, (month - 1) // 3 * 3 + 1) * DAY_MS
        case "YEAR":
            return _days(year, 1) * DAY_MS
        case _:
            raise ValueError(unit)


def _dates(days: I64) -> _Dates:
    shifted = days + _MARCH_FIRST
    cycle, at = shifted // _CYCLE, shifted % _CYCLE
    # of 4, 100 and 400 years the last day is a leap day, or is missing
    year_of = (at - at // 1_460 + at // 36_524 - at // 146_096) // 365
    in_year = at - (365 * year_of + year_of // 4 - year_of // 100)
    from_march = (5 * in_year + 2) // 153
    day = in_year - (153 * from_march + 2) // 5 + 1
    month = np.where(from_march < 10, from_march + 3, from_march - 9)
    return _Dates(year_of + 400 * cycle + (month <= 2), month, day)


def _days(year: I64, month: I64 | int) -> I64:
    """Days from 1970-01-01 to the first of the month."""
    months = np.asarray(month)
    from_march = (months + 9) % 12
    shifted = year - (months <= 2)
    cycle, year_of = shifted // 400, shifted % 400
    in_year = (153 * from_march + 2) // 5
    days: I64 = cycle * _CYCLE + year_of * 365 + year_of // 4 - year_of // 100 + in_year - _MARCH_FIRST
    return days
