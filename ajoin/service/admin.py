"""AdminService: status and statistics."""

from __future__ import annotations

import asyncio
from importlib import metadata
from typing import Any

from ajoin.platform.platform import Platform
from ajoin.platform.statistics import KEPT
from ajoin.service.access import caller
from ajoin.service.checks import clamp
from ajoin.v1 import admin_pb2 as pb
from ajoin.v1 import admin_pb2_grpc as rpc
from ajoin.wire import convert


class AdminService(rpc.AdminServiceServicer):
    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._version = metadata.version("ajoin")

    async def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.GetStatusResponse:
        status = await asyncio.to_thread(self._platform.status)
        queries = await asyncio.to_thread(self._platform.queries)
        return convert.status_to_pb(caller().scope.status(status, queries), self._version)

    async def GetStatistics(self, request: pb.GetStatisticsRequest, context: Any) -> pb.GetStatisticsResponse:
        epochs = clamp("epochs", request.epochs, default=KEPT, most=KEPT)
        statistics = await asyncio.to_thread(self._platform.statistics, epochs)
        return convert.statistics_to_pb(caller().scope.statistics(statistics))
