"""From what a user writes to request messages: the part of a call that both clients share.

A create or delete gets a `request_id` of its own, so that it can be repeated after a lost connection (addresses.py)
without being done twice. `subscribe_after` and `watch_after` are the requests with which what was cut off goes on.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeVar

from ajoin.client.results import NOW, START, Batch, Cursor, Progress
from ajoin.platform import catalog
from ajoin.v1 import plan_pb2, queries_pb2, results_pb2, streams_pb2
from ajoin.wire import convert
from optimizer.errors import InvalidRequest
from optimizer.model.types import Column, StreamSchema
from runtime.api import NO_BUDGET, Budget
from runtime.connectors.base import ConnectorSpec

T = TypeVar("T")

DEFAULT_TARGET = "127.0.0.1:7411"

Sink = str | ConnectorSpec | tuple[str, Mapping[str, object]]
"""'console', ('parquet', {'path': ...}) or a ConnectorSpec."""

Order: TypeAlias = "str | Sequence[Order]"
"""A join order as nested lists of aliases: [["V", "W"], "C"]."""


def new_request_id() -> str:
    return uuid.uuid4().hex


def create_stream(
    name: str,
    columns: Mapping[str, str],
    time: str,
    source: str,
    options: Mapping[str, object] | None,
    watermark_delay_ms: int,
    allowed_lateness_ms: int,
    idle_timeout_ms: int | None,
    max_ahead_ms: int | None,
    max_jump_ms: int | None,
    request_id: str | None,
) -> streams_pb2.CreateStreamRequest:
    schema = StreamSchema(
        name,
        tuple(Column(column, catalog.column_type(kind)) for column, kind in columns.items()),
        time,
        watermark_delay_ms,
        allowed_lateness_ms,
        idle_timeout_ms,
        max_ahead_ms=max_ahead_ms,
        max_jump_ms=max_jump_ms,
    )
    spec = convert.schema_to_pb(schema, ConnectorSpec(source, option_texts(options)))
    return streams_pb2.CreateStreamRequest(spec=spec, request_id=request_id or new_request_id())


def query_spec(sql: str, id: str | None, sinks: Sequence[Sink], budget: Budget) -> queries_pb2.QuerySpec:
    return queries_pb2.QuerySpec(
        sql=sql,
        query_id=id or "",
        sinks=map(convert.connector_to_pb, sink_specs(sinks)),
        budget=None if budget == NO_BUDGET else convert.budget_to_pb(budget),
    )


def create_queries(
    queries: Mapping[str, str] | Sequence[str], sinks: Sequence[Sink], budget: Budget, request_id: str | None
) -> queries_pb2.CreateQueriesRequest:
    pairs = queries.items() if isinstance(queries, Mapping) else ((None, sql) for sql in queries)
    return queries_pb2.CreateQueriesRequest(
        specs=[query_spec(sql, id, sinks, budget) for id, sql in pairs], request_id=request_id or new_request_id()
    )


def subscribe(
    id: str, start: str, cursor: Cursor | None, follow: bool, uid: str | None
) -> results_pb2.SubscribeRequest:
    request = results_pb2.SubscribeRequest(query_id=id, stop_when_caught_up=not follow, uid=uid or "")
    if cursor is not None:
        request.after.CopyFrom(convert.cursor_to_pb(cursor))
    else:
        request.start = named(
            "start",
            start,
            {START: results_pb2.START_POSITION_START, NOW: results_pb2.START_POSITION_NOW},
        )
    return request


def subscribe_after(request: results_pb2.SubscribeRequest, item: Batch | Progress) -> results_pb2.SubscribeRequest:
    return results_pb2.SubscribeRequest(
        query_id=request.query_id,
        uid=request.uid,
        stop_when_caught_up=request.stop_when_caught_up,
        after=convert.cursor_to_pb(item.cursor),
    )


def watch_after(request: plan_pb2.WatchPlanRequest, change: plan_pb2.PlanChange) -> plan_pb2.WatchPlanRequest:
    return plan_pb2.WatchPlanRequest(after_version=change.version)


def explain(id: str | None, sql: str | None, format: str) -> plan_pb2.ExplainRequest:
    if id is not None and sql is not None:
        raise InvalidRequest("explain takes a query id or a SQL text, not both", reason="AMBIGUOUS_REQUEST")
    number = named(
        "format",
        format,
        {
            "text": plan_pb2.PLAN_FORMAT_TEXT,
            "json": plan_pb2.PLAN_FORMAT_JSON,
            "dot": plan_pb2.PLAN_FORMAT_DOT,
        },
    )
    if id is not None:
        return plan_pb2.ExplainRequest(query_id=id, format=number)
    if sql is not None:
        return plan_pb2.ExplainRequest(sql=sql, format=number)
    return plan_pb2.ExplainRequest(format=number)


def optimize(mode: str, dry_run: bool) -> plan_pb2.OptimizeRequest:
    known = {"full": plan_pb2.OPTIMIZE_MODE_FULL, "incremental": plan_pb2.OPTIMIZE_MODE_INCREMENTAL}
    return plan_pb2.OptimizeRequest(mode=named("mode", mode, known), dry_run=dry_run)


def force_order(id: str, order: Order) -> plan_pb2.ForceOrderRequest:
    return plan_pb2.ForceOrderRequest(query_id=id, order=convert.order_to_pb(order))


def named(what: str, name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        raise InvalidRequest(f"{what} is {name!r}", reason="UNKNOWN_NAME", hint="known are: " + ", ".join(known))
    return known[name]


def option_texts(options: Mapping[str, object] | None) -> tuple[tuple[str, str], ...]:
    """Connector options as the texts they travel as: True is 'true', 0.5 is '0.5'."""

    def text(value: object) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    return tuple(sorted((key, text(value)) for key, value in (options or {}).items()))


def sink_specs(sinks: Sequence[Sink]) -> tuple[ConnectorSpec, ...]:
    """Sinks as a user writes them: 'console', ('parquet', {'path': ...}) or a ConnectorSpec."""
    return tuple(
        sink
        if isinstance(sink, ConnectorSpec)
        else ConnectorSpec(sink)
        if isinstance(sink, str)
        else ConnectorSpec(sink[0], option_texts(sink[1]))
        for sink in sinks
    )
