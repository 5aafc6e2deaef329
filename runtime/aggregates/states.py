"""Lift, fold, scale: what is done with the partials of a component, whatever its kind.

    lift       tuples become entries, one each
    fold       entries become one per group: order[offsets[g]:offsets[g + 1]]
    lift_fold  both at once, without an entry per tuple in between
    scale      every entry counted so many times: a tuple that has so many partners in a join

It does not matter how tuples are cut into parts first: a fold of folds is the fold of all, exactly, except that
moments of doubles may differ in the last digits (and sums of doubles in the rarest cases; runtime.kernels.folding).
No kind depends on the order of entries.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optimizer.errors import InternalError
from runtime.aggregates import choices, lists, numbers, plugins
from runtime.aggregates.components import Component
from runtime.aggregates.partials import I64, State, both, concat
from runtime.aggregates.stored import get_state, put_state
from runtime.columns.column import ColumnData, Mask

__all__ = [
    "SCALABLE",
    "State",
    "concat",
    "fold",
    "get_state",
    "lift",
    "lift_fold",
    "put_state",
    "scalable",
    "scale",
]

I32 = npt.NDArray[np.int32]

SCALABLE = frozenset({"count", "sum", "min", "max", "moments", "arg_min", "arg_max", "runs", "sketch"})
"""Kinds that can be scaled. First and last take one stream, so nobody asks."""


def scalable(component: Component) -> bool:
    if component.kind[:1].isupper():
        return plugins.get(component.kind).scale is not None
    return component.kind in SCALABLE


def lift(
    component: Component, arguments: tuple[ColumnData, ...], passed: Mask | None, times: I64, batch: int = 0
) -> State:
    """One entry per tuple. `arguments`: the values of the component's arguments; `passed`: for which tuples FILTER is
    TRUE, None for all; `times`: event times. Tuples come in order of arrival, those of a greater `batch` later."""
    match component.kind:
        case "count":
            return numbers.lift_count(_keep(arguments, passed), len(times))
        case "sum":
            return numbers.lift_sum(arguments[0], _keep(arguments, passed))
        case "moments":
            return numbers.lift_moments(arguments[0], _keep(arguments, passed))
        case "min" | "max" | "first" | "last" | "arg_min" | "arg_max":
            keep = choices.keep_choice(component.kind, arguments, passed)
            return choices.lift_choice(component.kind, arguments, keep, times, batch)
        case "runs" | "sketch":
            return lists.lift_list(component.kind, arguments[0], _keep(arguments, passed))
        case name:
            return plugins.lift_plugin(plugins.get(name), arguments, passed, len(times))


def fold(component: Component, state: State, order: I32, offsets: I64) -> State:
    """One entry per group; one over no entries is that over no value."""
    match component.kind:
        case "count":
            return numbers.fold_count(state, order, offsets)
        case "sum":
            return numbers.fold_sum(state, order, offsets)
        case "moments":
            return numbers.fold_moments(state, order, offsets)
        case "min" | "max" | "first" | "last" | "arg_min" | "arg_max":
            return choices.fold_choice(component.kind, state, order, offsets)
        case "runs" | "sketch":
            return lists.fold_list(component.kind, state, order, offsets)
        case name:
            return plugins.fold_plugin(plugins.get(name), state, order, offsets)


def lift_fold(
    component: Component,
    arguments: tuple[ColumnData, ...],
    passed: Mask | None,
    times: I64,
    order: I32,
    offsets: I64,
    batch: int = 0,
) -> State:
    """`fold(lift(...))`; for sums and choices a lift copies nothing, so that is just what it is."""
    match component.kind:
        case "count":
            return numbers.lift_fold_count(_keep(arguments, passed), order, offsets)
        case "moments":
            return numbers.lift_fold_moments(arguments[0], _keep(arguments, passed), order, offsets)
        case "runs" | "sketch":
            return lists.lift_fold_list(component.kind, arguments[0], _keep(arguments, passed), order, offsets)
        case _:
            return fold(component, lift(component, arguments, passed, times, batch), order, offsets)


def scale(component: Component, state: State, times: I64) -> State:
    """Entry i counted times[i] times, which is not negative; no times at all makes it one over no value."""
    match component.kind:
        case "count":
            return numbers.scale_count(state, times)
        case "sum":
            return numbers.scale_sum(state, times)
        case "moments":
            return numbers.scale_moments(state, times)
        case "min" | "max" | "arg_min" | "arg_max":
            return choices.scale_choice(state, times)
        case "runs" | "sketch":
            return lists.scale_list(component.kind, state, times)
        case "first" | "last":
            raise InternalError(f"{component.kind} takes one stream and is never scaled")
        case name:
            return plugins.scale_plugin(plugins.get(name), state, times)


def _keep(arguments: tuple[ColumnData, ...], passed: Mask | None) -> Mask | None:
    """Which tuples count: those that pass and whose arguments are not NULL; None: all."""
    keep = passed
    for a in arguments:
        keep = both(keep, a.valid)
    return keep
