"""The boundary of the service: an interceptor around every call lets callers in and turns exceptions into statuses.

An AJoinError becomes the status `ajoin.wire.status` says. Anything else is a bug: the caller gets INTERNAL with a
short id, and the log has the traceback under the same id, so a report can be matched with the log without
showing internals to the caller.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn

import grpc
from grpc_status import rpc_status

from ajoin.service.access import Access
from ajoin.wire import status
from optimizer.errors import AJoinError, InternalError

log = logging.getLogger("ajoin.service")


def short_id() -> str:
    return uuid.uuid4().hex[:8]


class Boundary(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    def __init__(self, access: Access, new_id: Callable[[], str] = short_id) -> None:
        self._access = access
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
        return make(guard(inner, call.method), handler.request_deserializer, handler.response_serializer)

    def _unary(self, inner: Callable[[Any, Any], Awaitable[Any]], method: str) -> Callable[[Any, Any], Any]:
        async def guarded(request: Any, context: Any) -> Any:
            try:
                self._access.admit(method, context.invocation_metadata())
                return await inner(request, context)
            except Exception as failure:
                await self._end(context, failure, method)

        return guarded

    def _stream(self, inner: Callable[[Any, Any], AsyncIterator[Any]], method: str) -> Callable[[Any, Any], Any]:
        async def guarded(request: Any, context: Any) -> AsyncIterator[Any]:
            try:
                self._access.admit(method, context.invocation_metadata())
                async for item in inner(request, context):
                    yield item
            except Exception as failure:
                await self._end(context, failure, method)

        return guarded

    async def _end(self, context: Any, failure: Exception, method: str) -> NoReturn:
        if not isinstance(failure, AJoinError):
            id = self._new_id()
            log.error("error %s in %s", id, method, exc_info=failure, extra={"error_id": id, "method": method})
            failure = InternalError(
                f"an unexpected error happened (id {id})", hint=f"the server's log says more under {id}"
            )
        await context.abort_with_status(rpc_status.to_status(status.to_rpc(failure)))
        raise AssertionError("abort_with_status raises")
