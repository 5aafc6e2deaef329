"""From the partials of slices to those of windows, for any kind and all groups at once.

Three ways, equal in result (runtime.kernels.sliding says how each works):

    combine    every slice of every window again: slices per window steps
    subtract   2 steps: counts and sums, and what plug-ins can invert
    stacks     about 3 steps: everything

Counts, sums and smallest or greatest numbers are laid out as a matrix (slices x groups) and done by the kernels; groups
are taken in blocks, so the matrix stays small. Every other kind goes the same ways by folds over all groups at once: a
step is one fold, which costs some hundred microseconds however few groups there are. An integer sum that might leave
64 bits is one of those, too.

optimizer.model.combining chooses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.model.combining import Way, way_of
from optimizer.model.types import NUMBERS, ColumnType
from runtime.aggregates import numbers
from runtime.aggregates.components import Component
from runtime.aggregates.partials import I64, State, concat, some
from runtime.aggregates.plugins import get, invert_plugin, invertible
from runtime.aggregates.states import fold
from runtime.columns.column import NUMPY_TYPES, ColumnData, Mask
from runtime.kernels import sliding
from runtime.kernels.sliding import MAX, MIN, SUM

_CELLS = 1 << 22


class Cells(NamedTuple):
    """Where the entries of a state lie: entry i is slice slices[i] of group groups[i]; no two in one place. `shape`:
    how many slices and groups there are."""

    slices: npt.NDArray[Any]
    groups: npt.NDArray[Any]
    shape: tuple[int, int]


def slide(
    component: Component, state: State, cells: Cells, first: I64, end: I64, way: Way | None = None
) -> tuple[State, Mask]:
    """Window w takes the slices [first[w], end[w]); both ascend.

    Returns the partials of all windows of all groups, entry w * groups + g, and which of them have any entry at all.
    """
    longest = int((end - first).max(initial=0))
    way = way or way_of(component.kind, longest, invertible(component.kind))
    here = np.zeros(cells.shape, bool)
    here[cells.slices, cells.groups] = True
    there = sliding.present_in(here, first, end).reshape(-1)
    operation = _operation(component, state, longest)
    if operation is not None:
        return _by_kernels(component, state, cells, first, end, way, operation), there
    if way == "subtract" and invertible(component.kind):
        return _subtracted(component, state, cells, first, end), there
    if way == "stacks" and longest > 1:
        return _stacks(component, state, cells, first, end), there
    return _combined(component, state, cells, first, end), there


def has_kernel(component: Component, state: State, longest: int) -> bool:
    """Or else every step is a fold: with few groups, to combine all slices of a window in one is faster."""
    return _operation(component, state, longest) is not None


def _operation(component: Component, state: State, longest: int) -> int | None:
    """Of the kernels, if they can do it."""
    match component.kind:
        case "count":
            return SUM
        case "sum":
            first = state.parts[0]
            if first.type is ColumnType.DOUBLE:
                return SUM
            small = len(state.parts) == 1 and numbers.greatest(first.values) * max(longest, 1) < 1 << 62
            return SUM if small else None
        case "min" | "max" if component.types[0] in NUMBERS | {ColumnType.TIMESTAMP}:
            return MIN if component.kind == "min" else MAX
        case _:
            return None


def _by_kernels(
    component: Component, state: State, cells: Cells, first: I64, end: I64, way: Way, operation: int
) -> State:
    """Block by block of groups. A double sum with an infinity or NaN in it is not subtracted."""
    slices, groups = cells.shape
    part = state.parts[0]
    doubles = part.type is ColumnType.DOUBLE
    dtype = np.float64 if doubles else np.int64
    if way == "subtract" and (operation != SUM or (doubles and not np.isfinite(part.values).all())):
        way = "stacks"
    columns = [p.values for p in state.parts]
    if doubles and operation == SUM and len(columns) == 1:
        columns.append(np.zeros(len(state)))
    outs = [np.empty((len(first), groups), dtype) for _ in columns]
    there = np.empty((len(first), groups), bool)
    known = part.mask
    width = max(1, _CELLS // max(slices, 1))
    by_group = np.argsort(cells.groups, kind="stable")
    for a in range(0, groups, width):
        b = min(a + width, groups)
        low, high = np.searchsorted(cells.groups, [a, b], sorter=by_group)
        rows = by_group[low:high]
        rows = rows[known[rows]]
        at = cells.slices[rows], cells.groups[rows] - a
        tables = []
        for values in columns:
            table = np.full((slices, b - a), sliding.neutral(operation, dtype), dtype)
            table[at] = values[rows]
            tables.append(table)
        present = np.zeros((slices, b - a), bool)
        present[at] = True
        there[:, a:b] = sliding.present_in(present, first, end)
        for out, found in zip(outs, _run(tables, first, end, way, operation), strict=True):
            out[:, a:b] = found
    valid = there.reshape(-1)
    if component.kind == "count":
        return State((ColumnData(part.type, outs[0].reshape(-1)),))
    flat = [np.where(valid, out.reshape(-1), 0).astype(NUMPY_TYPES[part.type], copy=False) for out in outs]
    return State((ColumnData(part.type, flat[0], some(valid)), *(ColumnData(part.type, v) for v in flat[1:])))


def _run(tables: list[Any], first: I64, end: I64, way: Way, operation: int) -> tuple[Any, ...]:
    if len(tables) == 2:
        pairs = {
            "combine": sliding.combine_all_doubles,
            "subtract": sliding.subtract_doubles,
            "stacks": sliding.two_stacks_doubles,
        }
        found: tuple[Any, ...] = pairs[way](*tables, first, end)
        return found
    if way == "subtract":
        return (sliding.subtract(tables[0], first, end),)
    kernel = sliding.combine_all if way == "combine" else sliding.two_stacks
    return (kernel(tables[0], first, end, operation),)


def _combined(component: Component, state: State, cells: Cells, first: I64, end: I64) -> State:
    """One fold of everything: the entries of a window and group are neighbours in the order of (group, slice)."""
    slices, groups = cells.shape
    order = np.lexsort((cells.slices, cells.groups))
    keys = cells.groups[order].astype(np.int64) * (slices + 1) + cells.slices[order]
    base = np.arange(groups, dtype=np.int64) * (slices + 1)
    low = np.searchsorted(keys, (base[None, :] + first[:, None]).reshape(-1))
    high = np.searchsorted(keys, (base[None, :] + end[:, None]).reshape(-1))
    offsets = np.zeros(len(low) + 1, np.int64)
    np.cumsum(high - low, out=offsets[1:])
    places = np.arange(offsets[-1]) + np.repeat(low - offsets[:-1], high - low)
    return fold(component, state, order[places].astype(np.int32), offsets)


def _subtracted(component: Component, state: State, cells: Cells, first: I64, end: I64) -> State:
    """All slices up to the end of a window without those up to its start; each of them one step from the one before."""
    slices, groups = cells.shape
    whole, place, both = _stepwise(component, state, cells)
    sums = [whole.take(np.full(groups, len(state)))]
    for s in range(slices):
        sums.append(both(sums[-1], whole.take(place[s])))
    known = np.zeros((slices + 1, groups), np.int64)
    valued = np.append(state.parts[0].mask, False)[place]
    np.cumsum(valued, axis=0, out=known[1:])
    rows = concat(sums)
    until, before = ((bound[:, None] * groups + np.arange(groups)).reshape(-1) for bound in (end, first))
    left = (known[end] > known[first]).reshape(-1)
    return invert_plugin(get(component.kind), rows.take(until), rows.take(before), left)


def _stepwise(
    component: Component, state: State, cells: Cells
) -> tuple[State, npt.NDArray[np.int64], Callable[[State, State], State]]:
    """The state with one more entry over no value; where in it the entry of each slice and group is; and how two states
    with an entry per group become one."""
    slices, groups = cells.shape
    nothing = fold(component, state, np.empty(0, np.int32), np.zeros(2, np.int64))
    place = np.full((slices, groups), len(state), np.int64)
    place[cells.slices, cells.groups] = np.arange(len(state))
    pairs = np.arange(2 * groups, dtype=np.int32).reshape(2, groups).T.reshape(-1).copy()
    ends = np.arange(groups + 1, dtype=np.int64) * 2
    return concat([state, nothing]), place, lambda left, right: fold(component, concat([left, right]), pairs, ends)


def _stacks(component: Component, state: State, cells: Cells, first: I64, end: I64) -> State:
    """Two stacks, of which every row is a state with one entry per group."""
    groups = cells.shape[1]
    whole, place, both = _stepwise(component, state, cells)

    def row(s: int) -> State:
        return whole.take(place[s])

    rows: list[State] = []
    front: dict[int, State] = {}
    back: State | None = None
    border = right = 0
    for a, b in zip(first.tolist(), end.tolist(), strict=True):
        if a >= b:
            rows.append(whole.take(np.full(groups, len(state))))
            continue
        if a >= border:
            border = right = b
            front, back = {b - 1: row(b - 1)}, None
            for s in range(b - 2, a - 1, -1):
                front[s] = both(row(s), front[s + 1])
        for s in range(right, b):
            back = row(s) if back is None else both(back, row(s))
        right = max(right, b)
        rows.append(front[a] if back is None else both(front[a], back))
    if not rows:
        return whole.take(np.empty(0, np.int64))
    return concat(rows)
