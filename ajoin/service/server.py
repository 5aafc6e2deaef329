"""The server's life: listen, say so, end without losing anything.

`Server` is the grpc.aio server with our services, health and reflection; it lives on one event loop. `serve`
runs it in the foreground until SIGTERM or SIGINT (the CLI), `ServerThread` in the background of another
program (demo, tests).

The end: health says NOT_SERVING and no new call is accepted; the platform answers what waits, finishes its
epoch and closes the engine; subscribers are told to reconnect later; then the server goes. Health follows the
platform: it is SERVING exactly while epochs run, so health checks see a failed engine. A platform that has failed goes
on answering reads until it is told to stop; one that was replaced by another ends by itself.

Only one server may own an address: port sharing between processes is switched off, because two platforms that
answer alternately are worse than one clear error.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from types import TracebackType

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from ajoin.platform.platform import Platform, PlatformState
from ajoin.service.access import Access
from ajoin.service.admin import AdminService
from ajoin.service.boundary import Boundary
from ajoin.service.change_signal import ChangeSignal
from ajoin.service.idempotency import IdempotencyCache
from ajoin.service.in_flight import InFlight
from ajoin.service.limits import ServiceLimits
from ajoin.service.listen import listen
from ajoin.service.plan import PlanService
from ajoin.service.queries import QueryService
from ajoin.service.quotas import Quotas
from ajoin.service.results import ResultService
from ajoin.service.security import OPEN, Security
from ajoin.service.streams import StreamService
from ajoin.v1 import admin_pb2, plan_pb2, queries_pb2, results_pb2, streams_pb2
from ajoin.v1 import admin_pb2_grpc as admin_rpc
from ajoin.v1 import plan_pb2_grpc as plan_rpc
from ajoin.v1 import queries_pb2_grpc as queries_rpc
from ajoin.v1 import results_pb2_grpc as results_rpc
from ajoin.v1 import streams_pb2_grpc as streams_rpc
from optimizer.errors import FailedPrecondition

DEFAULT_ADDRESS = "127.0.0.1:7411"
DEFAULT_LIMITS = ServiceLimits()
GRACE_SECONDS = 5.0

SERVICES = tuple(
    service.full_name
    for file in (streams_pb2, queries_pb2, results_pb2, plan_pb2, admin_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
)


class Server:
    """Owned by one event loop; `platform` must be started by the caller and is stopped by `stop`."""

    def __init__(
        self,
        platform: Platform,
        address: str = DEFAULT_ADDRESS,
        security: Security = OPEN,
        limits: ServiceLimits = DEFAULT_LIMITS,
    ) -> None:
        security.check(address)
        self._platform = platform
        self._security = security
        self._limits = limits
        self._wanted = address
        self.address = address

    async def start(self) -> str:
        """Listen; returns the address (port 0 becomes the port that was chosen)."""
        quotas = Quotas(self._limits.subscribers, time.monotonic)
        self._server = grpc.aio.server(
            interceptors=[Boundary(Access(self._security.tokens), quotas)],
            options=self._limits.options,
        )
        self._changes = ChangeSignal(self._platform)
        self._health = health.aio.HealthServicer()
        self._add_services()
        try:
            self.address = listen(self._server, self._wanted, self._security)
        except FailedPrecondition:
            self._queries.close()
            self._changes.close()
            raise
        await self._server.start()
        self._watcher = asyncio.create_task(self._follow_health())
        return self.address

    async def stop(self, grace: float = GRACE_SECONDS) -> None:
        self._watcher.cancel()
        await self._health.enter_graceful_shutdown()
        closing = asyncio.create_task(self._server.stop(grace))
        await asyncio.to_thread(self._platform.stop)
        await closing
        self._queries.close()
        self._changes.close()

    def _add_services(self) -> None:
        idempotency = IdempotencyCache(bytes=self._limits.answer_bytes)
        in_flight = InFlight(self._limits.subscriber_bytes, time.monotonic)
        results = ResultService(self._platform, self._changes, in_flight)
        streams_rpc.add_StreamServiceServicer_to_server(StreamService(self._platform, idempotency), self._server)
        self._queries = QueryService(self._platform, idempotency)
        queries_rpc.add_QueryServiceServicer_to_server(self._queries, self._server)
        results_rpc.add_ResultServiceServicer_to_server(results, self._server)
        plan_rpc.add_PlanServiceServicer_to_server(PlanService(self._platform, self._changes), self._server)
        admin_rpc.add_AdminServiceServicer_to_server(AdminService(self._platform), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    async def _follow_health(self) -> None:
        codes = health_pb2.HealthCheckResponse
        while True:
            changed = self._changes.next()
            code = codes.SERVING if self._platform.state == PlatformState.RUNNING else codes.NOT_SERVING
            for name in ("", *SERVICES):
                await self._health.set(name, code)
            await changed.wait()


def serve(
    platform: Platform,
    address: str = DEFAULT_ADDRESS,
    on_ready: Callable[[str], None] | None = None,
    security: Security = OPEN,
    limits: ServiceLimits = DEFAULT_LIMITS,
) -> None:
    """Serve until SIGTERM or SIGINT, or until another platform has taken over, then end gracefully. Only on the main
    thread."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        try:
            server = Server(platform, address, security, limits)
            bound = await server.start()
        except BaseException:
            await asyncio.to_thread(platform.stop)
            raise
        if on_ready is not None:
            on_ready(bound)

        def look() -> None:
            if platform.is_taken:
                loop.call_soon_threadsafe(ended.set)

        unlisten = platform.add_listener(look)
        look()
        await ended.wait()
        unlisten()
        await server.stop()

    asyncio.run(run())


class ServerThread:
    """A server in the background: `with ServerThread(platform) as server: Client(server.address)`."""

    def __init__(
        self,
        platform: Platform,
        address: str = "127.0.0.1:0",
        security: Security = OPEN,
        limits: ServiceLimits = DEFAULT_LIMITS,
    ) -> None:
        self._server = Server(platform, address, security, limits)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ajoin-server", daemon=True)

    @property
    def address(self) -> str:
        return self._server.address

    def start(self) -> ServerThread:
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result()
        except BaseException:
            self._end_loop()
            raise
        return self

    def stop(self, grace: float = GRACE_SECONDS) -> None:
        """Stops the platform as well."""
        asyncio.run_coroutine_threadsafe(self._server.stop(grace), self._loop).result()
        self._end_loop()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> ServerThread:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
