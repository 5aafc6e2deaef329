"""From tuples to query sets, at a cost that does not grow with the number of queries.

Evaluating hundreds of WHERE clauses one by one would take time per query. Instead, per column, the constants of all
queries' conditions on that column are sorted; between and at them lie elementary intervals inside which no condition
changes its value. Each interval (and NULL) has one precomputed bitset of the queries whose conditions on this column
are TRUE there. A tuple then costs one binary search per column (integer constants that lie near each other: one look
into a table) and one AND per 64 queries.

Why it is right: a condition built from comparisons of one column with constants, IN, IS NULL, AND, OR, NOT depends only
on the position of the value among the constants. Position 2i+1 is "equal to constant i", position 2i lies below it. So
the very same expression, with the column replaced by positions and constants by their positions, is evaluated once
on all positions by the ordinary evaluator; no second interpretation of SQL exists.

For STRING columns any condition on that column alone (LIKE and functions too) is evaluated on the dictionary, once per
distinct text. What does not fit (several columns, arithmetic) is evaluated tuple by tuple, vectorised, and clears bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from optimizer.model import expressions as ex
from optimizer.model.types import ColumnType
from runtime.columns.coded_sets import CodedSets
from runtime.columns.column import ColumnData
from runtime.columns.pieces import truth_in_pieces
from runtime.columns.querysets import bitset, remove_slot
from runtime.kernels.coding import numbers_of
from runtime.kernels.sets import intersect_with_table

U64 = npt.NDArray[np.uint64]


MOST_KINDS = 1 << 20
"""Combinations of intervals that a table of numbers may have."""


NEAR = 1 << 16
"""Integers from the smallest constant to the greatest that a table may have."""

FAR = 1 << 62
"""Beyond, neighbours of a constant may not be integers of 64 bits."""


@dataclass(frozen=True, slots=True)
class Selection:
    """One query's condition on a stream; None selects everything."""

    slot: int
    condition: ex.Expr | None


