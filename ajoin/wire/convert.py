"""Between messages and values: every conversion of the API, once, for the server and both clients.

Values are the frozen dataclasses of runtime.api, so the CLI prints the same thing whether it talks to a
server or to an embedded platform. `x_to_pb` and `x_from_pb` are inverses, except that a message may hold what
no value can (an unknown enum number, a missing spec); then `x_from_pb` raises InvalidRequest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa

from ajoin.client.results import Batch, Cursor, Progress
from ajoin.platform.statistics import EpochStatistics, QueryStatistics, Statistics, StreamStatistics
from ajoin.v1 import admin_pb2, plan_pb2, queries_pb2, results_pb2, streams_pb2
from optimizer.errors import InvalidRequest
from optimizer.model.types import Column, ColumnType, StreamSchema
from runtime.api import (
    DeadLetterInfo,
    Optimization,
    PlanEvent,
    PlatformStatus,
    QueryInfo,
    QueryState,
    SinkStatus,
    StreamInfo,
)
from runtime.connectors.base import ConnectorSpec

DEEPEST_ORDER = 32


def enum_name(enum: Any, number: int, prefix: str) -> str:
    """The name of an enum number without its prefix; an unknown number is refused."""
    try:
        return str(enum.Name(number)).removeprefix(prefix)
    except ValueError:
        raise InvalidRequest(
            f"{number} is no {prefix.rstrip('_')}",
            reason="UNKNOWN_ENUM_VALUE",
            hint="known are: " + ", ".join(f"{v} ({k.removeprefix(prefix)})" for k, v in enum.items()),
        ) from None


def optional(message: Any, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


# -- connectors and streams --------------------------------------------------------------------------------


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
    )


def dead_letter_to_pb(info: DeadLetterInfo) -> streams_pb2.DeadLetter:
    return streams_pb2.DeadLetter(epoch=info.epoch, place=info.place, reason=info.reason, text=info.text)


def dead_letter_from_pb(stream: str, message: streams_pb2.DeadLetter) -> DeadLetterInfo:
    return DeadLetterInfo(stream, message.epoch, message.place, message.reason, message.text)


# -- queries -----------------------------------------------------------------------------------------------


def query_state_to_pb(state: QueryState) -> Any:
    return queries_pb2.QueryState.Value(f"QUERY_STATE_{state}")


def query_state_from_pb(number: int) -> QueryState | None:
    """None for unspecified."""
    name = enum_name(queries_pb2.QueryState, number, "QUERY_STATE_")
    return None if name == "UNSPECIFIED" else QueryState(name)


def query_to_pb(info: QueryInfo) -> queries_pb2.Query:
    return queries_pb2.Query(
        query_id=info.id,
        uid=info.uid,
        sql=info.sql,
        state=query_state_to_pb(info.state),
        active_from_ms=info.active_from,
        active_until_ms=info.active_until,
        watermark_ms=info.watermark,
        rows=info.rows,
        plan_version=info.plan_version,
        epoch=info.epoch,
        group=info.group,
        outputs=info.outputs,
        sinks=map(connector_to_pb, info.sinks),
        created_at_ms=info.created_at_ms,
        deployment_latency_ms=info.deployment_latency_ms,
        deliveries=map(sink_status_to_pb, info.deliveries),
    )


def query_from_pb(message: queries_pb2.Query) -> QueryInfo:
    return QueryInfo(
        id=message.query_id,
        uid=message.uid,
        sql=message.sql,
        state=query_state_from_pb(message.state) or QueryState.RUNNING,
        active_from=optional(message, "active_from_ms"),
        active_until=optional(message, "active_until_ms"),
        watermark=optional(message, "watermark_ms"),
        rows=message.rows,
        plan_version=message.plan_version,
        epoch=message.epoch,
        group=message.group,
        outputs=tuple(message.outputs),
        sinks=tuple(map(connector_from_pb, message.sinks)),
        created_at_ms=message.created_at_ms,
        deployment_latency_ms=message.deployment_latency_ms,
        deliveries=tuple(map(sink_status_from_pb, message.deliveries)),
    )


def sink_status_to_pb(status: SinkStatus) -> queries_pb2.SinkStatus:
    return queries_pb2.SinkStatus(**_fields(status))


def sink_status_from_pb(message: queries_pb2.SinkStatus) -> SinkStatus:
    fields = {name: getattr(message, name) for name in SinkStatus.__dataclass_fields__}
    times = {name: optional(message, name) for name in ("failing_since_ms", "last_success_ms")}
    return SinkStatus(**fields | times)


def result_schema_from_pb(message: queries_pb2.GetQueryResponse) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(message.arrow_schema))


# -- results -----------------------------------------------------------------------------------------------


def table_to_ipc(batch: pa.RecordBatch) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(out.getvalue())


def cursor_to_pb(cursor: Cursor) -> results_pb2.Cursor:
    return results_pb2.Cursor(epoch=cursor.epoch, sequence=cursor.sequence, offset=cursor.offset)


def cursor_from_pb(message: results_pb2.Cursor) -> Cursor:
    return Cursor(message.epoch, message.sequence, message.offset)


def item_from_pb(message: results_pb2.SubscribeResponse) -> Batch | Progress:
    if message.WhichOneof("item") == "batch":
        table = pa.ipc.open_stream(message.batch.arrow_ipc).read_all()
        return Batch(table, cursor_from_pb(message.batch.cursor))
    progress = message.progress
    return Progress(
        optional(progress, "watermark_ms"),
        progress.epoch,
        cursor_from_pb(progress.cursor),
        query_state_from_pb(progress.state) or QueryState.RUNNING,
    )


# -- plans -------------------------------------------------------------------------------------------------


def plan_event_to_pb(event: PlanEvent) -> plan_pb2.PlanChange:
    return plan_pb2.PlanChange(version=event.version, epoch=event.epoch, changes=event.changes, plan=event.plan)


def plan_event_from_pb(message: plan_pb2.PlanChange) -> PlanEvent:
    return PlanEvent(message.version, message.epoch, tuple(message.changes), message.plan)


def optimization_to_pb(done: Optimization) -> plan_pb2.OptimizeResponse:
    mode = plan_pb2.OptimizeMode.Value(f"OPTIMIZE_MODE_{done.mode.upper()}")
    return plan_pb2.OptimizeResponse(**{**_fields(done), "mode": mode})


def optimization_from_pb(message: plan_pb2.OptimizeResponse) -> Optimization:
    return Optimization(
        message.plan_version,
        tuple(message.changes),
        message.cost_before,
        message.cost_after,
        message.gain,
        tuple(message.reasons),
        enum_name(plan_pb2.OptimizeMode, message.mode, "OPTIMIZE_MODE_").lower(),
        message.applied,
        message.would_apply,
    )


def order_to_pb(order: Any) -> plan_pb2.JoinOrder:
    """Nested sequences of aliases, e.g. (("V", "W"), "C")."""
    if isinstance(order, str):
        return plan_pb2.JoinOrder(alias=order)
    return plan_pb2.JoinOrder(inputs=[order_to_pb(part) for part in order])


def order_from_pb(message: plan_pb2.JoinOrder, depth: int = 0) -> Any:
    """Nested pairs; more than two inputs are read from left to right."""
    if bool(message.alias) == bool(message.inputs) or len(message.inputs) == 1 or depth > DEEPEST_ORDER:
        raise InvalidRequest(
            "the join order is no tree: a leaf has an alias, an inner node two or more inputs",
            reason="INVALID_JOIN_ORDER",
            hint='as nested lists of aliases it looks like [["V", "W"], "C"]',
        )
    if message.alias:
        return message.alias
    return reduce(lambda left, right: (left, right), [order_from_pb(m, depth + 1) for m in message.inputs])


# -- status ------------------------------------------------------------------------------------------------


def status_to_pb(status: PlatformStatus, version: str) -> admin_pb2.GetStatusResponse:
    return admin_pb2.GetStatusResponse(
        state=admin_pb2.PlatformState.Value(f"PLATFORM_STATE_{status.state}"),
        version=version,
        sinks_behind=map(sink_status_to_pb, status.sinks_behind),
        **{name: getattr(status, name) for name in _STATUS_FIELDS},
    )


def status_from_pb(message: admin_pb2.GetStatusResponse) -> PlatformStatus:
    fields = {name: getattr(message, name) for name in _STATUS_FIELDS} | {
        "stage_seconds": dict(message.stage_seconds),
        "backlog": dict(message.backlog),
        "throttled": tuple(message.throttled),
        "lag_ms": optional(message, "lag_ms"),
        "sinks_behind": tuple(map(sink_status_from_pb, message.sinks_behind)),
    }
    return PlatformStatus(state=enum_name(admin_pb2.PlatformState, message.state, "PLATFORM_STATE_"), **fields)


_STATUS_FIELDS = (
    "message",
    "epoch",
    "plan_version",
    "streams",
    "queries",
    "tuples",
    "rows",
    "buckets",
    "bucket_bytes",
    "epoch_seconds",
    "uptime_seconds",
    "stage_seconds",
    "latency_seconds",
    "backlog",
    "throttled",
    "lag_ms",
    "recovery_seconds",
    "recovery_records",
    "fast_bytes",
    "durable_bytes",
    "upload_seconds",
    "sinks",
)


def statistics_to_pb(statistics: Statistics) -> admin_pb2.GetStatisticsResponse:
    return admin_pb2.GetStatisticsResponse(
        epochs=[admin_pb2.EpochStatistics(**_fields(s)) for s in statistics.epochs],
        streams=[admin_pb2.StreamStatistics(**_fields(s)) for s in statistics.streams],
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
            EpochStatistics(
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


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in type(value).__dataclass_fields__}


def option_texts(options: Mapping[str, object] | None) -> tuple[tuple[str, str], ...]:
    """Connector options as the texts they travel as: True is 'true', 0.5 is '0.5'."""

    def text(value: object) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    return tuple(sorted((key, text(value)) for key, value in (options or {}).items()))


def sink_specs(
    sinks: Sequence[str | ConnectorSpec | tuple[str, Mapping[str, object]]],
) -> tuple[ConnectorSpec, ...]:
    """Sinks as a user writes them: 'console', ('parquet', {'path': ...}) or a ConnectorSpec."""
    return tuple(
        sink
        if isinstance(sink, ConnectorSpec)
        else ConnectorSpec(sink)
        if isinstance(sink, str)
        else ConnectorSpec(sink[0], option_texts(sink[1]))
        for sink in sinks
    )
