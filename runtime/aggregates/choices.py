"""Min, max, first, last, arg_min, arg_max: the partials that are one of the values.

The first part decides, and an entry over no value has none there: the minimum or maximum itself; the time of the first
or last value; the deciding argument of ARG_MIN or ARG_MAX. The last part is the value that goes with it, which may be
NULL. So a fold is: make keys of the deciding part, choose an entry per group, take its parts.

Of equal times the order of arrival decides, so first and last also keep when their tuple came: the number of its batch,
and of its row there. Entries may therefore be combined in any order: query sets cut the tuples of one batch in ways
that no order of entries could tell.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optimizer.model.types import ColumnType
from runtime.aggregates.keys import keys_of, normalised
from runtime.aggregates.partials import I64, State, both, keep_of, some
from runtime.columns.column import ColumnData, Mask, compacted
from runtime.kernels.choosing import choose, choose_by_three, choose_by_two

I32 = npt.NDArray[np.int32]


def lift_choice(kind: str, arguments: tuple[ColumnData, ...], keep: Mask | None, times: I64, batch: int) -> State:
    """`keep`: which tuples have a value (of the deciding argument)."""
    first = arguments[0]
    match kind:
        case "first" | "last":
            came = (np.full(len(times), batch, np.int64), np.arange(len(times), dtype=np.int64))
            numbers = (ColumnData(ColumnType.BIGINT, values) for values in came)
            when = ColumnData(ColumnType.TIMESTAMP, np.ascontiguousarray(times), keep)
            return State((when, *numbers, _with(first, keep)))
        case "arg_min" | "arg_max":
            return State((_with(normalised(arguments[1]), keep), normalised(first)))
        case _:
            return State((_with(normalised(first), keep),))


def fold_choice(kind: str, state: State, order: I32, offsets: I64) -> State:
    decides = state.parts[0]
    keys = keys_of(decides).values
    keep = keep_of(decides.valid)
    match kind:
        case "arg_min" | "arg_max":
            other = state.parts[1]
            keys = ~keys if kind == "arg_max" else keys
            chosen = choose_by_two(order, offsets, keys, keep, keys_of(other).values, keep_of(other.valid))
        case "first" | "last":
            three = [keys, state.parts[1].values, state.parts[2].values]
            if kind == "last":
                three = [~k for k in three]
            chosen = choose_by_three(order, offsets, *map(np.ascontiguousarray, three), keep)
        case _:
            chosen = choose(order, offsets, ~keys if kind == "max" else keys, keep)
    return taken(state, chosen)


def taken(state: State, chosen: I64) -> State:
    """The entries with these numbers; -1: an entry over no value."""
    there = chosen >= 0
    if there.all():
        return State(tuple(compacted(p.take(chosen)) for p in state.parts))
    if not there.any():
        chosen = np.zeros(len(chosen), np.int64)
        if not len(state):
            return State(tuple(_nulls(p, len(chosen)) for p in state.parts))
    rows = np.where(there, chosen, 0)
    return State(tuple(compacted(_cleared(p.take(rows), there)) for p in state.parts))


def scale_choice(state: State, times: I64) -> State:
    """However often it is there, it is the same one; but what is there no times is not there."""
    if (times > 0).all():
        return state
    return State(tuple(_cleared(p, times > 0) for p in state.parts))


def _with(column: ColumnData, valid: Mask | None) -> ColumnData:
    return ColumnData(column.type, column.values, valid, column.dictionary)


def _cleared(column: ColumnData, there: Mask) -> ColumnData:
    """NULL, with value zero, where nothing is there."""
    values = np.where(there, column.values, column.values.dtype.type(0))
    return ColumnData(column.type, values, some(column.mask & there), column.dictionary)


def _nulls(column: ColumnData, rows: int) -> ColumnData:
    return ColumnData(column.type, np.zeros(rows, column.values.dtype), np.zeros(rows, bool), column.dictionary)


def keep_choice(kind: str, arguments: tuple[ColumnData, ...], passed: Mask | None) -> Mask | None:
    decides = arguments[1] if kind in ("arg_min", "arg_max") else arguments[0]
    return both(passed, decides.valid)
