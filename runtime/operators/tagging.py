"""Tagging: which queries want which tuples of a stream.

A tuple's query set already contains everything about a query that concerns this tuple alone: its selection, whether the
tuple lies in one of its windows, and whether the query was there in time (`active_from` is a window start, so a tuple
at or after it is only in windows at or after it).

Cost per tuple: one lookup per column with conditions and one AND per 64 queries; times are compared once per distinct
`active_from` or window with gaps, not per query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.model.windows import Window
from runtime.columns.coded_sets import CodedSets, coded
from runtime.columns.column import ColumnData
from runtime.columns.predicate_index import PredicateIndex
from runtime.columns.querysets import Words, bitset
from runtime.execution.physical import ViewSpec
from runtime.machine.cache import BoundedCache
from runtime.windows.base import WindowLogic
from runtime.windows.registry import aligned, logic_of


class _Plan(NamedTuple):
    """Selections compiled under one plan: named by the plan's key, the occurrence of the stream and the group."""

    key: str
    stream: str
    occurrence: int
    group: int


_COMPILED: BoundedCache[_Plan, PredicateIndex] = BoundedCache(256)


def query_sets(key: str, view: ViewSpec, column: Callable[[str], ColumnData], times: npt.NDArray[np.int64]) -> Words:
    """One query set per tuple. `key` names the plan version, once for which a worker compiles the selections."""
    sets = _compiled(key, view).query_sets(column, len(times))
    for limit in _time_limits(view):
        outside = limit.excluded(times)
        if outside.any():
            sets[outside] &= ~limit.slots
    return sets


def coded_sets(
    key: str, view: ViewSpec, column: Callable[[str], ColumnData], times: npt.NDArray[np.int64]
) -> CodedSets:
    """The same, as numbers into a table of the distinct sets: without words per tuple, where that is possible."""
    sets = _compiled(key, view).coded_sets(column, len(times))
    if sets is None:
        return coded(query_sets(key, view, column, times))
    for limit in _time_limits(view):
        outside = limit.excluded(times)
        if outside.any():
            table = np.concatenate([sets.table, sets.table & ~limit.slots])
            sets = CodedSets(table, np.where(outside, sets.codes + np.int32(len(sets.table)), sets.codes))
    return sets


def _compiled(key: str, view: ViewSpec) -> PredicateIndex:
    at = _Plan(key, view.leaf.stream, view.leaf.occurrence, view.group)
    return _COMPILED.get_or_make(at, lambda: PredicateIndex(view.selections, view.words))


class _TimeLimit(NamedTuple):
    """Queries that exclude the same times: those in the gaps of their windows, those before their first window."""

    gaps: WindowLogic | None
    active_from: int | None
    slots: Words

    def excluded(self, times: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        outside = np.zeros(len(times), bool) if self.gaps is None else self.gaps.outside(times)
        if self.active_from is not None:
            outside |= times < self.active_from
        return outside


def _time_limits(view: ViewSpec) -> Iterator[_TimeLimit]:
    alike: dict[tuple[Window | None, int | None], list[int]] = {}
    for slot, window, active_from in view.windows:
        gaps = window if aligned(window) and logic_of(window).gaps else None
        if gaps is not None or active_from is not None:
            alike.setdefault((gaps, active_from), []).append(slot)
    for (gaps, active_from), slots in alike.items():
        logic = None if gaps is None else logic_of(gaps)
        yield _TimeLimit(logic, active_from, bitset(slots, view.words))
