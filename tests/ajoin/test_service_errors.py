"""Errors cross the wire and come back as the same class with the same fields."""

from __future__ import annotations

import grpc
import pytest

from ajoin import errors
from ajoin.wire import status

EVERY_LEAF = [
    errors.InvalidRequest("bad", reason="INVALID_NAME", hint="use letters"),
    errors.SqlError("no such column", reason="UNKNOWN_COLUMN", hint="did you mean vID?", line=2, column=7, token="vId"),
    errors.SqlError("somewhere"),
    errors.NotFound("no query 'q'", reason="QUERY_NOT_FOUND"),
    errors.AlreadyExists("taken"),
    errors.FailedPrecondition("in use", reason="STREAM_IN_USE", hint="delete the queries"),
    errors.ResourceExhausted("full"),
    errors.Unauthenticated("who are you?", hint="give a token"),
    errors.PermissionDenied("not yours"),
    errors.Unavailable("stopping", reason="STOPPING"),
    errors.InternalError("oops"),
]


class Failed(grpc.RpcError):
    """A failed call as a client sees it."""

    def __init__(self, rpc_status) -> None:
        self._status = rpc_status

    def code(self):
        return next(c for c in grpc.StatusCode if c.value[0] == self._status.code)

    def details(self):
        return self._status.message

    def trailing_metadata(self):
        return [("grpc-status-details-bin", self._status.SerializeToString())] if self._status.details else []


def fields(error: errors.AJoinError) -> dict:
    return {"class": type(error), "text": str(error), **vars(error)}


@pytest.mark.parametrize("error", EVERY_LEAF, ids=lambda e: f"{type(e).__name__}-{e.reason}")
def test_round_trip_as_status(error):
    assert fields(status.from_rpc(Failed(status.to_rpc(error)))) == fields(error)


@pytest.mark.parametrize("error", EVERY_LEAF, ids=lambda e: f"{type(e).__name__}-{e.reason}")
def test_round_trip_as_item_of_a_batch(error):
    assert fields(status.from_detail(status.to_detail(error))) == fields(error)


def test_every_class_of_the_tree_has_a_code():
    leaves = {c for c in vars(errors).values() if isinstance(c, type) and c is not errors.AJoinError}
    assert set(status.CODES) == leaves


def test_an_unknown_subclass_has_the_code_of_its_parent():
    class Special(errors.NotFound):
        pass

    assert status.code_of(Special("x")) == grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("letter", ["a", "ä", "語", "𝄞"])
def test_long_texts_fit_into_trailers(letter):
    long = letter * 100_000
    sent = status.to_rpc(errors.SqlError(long, hint=long, line=1, column=1, token=long))
    percent_encoded = 3 * len(sent.message.encode())
    assert percent_encoded + len(sent.SerializeToString()) * 4 / 3 < 8192
    back = status.from_rpc(Failed(sent))
    assert back.message.startswith(letter) and back.message.endswith("…")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (grpc.StatusCode.UNAVAILABLE, (errors.Unavailable, "UNREACHABLE")),
        (grpc.StatusCode.DEADLINE_EXCEEDED, (errors.Unavailable, "DEADLINE_EXCEEDED")),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, (errors.ResourceExhausted, "RESOURCE_EXHAUSTED")),
        (grpc.StatusCode.UNKNOWN, (errors.InternalError, "UNKNOWN")),
    ],
)
def test_failures_below_the_platform(code, expected):
    from google.rpc import status_pb2

    error = status.from_rpc(Failed(status_pb2.Status(code=code.value[0], message="transport")), "host:1")
    assert (type(error), error.reason) == expected
