"""Fields of messages: enums by their names, optional fields, and dataclasses whose fields have the message's names."""

from __future__ import annotations

import dataclasses
from collections.abc import MutableMapping, MutableSequence
from typing import Any, TypeVar

from optimizer.errors import InvalidRequest

T = TypeVar("T")


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


def fields_of(value: Any, *but: str) -> dict[str, Any]:
    """A dataclass as keywords of a message."""
    return {name: getattr(value, name) for name in type(value).__dataclass_fields__ if name not in but}


def from_fields(kind: type[T], message: Any, **given: Any) -> T:
    """A dataclass from a message: what is not `given` is the field of the same name."""
    names = (field.name for field in dataclasses.fields(kind))  # type: ignore[arg-type]
    return kind(**{name: _plain(message, name) for name in names if name not in given}, **given)


def _plain(message: Any, name: str) -> Any:
    """Lists as tuples, maps as dictionaries, what is absent as None."""
    value = getattr(message, name)
    if isinstance(value, MutableMapping):
        return dict(value)
    if isinstance(value, MutableSequence):
        return tuple(value)
    return optional(message, name) if message.DESCRIPTOR.fields_by_name[name].has_presence else value
