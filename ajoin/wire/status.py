"""Errors on the wire: the same class, reason and fields on both sides of a call.

`CODES` is the only table. Server side, `to_rpc` turns an AJoinError into a google.rpc.Status with one
ErrorInfo (reason, domain "ajoin", metadata: hint, and line, column and token of an SqlError). Client side,
`from_rpc` turns a failed call back into the exception that was raised; a failure without an ErrorInfo of ours
never reached the platform's code (nobody listens, deadline, message too large) and gets the class its status
code stands for.

Statuses travel in HTTP/2 trailers, where 8 KiB are safe: the message once percent-encoded (three bytes for
one), and everything once more in base64. The bounds below keep the worst case under 7 KiB.
"""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from ajoin.v1 import errors_pb2
from optimizer import errors as e

DOMAIN = "ajoin"
UNREACHABLE = "UNREACHABLE"
LONGEST_TOKEN = 600
LONGEST_TEXT = 1000

CODES: dict[type[e.AJoinError], grpc.StatusCode] = {
    e.InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    e.SqlError: grpc.StatusCode.INVALID_ARGUMENT,
    e.NotFound: grpc.StatusCode.NOT_FOUND,
    e.AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    e.FailedPrecondition: grpc.StatusCode.FAILED_PRECONDITION,
    e.ResourceExhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    e.Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    e.PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    e.Unavailable: grpc.StatusCode.UNAVAILABLE,
    e.InternalError: grpc.StatusCode.INTERNAL,
}

_CLASSES: dict[int, type[e.AJoinError]] = {code.value[0]: cls for cls, code in CODES.items() if cls is not e.SqlError}
_CLASSES |= {
    grpc.StatusCode.DEADLINE_EXCEEDED.value[0]: e.Unavailable,
    grpc.StatusCode.CANCELLED.value[0]: e.Unavailable,
    grpc.StatusCode.OUT_OF_RANGE.value[0]: e.InvalidRequest,
    grpc.StatusCode.UNIMPLEMENTED.value[0]: e.FailedPrecondition,
}


def code_of(error: e.AJoinError) -> grpc.StatusCode:
    return next((CODES[cls] for cls in type(error).__mro__ if cls in CODES), grpc.StatusCode.INTERNAL)


def to_rpc(error: e.AJoinError) -> status_pb2.Status:
    metadata = {"hint": _cut(error.hint)} if error.hint else {}
    if isinstance(error, e.SqlError):
        place = {
            "line": str(error.line),
            "column": str(error.column),
            "token": _cut(error.token, LONGEST_TOKEN),
        }
        metadata |= place
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata)
    detail = any_pb2.Any()
    detail.Pack(info)
    return status_pb2.Status(code=code_of(error).value[0], message=_cut(error.message), details=[detail])


def from_rpc(failure: Any, target: str = "") -> e.AJoinError:
    """The exception behind a failed call: `failure` is the grpc.RpcError of either kind of client."""
    status = _status_of(failure)
    if status is not None:
        for detail in status.details:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info) and info.domain == DOMAIN:
                return _rebuild(status.code, status.message, info)
    return _transport_error(failure, target)


def to_detail(error: e.AJoinError) -> errors_pb2.ErrorDetail:
    detail = errors_pb2.ErrorDetail(
        status_code=code_of(error).value[0],
        reason=error.reason,
        message=_cut(error.message),
        hint=_cut(error.hint),
    )
    if isinstance(error, e.SqlError):
        detail.position.line = error.line
        detail.position.column = error.column
        detail.position.token = _cut(error.token, LONGEST_TOKEN)
    return detail


def from_detail(detail: errors_pb2.ErrorDetail) -> e.AJoinError:
    if detail.HasField("position"):
        at = detail.position
        return e.SqlError(
            detail.message,
            reason=detail.reason,
            hint=detail.hint,
            line=at.line,
            column=at.column,
            token=at.token,
        )
    cls = _CLASSES.get(detail.status_code, e.InternalError)
    return cls(detail.message, reason=detail.reason, hint=detail.hint)


def _rebuild(code: int, message: str, info: Any) -> e.AJoinError:
    fields = info.metadata
    hint = fields.get("hint", "")
    if "line" in fields:
        return e.SqlError(
            message,
            reason=info.reason,
            hint=hint,
            line=int(fields["line"]),
            column=int(fields["column"]),
            token=fields["token"],
        )
    return _CLASSES.get(code, e.InternalError)(message, reason=info.reason, hint=hint)


def _status_of(failure: Any) -> Any:
    try:
        return rpc_status.from_call(failure)
    except (ValueError, AttributeError):
        return None


def _transport_error(failure: Any, target: str) -> e.AJoinError:
    code = failure.code()
    details = failure.details() or ""
    if code == grpc.StatusCode.UNAVAILABLE and "handshake failed" in details.lower():
        return e.Unavailable(
            f"no TLS connection to {target}: {details.rpartition('OPENSSL_internal:')[2]}",
            reason="TLS_FAILED",
            hint="check that the platform speaks TLS and that tls_ca is the authority that signed its certificate",
        )
    if code == grpc.StatusCode.UNAVAILABLE:
        closed = "Socket closed" in details
        return e.Unavailable(
            f"no platform answers at {target}" if target else f"no platform answers: {details}",
            reason=UNREACHABLE,
            hint="it hangs up: it may ask for TLS (tls_ca) or for a client certificate (client_cert, client_key)"
            if closed
            else "start one with `ajoin serve`, or check the address",
        )
    if code == grpc.StatusCode.CANCELLED:
        return e.Unavailable(
            "the call was cut off before it ended",
            reason="CANCELLED",
            hint="the platform may be stopping; try again, a subscription with its last cursor",
        )
    cls = _CLASSES.get(code.value[0], e.InternalError)
    return cls(details or f"the call ended with {code.name}", reason=code.name)


def _cut(text: str, longest: int = LONGEST_TEXT) -> str:
    """At most so many bytes of UTF-8."""
    encoded = text.encode()
    return text if len(encoded) <= longest else encoded[: longest - 3].decode(errors="ignore") + "…"
