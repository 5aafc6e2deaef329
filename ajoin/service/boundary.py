"""The boundary of the service: an interceptor around every call lets callers in, within their quotas, and turns
exceptions into statuses.

An AJoinError becomes the status `ajoin.wire.status` says. Anything else is a bug: the caller gets INTERNAL with a
short id, and the log has the traceback under the same id, so a report can be matched with the log without
showing internals to the caller. What else a tenant must not read in an error is replaced in the same way (`hidden`).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError
from grpc_status import rpc_status

from ajoin.service.access import Access
from ajoin.service.quotas import Quotas
from ajoin.service.tokens import Caller
from ajoin.wire import status
from optimizer.errors import AJoinError, InternalError, InvalidRequest

log = logging.getLogger("ajoin.service")

NOBODY = Caller()
"""A caller that was not let in is told why, and that concerns no tenant."""


def short_id() -> str:
    return uuid.uuid4().hex[:8]


def _reading(
    deserialize: Callable[[bytes], Any], inner: Callable[[Any, Any], Awaitable[Any]], method: str
) -> Callable[[Any, Any], Awaitable[Any]]:
    """`inner` for the bytes of a request: they are read inside the boundary, after the caller was let in, so that bytes
    that are no message are refused like any other bad request."""

    async def read(data: bytes, context: Any) -> Any:
        try:
            request = deserialize(data)
        except DecodeError:
            raise InvalidRequest(
                f"the {len(data):,} bytes sent to {method} are not the message that it takes",
                reason="BAD_MESSAGE",
                hint="use a client that is generated from the same interface, package ajoin.v1",
            ) from None
        return await inner(request, context)

    return read


def hidden(failure: AJoinError, who: Caller, method: str, id: str = "") -> AJoinError:
    """The error as this caller may see it; if that is less than there is, the log has the rest."""
    id = id or short_id()
    shown = who.scope.error(failure, id)
    if shown is not failure:
        log.error("error %s in %s: %s", id, method, failure, extra={"error_id": id, "method": method})
    return shown


class Boundary(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    def __init__(self, access: Access, quotas: Quotas, new_id: Callable[[], str] = short_id) -> None:
        self._access = access
        self._quotas = quotas
        self._new_id = new_id

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], call: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(call)
        if handler is None or not call.method.startswith("/ajoin."):
            return handler
        make, inner = (
            (grpc.unary_stream_rpc_method_handler, handler.unary_stream)
            if handler.response_streaming
            else (grpc.unary_unary_rpc_method_handler, handler.unary_unary)
        )
        guard = self._stream if handler.response_streaming else self._unary
        read = _reading(handler.request_deserializer, inner, call.method)
        return make(guard(read, call.method), None, handler.response_serializer)

    def _unary(self, inner: Callable[[Any, Any], Awaitable[Any]], method: str) -> Callable[[Any, Any], Any]:
        async def guarded(request: Any, context: Any) -> Any:
            who = NOBODY
            try:
                who = self._access.admit(method, context.invocation_metadata())
                self._quotas.count_call(who)
                return await inner(request, context)
            except Exception as failure:
                await self._end(context, failure, method, who)

        return guarded

    def _stream(self, inner: Callable[[Any, Any], Awaitable[None]], method: str) -> Callable[[Any, Any], Any]:
        """`inner` writes to the context by itself, because it has to know when a write takes long."""

        async def guarded(request: Any, context: Any) -> None:
            who = NOBODY
            with ExitStack() as open:
                try:
                    who = self._access.admit(method, context.invocation_metadata())
                    self._quotas.count_call(who)
                    open.enter_context(self._quotas.subscription(who))
                    await inner(request, context)
                except Exception as failure:
                    await self._end(context, failure, method, who)

        return guarded

    async def _end(self, context: Any, failure: Exception, method: str, who: Caller) -> NoReturn:
        if not isinstance(failure, AJoinError):
            id = self._new_id()
            log.error("error %s in %s", id, method, exc_info=failure, extra={"error_id": id, "method": method})
            failure = InternalError(
                f"an unexpected error happened (id {id})", hint=f"the server's log says more under {id}"
            )
        shown = hidden(failure, who, method)
        # A client that does not read holds this up for as long as it likes; nothing large may wait here with it.
        failure.__traceback__ = None
        await context.abort_with_status(rpc_status.to_status(status.to_rpc(shown)))
        raise AssertionError("abort_with_status raises")
