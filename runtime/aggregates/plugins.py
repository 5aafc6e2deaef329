"""Aggregate functions that users bring: lift, combine, lower, on arrays.

A module that brings one registers it when it is imported (runtime.plugins). Its functions work on many entries at
once, element by element:

    lift(*arguments) -> parts            arrays of the arguments' values, one element per tuple; NULLs never arrive
    combine(parts, parts) -> parts       entry i with entry i; associative and commutative
    lower(parts, *parameters) -> values  or (values, mask): where the mask is False the result is NULL
    scale(parts, times) -> parts         optional: the same tuples so many times; without it, joins are laid out row by
                                         row
    invert(parts, parts) -> parts        optional: takes the second out of the first; nobody asks for it so far

`parts` is a tuple of arrays, one per type in `AggregatePlugin.parts`; types are numbers, timestamps or booleans, not
texts. Texts among the arguments arrive as arrays of str. What is kept has a fixed size, so there is no bound to watch.
A function over no value is NULL. A group is folded in log2(size) rounds of `combine` over all groups at once:
neighbours are combined, then neighbours of the results.

Tuples of a group are apart if their query sets differ, so what comes first depends on which other queries run: a
function of their order is refused. It can take the event time as an argument and go by that.

What a plug-in raises, and what it returns that has not the right size, is an InternalError with reason PLUGIN_FAILED.
It ends the task that called it, and the queries that use the function are to blame (runtime.engine.quarantine).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optimizer.errors import AlreadyExists, FailedPrecondition, InternalError, InvalidRequest
from optimizer.model.aggregates import BUILT_IN, OTHER_NAMES, AggregateFunction
from optimizer.model.expressions import Value
from optimizer.model.functions import FUNCTIONS
from optimizer.model.functions import OTHER_NAMES as OTHER_FUNCTIONS
from optimizer.model.types import ColumnType
from runtime.aggregates.partials import I64, State, both, some
from runtime.columns.column import NUMPY_TYPES, ColumnData, Mask

Parts = tuple[npt.NDArray[Any], ...]

PLUGIN_FAILED = "PLUGIN_FAILED"
_TAKEN = frozenset({*BUILT_IN, *OTHER_NAMES, *FUNCTIONS, *OTHER_FUNCTIONS, "MOD", "CAST"})


@dataclass(frozen=True, slots=True)
class AggregatePlugin:
    """`function`: what SQL must know; `parts`: types of what is kept."""

    function: AggregateFunction
    parts: tuple[ColumnType, ...]
    lift: Callable[..., Parts]
    combine: Callable[[Parts, Parts], Parts]
    lower: Callable[..., Any]
    scale: Callable[[Parts, I64], Parts] | None = None
    invert: Callable[[Parts, Parts], Parts] | None = None

    @property
    def name(self) -> str:
        return self.function.name


_registered: dict[str, AggregatePlugin] = {}
_modules: dict[str, str] = {}


def register(plugin: AggregatePlugin, module: str = "") -> None:
    """Registering the same plug-in again changes nothing, so a module may be imported twice. `module`: what is to be
    loaded to have it, for messages; otherwise the module of its code."""
    name = plugin.name
    if not re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
        raise InvalidRequest(
            f"an aggregate function cannot be called {name!r}",
            reason="PLUGIN_INVALID",
            hint="capital letters, digits and _, beginning with a letter",
        )
    if name in _TAKEN or _registered.get(name, plugin) != plugin:
        raise AlreadyExists(f"there is a function {name} already", reason="PLUGIN_EXISTS")
    if not plugin.parts or ColumnType.STRING in plugin.parts:
        raise InvalidRequest(
            f"the parts of {name} must be at least one, and none a STRING",
            reason="PLUGIN_INVALID",
            hint="keep numbers, timestamps or booleans",
        )
    if plugin.function.ordered:
        raise InvalidRequest(
            f"{name} must not depend on the order of tuples",
            reason="PLUGIN_INVALID",
            hint="take the event time as an argument, and combine by that",
        )
    _registered[name] = plugin
    _modules.setdefault(name, module or plugin.lift.__module__)


def module_of(name: str) -> str | None:
    """The module that brings a function; None: nobody does."""
    return _modules.get(name)


def get(name: str) -> AggregatePlugin:
    plugin = _registered.get(name)
    if plugin is None:
        raise FailedPrecondition(
            f"no plug-in with an aggregate function {name} is loaded",
            reason="PLUGIN_MISSING",
            hint="name its module with --plugin when the server starts, on every machine",
        )
    return plugin


def _call(plugin: AggregatePlugin, step: Callable[..., Any], what: str, *arguments: Any) -> Any:
    try:
        return step(*arguments)
    except MemoryError:
        raise
    except Exception as failure:
        said = f"{type(failure).__name__}: {failure}"
        raise InternalError(f"the plug-in {plugin.name} failed in {what}: {said}", reason=PLUGIN_FAILED) from failure


def functions() -> Mapping[str, AggregateFunction]:
    """What plug-ins add to optimizer.model.aggregates.BUILT_IN."""
    return {name: plugin.function for name, plugin in _registered.items()}


def lift_plugin(plugin: AggregatePlugin, arguments: tuple[ColumnData, ...], passed: Mask | None, rows: int) -> State:
    keep = passed
    for a in arguments:
        keep = both(keep, a.valid)
    if keep is None:
        return _state(plugin, _call(plugin, plugin.lift, "lift", *(_plain(a) for a in arguments)), None, rows)
    places = np.flatnonzero(keep)
    lifted = _call(plugin, plugin.lift, "lift", *(_plain(a.take(places)) for a in arguments))
    spread = []
    for part in _checked(plugin, lifted, len(places)):
        whole = np.zeros(rows, part.dtype)
        whole[places] = part
        spread.append(whole)
    return _state(plugin, tuple(spread), some(keep), rows)


def fold_plugin(plugin: AggregatePlugin, state: State, order: npt.NDArray[np.int32], offsets: I64) -> State:
    groups = len(offsets) - 1
    entries = order[offsets[0] : offsets[-1]]
    group = np.repeat(np.arange(groups), np.diff(offsets))
    there = state.parts[0].valid
    if there is not None:
        kept = there[entries]
        entries, group = entries[kept], group[kept]
    parts = tuple(p.values[entries] for p in state.parts)
    while True:
        fresh = np.ones(len(group), bool)
        fresh[1:] = group[1:] != group[:-1]
        starts = np.flatnonzero(fresh)
        if len(starts) == len(group):
            break
        place = np.arange(len(group)) - np.repeat(starts, np.diff(np.append(starts, len(group))))
        left = np.flatnonzero(place % 2 == 0)
        paired = left[(left + 1 < len(group)) & (np.append(group[1:], -1)[left] == group[left])]
        sides = tuple(p[paired] for p in parts), tuple(p[paired + 1] for p in parts)
        combined = _call(plugin, plugin.combine, "combine", *sides)
        for p, c in zip(parts, _checked(plugin, combined, len(paired)), strict=True):
            p[paired] = c
        parts, group = tuple(p[left] for p in parts), group[left]
    out = tuple(np.zeros(groups, p.dtype) for p in parts)
    for whole, p in zip(out, parts, strict=True):
        whole[group] = p
    has = np.zeros(groups, bool)
    has[group] = True
    return _state(plugin, out, some(has), groups)


def scale_plugin(plugin: AggregatePlugin, state: State, times: I64) -> State:
    if plugin.scale is None:
        raise FailedPrecondition(f"{plugin.name} has no scale", reason="PLUGIN_NOT_SCALABLE")
    parts = _call(plugin, plugin.scale, "scale", tuple(p.values for p in state.parts), times)
    return _state(plugin, parts, some(state.parts[0].mask & (times > 0)), len(state))


def invertible(kind: str) -> bool:
    plugin = _registered.get(kind)
    return plugin is not None and plugin.invert is not None


def invert_plugin(plugin: AggregatePlugin, whole: State, part: State, left: Mask) -> State:
    """Each entry of `whole` without that of `part`, which is in it; `left`: is anything left?"""
    assert plugin.invert is not None
    parts = tuple(p.values.copy() for p in whole.parts)
    places = np.flatnonzero(left & part.parts[0].mask)
    sides = tuple(p[places] for p in parts), tuple(p.values[places] for p in part.parts)
    inverted = _call(plugin, plugin.invert, "invert", *sides)
    for p, i in zip(parts, _checked(plugin, inverted, len(places)), strict=True):
        p[places] = i
    return _state(plugin, tuple(np.where(left, p, p.dtype.type(0)) for p in parts), some(left), len(whole))


def lowered(plugin: AggregatePlugin, state: State, type: ColumnType, parameters: tuple[Value, ...]) -> ColumnData:
    there = state.parts[0].mask
    places = np.flatnonzero(there)
    result = _call(plugin, plugin.lower, "lower", tuple(p.values[places] for p in state.parts), *parameters)
    values, defined = result if isinstance(result, tuple) else (result, None)
    if np.shape(values) != places.shape or (defined is not None and np.shape(defined) != places.shape):
        raise _wrong_size(plugin, np.shape(values), len(places))
    whole = np.zeros(len(state), NUMPY_TYPES[type])
    valid = there.copy()
    if defined is not None:
        valid[places] = defined
        values = np.where(defined, values, 0)
    whole[places] = values
    return ColumnData(type, whole, some(valid))


def _plain(column: ColumnData) -> npt.NDArray[Any]:
    if column.type is ColumnType.STRING:
        return np.array(column.to_arrow().to_pylist(), object)
    return column.values


def _state(plugin: AggregatePlugin, parts: Parts, valid: Mask | None, rows: int) -> State:
    columns = zip(plugin.parts, _checked(plugin, parts, rows), strict=True)
    return State(tuple(ColumnData(type, p, valid if i == 0 else None) for i, (type, p) in enumerate(columns)))


def _checked(plugin: AggregatePlugin, parts: Parts, rows: int) -> Parts:
    """In the types of the plug-in, if there is one element per entry in every part."""
    if not isinstance(parts, tuple) or len(parts) != len(plugin.parts):
        count = f"{len(parts)} parts" if isinstance(parts, tuple) else f"a {type(parts).__name__}"
        raise InternalError(f"the plug-in {plugin.name} gave {count}, not {len(plugin.parts)}", reason=PLUGIN_FAILED)
    columns = tuple(np.ascontiguousarray(p, NUMPY_TYPES[t]) for p, t in zip(parts, plugin.parts, strict=True))
    for column in columns:
        if column.shape != (rows,):
            raise _wrong_size(plugin, column.shape, rows)
    return columns


def _wrong_size(plugin: AggregatePlugin, shape: tuple[int, ...], rows: int) -> InternalError:
    return InternalError(
        f"the plug-in {plugin.name} gave an array of shape {shape} for {rows} entries",
        reason=PLUGIN_FAILED,
        hint="its functions give one element per entry",
    )
