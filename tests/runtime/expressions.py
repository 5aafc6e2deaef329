"""Random expressions over one row of every type, and rows to try them on.

Values sit at the boundaries: NULL, NaN, infinities, both zeros, the largest integers, texts that sort oddly. Constants
are drawn from the same few values, so that comparisons hit exactly all the time.
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from optimizer.model import expressions as ex
from optimizer.model.types import ColumnType as T
from optimizer.model.types import common_type
from runtime.columns.column import ColumnData, from_arrow
from runtime.connectors.base import ARROW_TYPES

COLUMNS = {"k": T.BIGINT, "j": T.INT, "d": T.DOUBLE, "s": T.STRING, "b": T.BOOLEAN, "u": T.TIMESTAMP, "k2": T.BIGINT}
VALUES: dict[T, list[Any]] = {
    T.BIGINT: [0, 1, -1, 7, (1 << 53) + 1, (1 << 63) - 1, -(1 << 63)],
    T.INT: [0, 1, -1, 7, (1 << 31) - 1, -(1 << 31)],
    T.DOUBLE: [0.0, -0.0, 1.0, -1.5, 7.0, 1e300, float(1 << 53), math.inf, -math.inf, math.nan],
    T.STRING: ["", "a", "ab", "b", "B", "a%", "é", "é", "\U0001f600", "a_b", "ä\n"],
    T.BOOLEAN: [True, False],
    T.TIMESTAMP: [0, 1, -1, 1_700_000_000_000],
}
PATTERNS = ["%", "a%", "%b", "_", "__", "a!%", "%é%", "", "!", "a!_b", "%_%"]
OPS = ["=", "<>", "<", "<=", ">", ">="]
NUMBERS = [T.BIGINT, T.INT, T.DOUBLE]


def ref(name: str) -> ex.ColumnRef:
    return ex.ColumnRef("a", name, COLUMNS[name])


def constants(type: T) -> st.SearchStrategy[ex.Literal]:
    """NaN is not among them: SQL has no way to write it."""
    plain = [v for v in VALUES[type] if v == v]
    return st.sampled_from([None, *plain]).map(lambda v: ex.Literal(v, type))


def columns(type: T) -> st.SearchStrategy[ex.Expr]:
    return st.sampled_from([ref(c) for c, t in COLUMNS.items() if t is type])


@st.composite
def numbers(draw: st.DrawFn, depth: int = 2) -> ex.Expr:
    """BIGINT, INT, DOUBLE or TIMESTAMP expressions."""
    kind = draw(st.sampled_from([*NUMBERS, T.TIMESTAMP]))
    if depth == 0 or draw(st.integers(0, 2)) == 0:
        return draw(st.one_of(columns(kind), constants(kind)))
    left, right = draw(numbers(depth - 1)), draw(numbers(depth - 1))
    shared = common_type(left.type, right.type)
    if shared is None or shared is T.TIMESTAMP:
        return left
    if draw(st.integers(0, 4)) == 0:
        return ex.Negate(left, left.type)
    return ex.Arithmetic(draw(st.sampled_from(["+", "-", "*", "/", "%"])), left, right, shared)


@st.composite
def comparisons(draw: st.DrawFn, depth: int = 1) -> ex.Expr:
    kind = draw(st.integers(0, 9))
    type = draw(st.sampled_from(list(T)))
    column = draw(columns(type))
    if kind < 4:
        # a number may stand beside a constant of another number type
        other = draw(st.sampled_from(NUMBERS)) if type in NUMBERS else type
        sides = [column, draw(constants(other))]
        return ex.Compare(draw(st.sampled_from(OPS)), *(sides if draw(st.booleans()) else sides[::-1]))
    if kind == 4:
        return ex.IsNull(column)
    if kind == 5:
        return ex.InList(column, tuple(draw(st.lists(constants(type), min_size=1, max_size=4))))
    if kind == 6:
        escape = draw(st.sampled_from([None, "!"]))
        return ex.Like(ref("s"), draw(st.sampled_from(PATTERNS)), escape)
    if kind == 7:
        return ref("b")
    if kind == 8 and type not in NUMBERS:
        return ex.Compare(draw(st.sampled_from(OPS)), column, draw(columns(type)))
    left, right = draw(numbers(depth)), draw(numbers(depth))
    if common_type(left.type, right.type) is None:
        right = left
    return ex.Compare(draw(st.sampled_from(OPS)), left, right)


def conditions(leaves: int = 6) -> st.SearchStrategy[ex.Expr]:
    def combined(inner: st.SearchStrategy[ex.Expr]) -> st.SearchStrategy[ex.Expr]:
        several = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return st.one_of(several.map(ex.And), several.map(ex.Or), inner.map(ex.Not))

    return st.recursive(comparisons(), combined, max_leaves=leaves)


def rows(max_size: int = 12) -> st.SearchStrategy[list[dict[str, Any]]]:
    fields = {c: st.sampled_from([None, *VALUES[t]]) for c, t in COLUMNS.items()}
    return st.lists(st.fixed_dictionaries(fields), max_size=max_size)


def as_columns(given: list[dict[str, Any]]) -> dict[str, ColumnData]:
    """The rows as the source operator has them: through Arrow."""
    return {c: from_arrow(pa.array([r[c] for r in given], ARROW_TYPES[t]), t) for c, t in COLUMNS.items()}


def as_values(data: ColumnData) -> list[Any]:
    """Back to plain Python; None for NULL."""
    array = data.to_arrow()
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    return array.to_pylist()