class PredicateIndex:
    """Compiled selections of one stream. `query_sets` may be called for any number of batches."""

    def __init__(self, selections: Sequence[Selection], words: int) -> None:
        self.words = words
        self.all = bitset([s.slot for s in selections], words)
        ordered: dict[str, list[tuple[int, ex.Expr]]] = {}
        texts: dict[str, list[tuple[int, ex.Expr]]] = {}
        self.rest: list[tuple[int, ex.Expr]] = []
        for s in selections:
            for c in ex.conjuncts(s.condition) if s.condition is not None else ():
                columns = {r.column: r.type for r in ex.columns_of(c)}
                if len(columns) == 1 and next(iter(columns.values())) is ColumnType.STRING:
                    texts.setdefault(next(iter(columns)), []).append((s.slot, c))
                elif len(columns) == 1 and _positional(c):
                    ordered.setdefault(next(iter(columns)), []).append((s.slot, c))
                else:
                    self.rest.append((s.slot, c))
        self.texts = texts
        self.ordered = {name: _Intervals(conditions, self.all) for name, conditions in ordered.items()}

    def query_sets(self, column: Callable[[str], ColumnData], rows: int) -> U64:
        """One bitset row per tuple: the queries whose selection it passes."""
        sets = np.tile(self.all, (rows, 1))
        if rows == 0:
            return sets
        for name, intervals in self.ordered.items():
            intersect_with_table(sets, intervals.table, intervals.locate(column(name)))
        for name, conditions in self.texts.items():
            intersect_with_table(sets, *self._by_text(column(name), conditions))
        for slot, condition in self.rest:
            remove_slot(sets, ~truth_in_pieces(condition, lambda ref: column(ref.column), rows), slot)
        return sets

    def coded_sets(self, column: Callable[[str], ColumnData], rows: int) -> CodedSets | None:
        """The same, numbered: a number per combination of intervals. None: there are conditions over several columns or
        too many combinations, and words per tuple are the better way."""
        if self.rest:
            return None
        sets = CodedSets(self.all.reshape(1, -1), np.zeros(rows, np.int32))
        if rows == 0:
            return sets
        located = [(i.table, i.locate(column(name))) for name, i in self.ordered.items()]
        located += [self._by_text(column(name), conditions) for name, conditions in self.texts.items()]
        for table, places in located:
            size = len(sets.table) * len(table)
            if size > MOST_KINDS:
                return None
            pairs = sets.codes * np.int64(len(table)) + places if len(sets.table) > 1 else places
            distinct, codes = numbers_of(pairs.astype(np.int64, copy=False), size)
            both = sets.table[distinct // len(table)] & table[distinct % len(table)]
            sets = CodedSets(both, codes)
        return sets

    def _by_text(self, data: ColumnData, conditions: list[tuple[int, ex.Expr]]) -> tuple[U64, npt.NDArray[np.int64]]:
        """Table over the dictionary (last entry: NULL), and each tuple's place in it."""
        size = len(data.dictionary) if data.dictionary is not None else 0
        codes = np.append(np.arange(size, dtype=np.int32), np.int32(0))
        known = np.append(np.ones(size, bool), False)
        texts = ColumnData(ColumnType.STRING, codes, known, data.dictionary if size else pa.array([""], pa.string()))
        table = _table(conditions, self.all, lambda _: texts, size + 1)
        places = data.values.astype(np.int64)
        return table, places if data.valid is None else np.where(data.valid, places, size)


class _Intervals:
    """Elementary intervals of one ordered column and their bitsets; the last table row stands for NULL."""

    def __init__(self, conditions: list[tuple[int, ex.Expr]], everyone: U64) -> None:
        literals = [lit for _, c in conditions for lit in _literals(c) if lit.value is not None]
        kind = next(r.type for _, c in conditions for r in ex.columns_of(c))
        as_double = kind is ColumnType.DOUBLE
        self.dtype = np.float64 if as_double else np.int64
        values = np.array([lit.value for lit in literals], self.dtype)
        self.bounds = np.unique(values[~np.isnan(values)] if as_double else values)
        size = 2 * len(self.bounds) + 1
        positions = np.append(np.arange(size, dtype=np.int64), 0)
        known = np.append(np.ones(size, bool), False)
        data = ColumnData(ColumnType.BIGINT, positions, known)
        placed = [(slot, _replace(c, self.bounds)) for slot, c in conditions]
        self.table = _table(placed, everyone, lambda _: data, size + 1)
        self.null = size
        # NaN lies in no interval: comparisons with it are FALSE, except <>. The conditions are evaluated on it once,
        # as one more row of the table.
        nan = ColumnData(ColumnType.DOUBLE, np.array([np.nan]))
        self.table = np.vstack([self.table, _table(conditions, everyone, lambda _: nan, 1)])
        self.nan = size + 1
        self.near = self._near()

    def locate(self, data: ColumnData) -> npt.NDArray[np.int64]:
        values = data.values.astype(self.dtype, copy=False)
        if self.near is not None:
            low, near = self.near
            places = near[np.clip(values, low, low + len(near) - 1) - low]
        else:
            places = self._search(values)
        if self.dtype is np.float64:
            places = np.where(np.isnan(values), self.nan, places)
        return places if data.valid is None else np.where(data.valid, places, self.null)

    def _search(self, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        below = np.searchsorted(self.bounds, values, "left")
        places: npt.NDArray[np.int64] = below + np.searchsorted(self.bounds, values, "right")
        return places

    def _near(self) -> tuple[int, npt.NDArray[np.int64]] | None:
        """(the smallest, the place of every integer from it on): from below all constants to above them."""
        if self.dtype is np.float64 or not len(self.bounds):
            return None
        low, high = int(self.bounds[0]) - 1, int(self.bounds[-1]) + 1
        if high - low >= NEAR or low < -FAR or high > FAR:
            return None
        return low, self._search(np.arange(low, high + 1, dtype=np.int64))


def _table(
    conditions: list[tuple[int, ex.Expr]],
    everyone: U64,
    lookup: Callable[[ex.ColumnRef], ColumnData],
    rows: int,
) -> U64:
    table = np.tile(everyone, (rows, 1))
    for slot, condition in conditions:
        remove_slot(table, ~truth_in_pieces(condition, lookup, rows), slot)
    return table


def _positional(expr: ex.Expr) -> bool:
    """Does the value of `expr` depend only on where its one column stands among constants?"""
    match expr:
        case ex.And(operands) | ex.Or(operands):
            return all(_positional(o) for o in operands)
        case ex.Not(operand):
            return _positional(operand)
        case ex.IsNull(operand):
            return isinstance(operand, ex.ColumnRef)
        case ex.InList(operand, values):
            return isinstance(operand, ex.ColumnRef) and all(_same_scale(operand, v) for v in values)
        case ex.Compare(_, ex.ColumnRef() as column, ex.Literal() as constant):
            return _same_scale(column, constant)
        case ex.Compare(_, ex.Literal() as constant, ex.ColumnRef() as column):
            return _same_scale(column, constant)
        case _:
            return False


def _same_scale(column: ex.ColumnRef, constant: ex.Literal) -> bool:
    """An integer column against a DOUBLE constant compares as DOUBLE, which would blur its other constants. NaN has no
    place among constants at all."""
    if constant.value != constant.value:
        return False
    return column.type is ColumnType.DOUBLE or constant.type is not ColumnType.DOUBLE


def _literals(expr: ex.Expr) -> list[ex.Literal]:
    if isinstance(expr, ex.Literal):
        return [expr]
    own = list(expr.values) if isinstance(expr, ex.InList) else []
    return own + [lit for child in ex.children(expr) for lit in _literals(child)]


def _replace(expr: ex.Expr, bounds: npt.NDArray[np.generic]) -> ex.Expr:
    """The expression over positions: constant number i becomes 2i + 1."""
    match expr:
        case ex.Literal(value, _):
            if value is None:
                return ex.Literal(None, ColumnType.BIGINT)
            return ex.Literal(2 * int(np.searchsorted(bounds, value, "left")) + 1, ColumnType.BIGINT)
        case ex.ColumnRef(alias, column, _):
            return ex.ColumnRef(alias, column, ColumnType.BIGINT)
        case ex.And(operands):
            return ex.And(tuple(_replace(o, bounds) for o in operands))
        case ex.Or(operands):
            return ex.Or(tuple(_replace(o, bounds) for o in operands))
        case ex.Not(operand):
            return ex.Not(_replace(operand, bounds))
        case ex.IsNull(operand):
            return ex.IsNull(_replace(operand, bounds))
        case ex.InList(operand, values):
            placed = tuple(_replace(v, bounds) for v in values)
            return ex.InList(_replace(operand, bounds), tuple(v for v in placed if isinstance(v, ex.Literal)))
        case ex.Compare(op, left, right):
            return ex.Compare(op, _replace(left, bounds), _replace(right, bounds))
        case _:
            raise TypeError(type(expr).__name__)
