"""PlanService: look at the shared plan, watch it change, steer it."""

from __future__ import annotations

import asyncio
from typing import Any

from ajoin.platform.platform import Applied, Platform, PlatformState, only
from ajoin.service.access import caller
from ajoin.service.change_signal import ChangeSignal
from ajoin.service.checks import require
from ajoin.v1 import plan_pb2 as pb
from ajoin.v1 import plan_pb2_grpc as rpc
from ajoin.wire import convert
from optimizer.errors import InvalidRequest, PermissionDenied, Unavailable
from runtime.api import Control, ForceGroups, ForceOrder, ScaleTo, SplitPartition, Unpin

MOST_PARTITIONS = 4096
MOST_WAYS = 256


class PlanService(rpc.PlanServiceServicer):
    def __init__(self, platform: Platform, changes: ChangeSignal) -> None:
        self._platform = platform
        self._changes = changes

    async def Explain(self, request: pb.ExplainRequest, context: Any) -> pb.ExplainResponse:
        subject = request.WhichOneof("subject")
        if subject is not None:
            require(subject, getattr(request, subject))
        who = caller()
        if who.tenant and subject is None:
            raise PermissionDenied(
                f"the whole plan concerns all tenants; this token belongs to tenant {who.tenant!r}",
                hint="explain a query, or a SQL text",
            )
        name = convert.enum_name(pb.PlanFormat, request.format, "PLAN_FORMAT_").lower()
        version = self._platform.plan_version
        text = await asyncio.to_thread(
            self._platform.explain,
            id=who.scope.full(request.query_id) if subject == "query_id" else None,
            sql=request.sql if subject == "sql" else None,
            format="text" if name == "unspecified" else name,
            shown=who.scope.explained if who.tenant else None,
        )
        return pb.ExplainResponse(text=text, plan_version=0 if who.tenant else version)

    async def WatchPlan(self, request: pb.WatchPlanRequest, context: Any) -> None:  # type: ignore[override]
        now = self._platform.plan_version
        version = request.after_version if request.HasField("after_version") else now
        if not 0 <= version <= now:
            raise InvalidRequest(
                f"after_version is {version}; the plan has version {now}",
                reason="BAD_PLAN_VERSION",
                hint=f"give 0 (everything) to {now}, or leave it out for what happens from now on",
            )
        while True:
            changed = self._changes.next()
            state = self._platform.state
            for event in await asyncio.to_thread(self._platform.plan_events, version):
                version = event.version
                await context.write(pb.WatchPlanResponse(change=convert.plan_event_to_pb(event)))
            if state == PlatformState.FAILED:
                raise self._platform.failure()
            if state != PlatformState.RUNNING:
                raise Unavailable("the platform is stopping", reason="STOPPING", hint=f"watch on after {version}")
            await changed.wait()

    async def Optimize(self, request: pb.OptimizeRequest, context: Any) -> pb.OptimizeResponse:
        name = convert.enum_name(pb.OptimizeMode, request.mode, "OPTIMIZE_MODE_").lower()
        mode = "full" if name == "unspecified" else name
        done = await asyncio.wrap_future(self._platform.optimize(mode, dry_run=request.dry_run))
        return convert.optimization_to_pb(done)

    async def ForceOrder(self, request: pb.ForceOrderRequest, context: Any) -> pb.ForceOrderResponse:
        require("query_id", request.query_id)
        applied = await self._control(ForceOrder(request.query_id, convert.order_from_pb(request.order)))
        return pb.ForceOrderResponse(plan_version=applied.plan_version)

    async def ForceGroups(self, request: pb.ForceGroupsRequest, context: Any) -> pb.ForceGroupsResponse:
        require("groups", request.groups)
        for id, group in request.groups.items():
            _within(f"the group of {id!r}", group, 0, 1 << 20)
        applied = await self._control(ForceGroups(tuple(sorted(request.groups.items()))))
        return pb.ForceGroupsResponse(plan_version=applied.plan_version)

    async def Scale(self, request: pb.ScaleRequest, context: Any) -> pb.ScaleResponse:
        _within("partitions", request.partitions, 1, MOST_PARTITIONS)
        applied = await self._control(ScaleTo(request.partitions))
        return pb.ScaleResponse(plan_version=applied.plan_version)

    async def SplitPartition(self, request: pb.SplitPartitionRequest, context: Any) -> pb.SplitPartitionResponse:
        _within("partition", request.partition, 0, self._platform.partitions - 1)
        _within("ways", request.ways, 1, MOST_WAYS)
        applied = await self._control(SplitPartition(request.partition, request.ways))
        return pb.SplitPartitionResponse(plan_version=applied.plan_version)

    async def Unpin(self, request: pb.UnpinRequest, context: Any) -> pb.UnpinResponse:
        applied = await self._control(Unpin(tuple(request.query_ids), request.scale))
        return pb.UnpinResponse(plan_version=applied.plan_version)

    async def _control(self, control: Control) -> Applied:
        outcomes = await asyncio.wrap_future(self._platform.control(control))
        applied: Applied = only(outcomes)
        return applied


def _within(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidRequest(
            f"{what} is {value}", reason="OUT_OF_RANGE", hint=f"give a number from {least:,} to {most:,}"
        )
