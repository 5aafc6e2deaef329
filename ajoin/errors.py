"""The errors a client can meet; the tree is drawn in optimizer.errors."""

from optimizer.errors import (
    AJoinError,
    AlreadyExists,
    FailedPrecondition,
    InternalError,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    SqlError,
    Unauthenticated,
    Unavailable,
)

__all__ = [
    "AJoinError",
    "AlreadyExists",
    "FailedPrecondition",
    "InternalError",
    "InvalidRequest",
    "NotFound",
    "PermissionDenied",
    "ResourceExhausted",
    "SqlError",
    "Unauthenticated",
    "Unavailable",
]
