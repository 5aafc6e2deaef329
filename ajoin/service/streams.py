"""StreamService: declare, look at, move back and delete streams."""

from __future__ import annotations

import asyncio
from typing import Any

from ajoin.platform.platform import Platform
from ajoin.service.access import caller
from ajoin.service.checks import clamp, require
from ajoin.service.idempotency import IdempotencyCache
from ajoin.v1 import streams_pb2 as pb
from ajoin.v1 import streams_pb2_grpc as rpc
from ajoin.wire import convert
from runtime.api import StreamInfo


class StreamService(rpc.StreamServiceServicer):
    def __init__(self, platform: Platform, idempotency: IdempotencyCache) -> None:
        self._platform = platform
        self._idempotency = idempotency

    async def CreateStream(self, request: pb.CreateStreamRequest, context: Any) -> pb.CreateStreamResponse:
        async def run() -> pb.CreateStreamResponse:
            schema, source = convert.schema_from_pb(request.spec)
            who = caller()
            future = await asyncio.to_thread(
                self._platform.create_stream, schema, source, who.tenant, who.quota.streams
            )
            return pb.CreateStreamResponse(stream=_shown(await asyncio.wrap_future(future)))

        return await self._idempotency.once(request, run, caller().tenant)

    async def ListStreams(self, request: pb.ListStreamsRequest, context: Any) -> pb.ListStreamsResponse:
        streams = await asyncio.to_thread(self._platform.streams)
        return pb.ListStreamsResponse(streams=map(_shown, streams))

    async def GetStream(self, request: pb.GetStreamRequest, context: Any) -> pb.GetStreamResponse:
        require("name", request.name)
        return pb.GetStreamResponse(stream=_shown(self._platform.stream(request.name)))

    async def DeleteStream(self, request: pb.DeleteStreamRequest, context: Any) -> pb.DeleteStreamResponse:
        async def run() -> pb.DeleteStreamResponse:
            require("name", request.name)
            await asyncio.wrap_future(self._platform.delete_stream(request.name))
            return pb.DeleteStreamResponse()

        return await self._idempotency.once(request, run, caller().tenant)

    async def ResetWatermark(self, request: pb.ResetWatermarkRequest, context: Any) -> pb.ResetWatermarkResponse:
        async def run() -> pb.ResetWatermarkResponse:
            require("name", request.name)
            require("watermark_ms", request.HasField("watermark_ms"))
            info = await asyncio.wrap_future(self._platform.reset_watermark(request.name, request.watermark_ms))
            return pb.ResetWatermarkResponse(stream=_shown(info))

        return await self._idempotency.once(request, run, caller().tenant)

    async def RestartStream(self, request: pb.RestartStreamRequest, context: Any) -> pb.RestartStreamResponse:
        async def run() -> pb.RestartStreamResponse:
            require("name", request.name)
            info = await asyncio.wrap_future(self._platform.restart_stream(request.name, request.offset or None))
            return pb.RestartStreamResponse(stream=_shown(info))

        return await self._idempotency.once(request, run, caller().tenant)

    async def ListDeadLetters(self, request: pb.ListDeadLettersRequest, context: Any) -> pb.ListDeadLettersResponse:
        require("name", request.name)
        limit = clamp("limit", request.limit, default=100, most=1000)
        letters = await asyncio.to_thread(self._platform.dead_letters, request.name, limit)
        return pb.ListDeadLettersResponse(dead_letters=map(convert.dead_letter_to_pb, letters))


def _shown(info: StreamInfo) -> pb.Stream:
    return convert.stream_to_pb(caller().scope.stream(info))
