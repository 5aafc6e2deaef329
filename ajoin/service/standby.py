"""What a standby answers: that it is one, and where the platform is.

It listens where it will serve after a take-over, so clients that know both addresses find it. Every call of our
services is refused with UNAVAILABLE and reason STANDBY, after the caller was let in as ever: who may not call the
platform does not learn where it is. Health says NOT_SERVING.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from ajoin.service.access import Access
from ajoin.service.boundary import Boundary
from ajoin.service.limits import ServiceLimits
from ajoin.service.listen import listen
from ajoin.service.quotas import Quotas
from ajoin.service.security import OPEN, Security
from optimizer.errors import Unavailable

SERVICES = ("Stream", "Query", "Result", "Plan", "Admin")
DEFAULT_LIMITS = ServiceLimits()
GRACE_SECONDS = 0.5
"""For whoever watches its health; no other call takes long."""


class _Refusal(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Takes every method of ours, whatever its messages are: none is read, and none is sent."""

    def __init__(self, primary: Callable[[], str]) -> None:
        self._primary = primary

    def service(self, call: grpc.HandlerCallDetails) -> Any:
        if not call.method.startswith("/ajoin."):
            return None
        return grpc.unary_unary_rpc_method_handler(self._refuse, bytes, bytes)

    async def _refuse(self, request: bytes, context: Any) -> NoReturn:
        address = self._primary()
        raise Unavailable(
            "this platform stands by" + (f"; the one that serves is at {address}" if address else ""),
            reason="STANDBY",
            hint="give the client all addresses, with commas: it goes to the one that serves",
        )


class StandbyServer:
    """In the background: `with StandbyServer(...) as server`. `primary` says where the platform is; empty: unknown."""

    def __init__(
        self,
        address: str,
        primary: Callable[[], str],
        security: Security = OPEN,
        limits: ServiceLimits = DEFAULT_LIMITS,
    ) -> None:
        security.check(address)
        self._wanted, self._primary, self._security, self._limits = address, primary, security, limits
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ajoin-standby", daemon=True)
        self.address = address

    async def _start(self) -> None:
        quotas = Quotas(self._limits.subscribers, time.monotonic)
        boundary = Boundary(Access(self._security.tokens), quotas)
        self._server = grpc.aio.server(interceptors=[boundary], options=self._limits.options)
        self._server.add_generic_rpc_handlers((_Refusal(self._primary),))
        servicer = health.aio.HealthServicer()
        for name in ("", *(f"ajoin.v1.{service}Service" for service in SERVICES)):
            await servicer.set(name, health_pb2.HealthCheckResponse.NOT_SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, self._server)
        self.address = listen(self._server, self._wanted, self._security)
        await self._server.start()

    def __enter__(self) -> StandbyServer:
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(GRACE_SECONDS), self._loop).result()
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
