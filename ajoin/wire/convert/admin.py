"""Status and statistics of the platform."""

from __future__ import annotations

from ajoin.platform.statistics import EpochSummary, QueryStatistics, Statistics, StreamStatistics
from ajoin.v1 import admin_pb2
from ajoin.wire.convert.fields import enum_name, fields_of, from_fields
from ajoin.wire.convert.queries import sink_status_from_pb, sink_status_to_pb
from runtime.api import ExecutorStatus, PlatformStatus, RunningSetting


def status_to_pb(status: PlatformStatus, version: str) -> admin_pb2.GetStatusResponse:
    state = admin_pb2.PlatformState.Value(f"PLATFORM_STATE_{status.state}")
    sinks = map(sink_status_to_pb, status.sinks_behind)
    executors = [admin_pb2.ExecutorStatus(**fields_of(told)) for told in status.executors]
    others = fields_of(status, "state", "sinks_behind", "executors")
    return admin_pb2.GetStatusResponse(state=state, version=version, sinks_behind=sinks, executors=executors, **others)


def status_from_pb(message: admin_pb2.GetStatusResponse) -> PlatformStatus:
    state = enum_name(admin_pb2.PlatformState, message.state, "PLATFORM_STATE_")
    sinks = tuple(map(sink_status_from_pb, message.sinks_behind))
    executors = tuple(from_fields(ExecutorStatus, told) for told in message.executors)
    return from_fields(PlatformStatus, message, state=state, sinks_behind=sinks, executors=executors)


def statistics_to_pb(statistics: Statistics) -> admin_pb2.GetStatisticsResponse:
    return admin_pb2.GetStatisticsResponse(
        epochs=[admin_pb2.EpochStatistics(**fields_of(s)) for s in statistics.epochs],
        streams=[admin_pb2.StreamStatistics(**fields_of(s)) for s in statistics.streams],
        queries=[admin_pb2.QueryStatistics(query_id=s.id, **fields_of(s, "id")) for s in statistics.queries],
    )


def statistics_from_pb(message: admin_pb2.GetStatisticsResponse) -> Statistics:
    return Statistics(
        tuple(from_fields(EpochSummary, m) for m in message.epochs),
        tuple(from_fields(StreamStatistics, m) for m in message.streams),
        tuple(from_fields(QueryStatistics, m, id=m.query_id) for m in message.queries),
    )


def setting_to_pb(setting: RunningSetting) -> admin_pb2.RunningSetting:
    return admin_pb2.RunningSetting(**fields_of(setting))


def setting_from_pb(message: admin_pb2.RunningSetting) -> RunningSetting:
    return from_fields(RunningSetting, message)
