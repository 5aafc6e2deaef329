"""Queries: what they are, their state, the columns of their rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ajoin.v1 import queries_pb2
from ajoin.wire.convert.fields import enum_name, fields_of, from_fields, optional
from ajoin.wire.convert.streams import connector_from_pb, connector_to_pb
from runtime.api import AtLimit, Budget, Incomplete, QueryInfo, QueryState, SinkStatus, Usage


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
        suspended=info.suspended,
        lag_ms=info.lag_ms,
        latency_ms=info.latency_ms,
        epochs_behind=info.epochs_behind,
        overflows=info.overflows,
        pins=info.pins,
        budget=budget_to_pb(info.budget),
        usage=queries_pb2.Usage(**info.usage._asdict()),
        incomplete=incomplete_to_pb(info.incomplete),
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
        suspended=message.suspended,
        lag_ms=optional(message, "lag_ms"),
        latency_ms=optional(message, "latency_ms"),
        epochs_behind=message.epochs_behind,
        overflows=message.overflows,
        pins=tuple(message.pins),
        budget=budget_from_pb(message.budget),
        usage=Usage(message.usage.bytes, message.usage.retained_bytes, message.usage.seconds),
        incomplete=incomplete_from_pb(message),
    )


def budget_to_pb(budget: Budget) -> queries_pb2.Budget:
    at_limit = queries_pb2.AtLimit.Value(f"AT_LIMIT_{budget.at_limit.name}")
    return queries_pb2.Budget(**fields_of(budget, "at_limit"), at_limit=at_limit)


def budget_from_pb(message: queries_pb2.Budget) -> Budget:
    name = enum_name(queries_pb2.AtLimit, message.at_limit, "AT_LIMIT_")
    at_limit = AtLimit.PAUSE if name == "UNSPECIFIED" else AtLimit[name]
    return from_fields(Budget, message, at_limit=at_limit)


def incomplete_to_pb(gap: Incomplete | None) -> queries_pb2.Incomplete | None:
    return None if gap is None else queries_pb2.Incomplete(after_ms=gap.after, until_ms=gap.until)


def incomplete_from_pb(message: Any) -> Incomplete | None:
    """Of a message that may have one."""
    gap = optional(message, "incomplete")
    return None if gap is None else Incomplete(optional(gap, "after_ms"), optional(gap, "until_ms"))


def sink_status_to_pb(status: SinkStatus) -> queries_pb2.SinkStatus:
    return queries_pb2.SinkStatus(**fields_of(status))


def sink_status_from_pb(message: queries_pb2.SinkStatus) -> SinkStatus:
    return from_fields(SinkStatus, message)


def result_schema_from_pb(message: queries_pb2.GetQueryResponse) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(message.arrow_schema))
