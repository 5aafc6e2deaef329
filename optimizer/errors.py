"""Every error a user can meet, as one small tree.

    AJoinError
    ├── InvalidRequest      the request itself is wrong; sending it again will not help
    │   └── SqlError        ... because of its SQL text; carries line, column and token
    ├── NotFound            a stream or query that does not exist
    ├── AlreadyExists       a name that is taken
    ├── FailedPrecondition  right request, wrong moment (a stream that queries still use)
    ├── ResourceExhausted   a limit of the platform was reached
    ├── Unauthenticated     the caller did not say who it is, or is not known
    ├── PermissionDenied    the caller is known and may not do this
    ├── Unavailable         the platform cannot answer now (starting, stopping); try again
    └── InternalError       an invariant broke; always a bug

Each leaf maps to one gRPC status. `reason` is a stable code in UPPER_SNAKE_CASE that crosses the wire and comes
back as the same class; the wording of `message` may improve at any time. A message says what happened and where, and
`hint` what to do about it. The tree lives at the bottom layer because every layer raises from it.
"""

from __future__ import annotations

from typing import ClassVar


class AJoinError(Exception):
    """Root of everything this project raises on purpose."""

    default_reason: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str, *, reason: str | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidRequest(AJoinError):
    default_reason = "INVALID_REQUEST"


class SqlError(InvalidRequest):
    """`line` and `column` count from 1; 0 means the place is not known. `token` is the text at that place."""

    default_reason = "SQL_INVALID"

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        hint: str = "",
        line: int = 0,
        column: int = 0,
        token: str = "",
    ) -> None:
        super().__init__(message, reason=reason, hint=hint)
        self.line = line
        self.column = column
        self.token = token

    def __str__(self) -> str:
        place = f"line {self.line}, column {self.column}" if self.line else ""
        near = f" at {self.token!r}" if self.token else ""
        return f"{place}{near}: {super().__str__()}" if place else super().__str__()


class NotFound(AJoinError):
    default_reason = "NOT_FOUND"


class AlreadyExists(AJoinError):
    default_reason = "ALREADY_EXISTS"


class FailedPrecondition(AJoinError):
    default_reason = "FAILED_PRECONDITION"


class ResourceExhausted(AJoinError):
    default_reason = "RESOURCE_EXHAUSTED"


class Unauthenticated(AJoinError):
    default_reason = "UNAUTHENTICATED"


class PermissionDenied(AJoinError):
    default_reason = "PERMISSION_DENIED"


class Unavailable(AJoinError):
    default_reason = "UNAVAILABLE"


class InternalError(AJoinError):
    default_reason = "INTERNAL"
