"""AdminService: status, statistics, settings of the running platform."""

from __future__ import annotations

import asyncio
from importlib import metadata
from typing import Any

from ajoin.platform.platform import Platform
from ajoin.platform.settings import change_setting, running_settings
from ajoin.platform.statistics import KEPT
from ajoin.service.access import caller
from ajoin.service.checks import clamp, require
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

    async def ListSettings(self, request: pb.ListSettingsRequest, context: Any) -> pb.ListSettingsResponse:
        return pb.ListSettingsResponse(settings=map(convert.setting_to_pb, running_settings(self._platform)))

    async def SetSetting(self, request: pb.SetSettingRequest, context: Any) -> pb.SetSettingResponse:
        require("name", request.name)
        text = request.value if request.HasField("value") else None
        setting = await change_setting(self._platform, request.name, text)
        return pb.SetSettingResponse(setting=convert.setting_to_pb(setting))
