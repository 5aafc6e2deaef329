"""Status and statistics of the platform."""

from __future__ import annotations

from ajoin.platform.statistics import EpochSummary, QueryStatistics, Statistics, StreamStatistics
from ajoin.v1 import admin_pb2
from ajoin.wire.convert.fields import enum_name, fields_of, optional
from runtime.api import PlatformStatus

_STATUS_FIELDS = tuple(name for name in PlatformStatus.__dataclass_fields__ if name != "state")


def status_to_pb(status: PlatformStatus, version: str) -> admin_pb2.GetStatusResponse:
    return admin_pb2.GetStatusResponse(
        state=admin_pb2.PlatformState.Value(f"PLATFORM_STATE_{status.state}"),
        version=version,
        **{name: getattr(status, name) for name in _STATUS_FIELDS},
    )


def status_from_pb(message: admin_pb2.GetStatusResponse) -> PlatformStatus:
    fields = {name: getattr(message, name) for name in _STATUS_FIELDS} | {
        "stage_seconds": dict(message.stage_seconds),
        "backlog": dict(message.backlog),
        "throttled": tuple(message.throttled),
        "lag_ms": optional(message, "lag_ms"),
    }
    return PlatformStatus(state=enum_name(admin_pb2.PlatformState, message.state, "PLATFORM_STATE_"), **fields)


def statistics_to_pb(statistics: Statistics) -> admin_pb2.GetStatisticsResponse:
    return admin_pb2.GetStatisticsResponse(
        epochs=[admin_pb2.EpochStatistics(**fields_of(s)) for s in statistics.epochs],
        streams=[admin_pb2.StreamStatistics(**fields_of(s)) for s in statistics.streams],
        queries=[
            admin_pb2.QueryStatistics(
                query_id=s.id,
                rows=s.rows,
                rows_per_second=s.rows_per_second,
                watermark_lag_ms=s.watermark_lag_ms,
            )
            for s in statistics.queries
        ],
    )


def statistics_from_pb(message: admin_pb2.GetStatisticsResponse) -> Statistics:
    return Statistics(
        tuple(
            EpochSummary(
                m.epoch,
                m.committed_at_ms,
                m.tuples,
                m.rows,
                dict(m.stage_seconds),
                m.latency_seconds,
                tuple(m.throttled),
            )
            for m in message.epochs
        ),
        tuple(
            StreamStatistics(
                m.name,
                m.tuples,
                m.tuples_per_second,
                m.late_dropped,
                m.dead_letters,
                m.backlog,
                m.backlog_unit,
                m.throttled,
                optional(m, "lag_ms"),
            )
            for m in message.streams
        ),
        tuple(
            QueryStatistics(m.query_id, m.rows, m.rows_per_second, optional(m, "watermark_lag_ms"))
            for m in message.queries
        ),
    )
