"""Changes of the plan, what the optimizer did, and join orders."""

from __future__ import annotations

from functools import reduce
from typing import Any

from ajoin.v1 import plan_pb2
from ajoin.wire.convert.fields import enum_name, fields_of, from_fields
from optimizer.errors import InvalidRequest
from runtime.api import Optimization, PlanEvent

DEEPEST_ORDER = 32


def plan_event_to_pb(event: PlanEvent) -> plan_pb2.PlanChange:
    return plan_pb2.PlanChange(**fields_of(event))


def plan_event_from_pb(message: plan_pb2.PlanChange) -> PlanEvent:
    return from_fields(PlanEvent, message)


def optimization_to_pb(done: Optimization) -> plan_pb2.OptimizeResponse:
    mode = plan_pb2.OptimizeMode.Value(f"OPTIMIZE_MODE_{done.mode.upper()}")
    return plan_pb2.OptimizeResponse(mode=mode, **fields_of(done, "mode"))


def optimization_from_pb(message: plan_pb2.OptimizeResponse) -> Optimization:
    mode = enum_name(plan_pb2.OptimizeMode, message.mode, "OPTIMIZE_MODE_").lower()
    return from_fields(Optimization, message, mode=mode)


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
