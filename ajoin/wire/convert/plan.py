"""Changes of the plan, what the optimizer did, and join orders."""

from __future__ import annotations

from functools import reduce
from typing import Any

from ajoin.v1 import plan_pb2
from ajoin.wire.convert.fields import enum_name, fields_of
from optimizer.errors import InvalidRequest
from runtime.api import Optimization, PlanEvent

DEEPEST_ORDER = 32


def plan_event_to_pb(event: PlanEvent) -> plan_pb2.PlanChange:
    return plan_pb2.PlanChange(version=event.version, epoch=event.epoch, changes=event.changes, plan=event.plan)


def plan_event_from_pb(message: plan_pb2.PlanChange) -> PlanEvent:
    return PlanEvent(message.version, message.epoch, tuple(message.changes), message.plan)


def optimization_to_pb(done: Optimization) -> plan_pb2.OptimizeResponse:
    mode = plan_pb2.OptimizeMode.Value(f"OPTIMIZE_MODE_{done.mode.upper()}")
    return plan_pb2.OptimizeResponse(**{**fields_of(done), "mode": mode})


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
