"""Checks that only make sense for messages: empty means absent, and a number may be anything."""

from __future__ import annotations

from optimizer.errors import InvalidRequest


def require(field: str, value: object) -> None:
    if not value:
        raise InvalidRequest(f"{field} is empty", reason="MISSING_FIELD", hint=f"{field} is required")


def clamp(field: str, value: int, *, default: int, most: int) -> int:
    """0 is the default, too much is `most`, and less than nothing is refused."""
    if value < 0:
        raise InvalidRequest(f"{field} is {value}", reason="NEGATIVE_NUMBER", hint=f"give 0 (for {default}) or more")
    return min(value or default, most)
