"""Streams, their columns, connectors and dead letters."""

from __future__ import annotations

from ajoin.v1 import streams_pb2
from ajoin.wire.convert.fields import fields_of, from_fields, optional
from optimizer.errors import InvalidRequest
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import DeadLetterInfo, StreamInfo
from runtime.connectors.base import ConnectorSpec


def connector_to_pb(spec: ConnectorSpec) -> streams_pb2.Connector:
    return streams_pb2.Connector(kind=spec.kind, options=dict(spec.options))


def connector_from_pb(message: streams_pb2.Connector) -> ConnectorSpec:
    return ConnectorSpec(message.kind, tuple(sorted(message.options.items())))


def schema_to_pb(schema: StreamSchema, source: ConnectorSpec) -> streams_pb2.StreamSpec:
    return streams_pb2.StreamSpec(
        name=schema.name,
        columns=[
            streams_pb2.Column(name=c.name, type=streams_pb2.ColumnType.Value(f"COLUMN_TYPE_{c.type}"))
            for c in schema.columns
        ],
        time_column=schema.time,
        source=connector_to_pb(source),
        watermark_delay_ms=schema.watermark_delay_ms,
        allowed_lateness_ms=schema.allowed_lateness_ms,
        idle_timeout_ms=schema.idle_timeout_ms,
        max_ahead_ms=schema.max_ahead_ms,
        max_jump_ms=schema.max_jump_ms,
    )


def schema_from_pb(spec: streams_pb2.StreamSpec) -> tuple[StreamSchema, ConnectorSpec]:
    columns = tuple(Column(c.name, _column_type(c)) for c in spec.columns)
    schema = StreamSchema(
        spec.name,
        columns,
        spec.time_column,
        spec.watermark_delay_ms,
        spec.allowed_lateness_ms,
        optional(spec, "idle_timeout_ms"),
        max_ahead_ms=optional(spec, "max_ahead_ms"),
        max_jump_ms=optional(spec, "max_jump_ms"),
    )
    return schema, connector_from_pb(spec.source)


def _column_type(column: streams_pb2.Column) -> ColumnType:
    known = {n: k.removeprefix("COLUMN_TYPE_") for k, n in streams_pb2.ColumnType.items() if n}
    if column.type not in known:
        raise InvalidRequest(
            f"column {column.name!r} has no known type ({column.type})",
            reason="UNKNOWN_COLUMN_TYPE",
            hint="types are: " + ", ".join(known.values()),
        )
    return ColumnType(known[column.type])


def stream_to_pb(info: StreamInfo) -> streams_pb2.Stream:
    return streams_pb2.Stream(
        spec=schema_to_pb(info.schema, info.source),
        tuples=info.tuples,
        late_dropped=info.late_dropped,
        dead_letters=info.dead_letter,
        watermark_ms=info.watermark,
        max_event_time_ms=info.max_event_time,
        query_ids=info.queries,
        backlog=info.backlog,
        backlog_unit=info.backlog_unit,
        throttled=info.throttled,
        lag_ms=info.lag_ms,
        latency_ms=info.latency_ms,
    )


def stream_from_pb(message: streams_pb2.Stream) -> StreamInfo:
    schema, source = schema_from_pb(message.spec)
    return StreamInfo(
        schema,
        source,
        message.tuples,
        message.late_dropped,
        message.dead_letters,
        optional(message, "watermark_ms"),
        optional(message, "max_event_time_ms"),
        tuple(message.query_ids),
        message.backlog,
        message.backlog_unit,
        message.throttled,
        optional(message, "lag_ms"),
        optional(message, "latency_ms"),
    )


def dead_letter_to_pb(info: DeadLetterInfo) -> streams_pb2.DeadLetter:
    return streams_pb2.DeadLetter(**fields_of(info, "stream"))


def dead_letter_from_pb(stream: str, message: streams_pb2.DeadLetter) -> DeadLetterInfo:
    return from_fields(DeadLetterInfo, message, stream=stream)
