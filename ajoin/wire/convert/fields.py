"""Fields of messages: enums by their names, optional fields, a dataclass as keywords."""

from __future__ import annotations

from typing import Any

from optimizer.errors import InvalidRequest


def enum_name(enum: Any, number: int, prefix: str) -> str:
    """The name of an enum number without its prefix; an unknown number is refused."""
    try:
        return str(enum.Name(number)).removeprefix(prefix)
    except ValueError:
        raise InvalidRequest(
            f"{number} is no {prefix.rstrip('_')}",
            reason="UNKNOWN_ENUM_VALUE",
            hint="known are: " + ", ".join(f"{v} ({k.removeprefix(prefix)})" for k, v in enum.items()),
        ) from None


def optional(message: Any, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


def fields_of(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in type(value).__dataclass_fields__}
