"""Status and statistics of the platform."""

from __future__ import annotations

from ajoin.platform.statistics import EpochSummary, QueryStatistics, Statistics, StreamStatistics
from ajoin.v1 import admin_pb2
from ajoin.wire.convert.fields import enum_name, fields_of, from_fields
from runtime.api import PlatformStatus


def status_to_pb(status: PlatformStatus, version: str) -> admin_pb2.GetStatusResponse:
    state = admin_pb2.PlatformState.Value(f"PLATFORM_STATE_{status.state}")
    return admin_pb2.GetStatusResponse(state=state, version=version, **fields_of(status, "state"))


def status_from_pb(message: admin_pb2.GetStatusResponse) -> PlatformStatus:
    state = enum_name(admin_pb2.PlatformState, message.state, "PLATFORM_STATE_")
    return from_fields(PlatformStatus, message, state=state)


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
