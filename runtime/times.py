"""Event times and durations as people write them, for messages."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = (
    ("year", 31_556_952_000),
    ("day", 86_400_000),
    ("hour", 3_600_000),
    ("minute", 60_000),
    ("second", 1000),
)


def moment(ms: int) -> str:
    """In UTC; the number itself where the calendar ends."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def duration(ms: int) -> str:
    """In the largest unit of which it has at least one, rounded down: 90 minutes are "1 hour"."""
    for unit, size in _UNITS:
        if ms >= size:
            count = ms // size
            return f"{count:,} {unit}" if count == 1 else f"{count:,} {unit}s"
    return f"{ms} ms"
