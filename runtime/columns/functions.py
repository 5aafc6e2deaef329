"""The scalar functions of optimizer.model.functions over whole columns.

A function gets its arguments as columns and, where SQL asks for a constant (a unit, a pattern, a number of digits), the
constant itself. It is NULL where an argument is, and never fails: integers wrap, DOUBLE follows IEEE 754 (the root or
logarithm of a negative number is NaN), so a branch of CASE that a row does not take does no harm to it.

Texts are handled once per distinct text (runtime.columns.texts). A regular expression is RE2's, which needs time linear
in the text whatever the pattern.

ROUND works on the decimal digits that the number is written with, as Flink does: ROUND(1.005, 2) is 1.01, although the
nearest DOUBLE is a little less than 1.005. The usual case is binary arithmetic; only numbers so close to a tie that it
could err are looked at digit by digit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.model.expressions import Value
from optimizer.model.types import ColumnType
from runtime.columns import times
from runtime.columns.column import NUMPY_TYPES, ColumnData, decoded, from_arrow
from runtime.columns.texts import all_valid, chosen, over_distinct

_T = ColumnType
F64 = npt.NDArray[np.float64]
Arguments = Sequence[ColumnData]
Constants = Sequence[Value]
_EXACT_POWER = 22  # the greatest power of ten that a DOUBLE holds exactly
_MOST_DIGITS = 400  # beyond this nothing is left to round, or everything


def call(function: str, arguments: Arguments, constants: Constants, type: ColumnType) -> ColumnData:
    """`constants[i]` is the value of argument i if it is a constant."""
    if function in _CHOOSING:
        return _CHOOSING[function](arguments, type)
    if function in _NUMERIC:
        with np.errstate(all="ignore"):
            return ColumnData(type, _NUMERIC[function](arguments, constants, type), all_valid(arguments))
    return _TEXTUAL[function](arguments, constants)


# -- choosing


def _coalesce(arguments: Arguments, type: ColumnType) -> ColumnData:
    which = np.full(len(arguments[0]), -1, np.int64)
    for number, argument in enumerate(arguments):
        which[(which < 0) & argument.mask] = number
    return chosen(arguments, which, type)


def _extreme(arguments: Arguments, type: ColumnType, greatest: bool) -> ColumnData:
    """Of equal values the first; NaN is greater than all other numbers."""
    if type is _T.STRING:
        pick = pc.max_element_wise if greatest else pc.min_element_wise
        return from_arrow(pick(*(decoded(a) for a in arguments), skip_nulls=False), type)

    def better(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.where((b > a) | (b != b) if greatest else (b < a) | (a != a), b, a)

    values = reduce(better, [a.values.astype(NUMPY_TYPES[type], copy=False) for a in arguments])
    return ColumnData(type, values, all_valid(arguments))


_CHOOSING: dict[str, Callable[[Arguments, ColumnType], ColumnData]] = {
    "COALESCE": _coalesce,
    "GREATEST": lambda arguments, type: _extreme(arguments, type, greatest=True),
    "LEAST": lambda arguments, type: _extreme(arguments, type, greatest=False),
}


# -- numbers and times


def _double(column: ColumnData) -> F64:
    return column.values.astype(np.float64, copy=False)


def _cut(whole: Callable[[Any], Any]) -> Callable[[Arguments, Constants, ColumnType], npt.NDArray[Any]]:
    return lambda a, _, type: whole(a[0].values) if type is _T.DOUBLE else a[0].values


def _round(arguments: Arguments, constants: Constants, type: ColumnType) -> npt.NDArray[Any]:
    digits = constants[1] if len(constants) > 1 else 0
    places = max(-_MOST_DIGITS, min(_MOST_DIGITS, digits if isinstance(digits, int) else 0))
    values = arguments[0].values
    return _round_doubles(values, places) if type is _T.DOUBLE else _round_integers(values, places)


def _round_integers(values: npt.NDArray[Any], places: int) -> npt.NDArray[Any]:
    if places >= 0:
        return values
    if places < -19:
        return np.zeros_like(values)
    unit = np.uint64(10**-places)
    wide = values.astype(np.int64)
    size = np.where(wide < 0, -wide, wide).view(np.uint64)
    rest = size % unit
    rounded = (size - rest + np.where(rest >= unit - rest, unit, np.uint64(0))).view(np.int64)
    return np.where(wide < 0, -rounded, rounded).astype(values.dtype)


def _round_doubles(values: F64, places: int) -> F64:
    if abs(places) > _EXACT_POWER:
        unsure = np.isfinite(values)
        rounded = values.copy()
    else:
        power = float(10 ** abs(places))
        size = np.abs(values)
        scaled = size * power if places >= 0 else size / power
        below = np.floor(scaled)
        whole = below + (scaled - below >= 0.5)
        rounded = np.copysign(whole / power if places >= 0 else whole * power, values)
        # scaling errs by half a unit in the last place, and so does the decimal text of the number
        near = np.abs(scaled - below - 0.5) <= scaled * 2.0**-50
        unsure = np.isfinite(values) & (near | (scaled >= 2.0**50))
        rounded = np.where(np.isfinite(values), rounded, values)
    for row in np.flatnonzero(unsure):
        rounded[row] = _round_text(float(values[row]), places)
    return rounded


def _round_text(value: float, places: int) -> float:
    digits = Decimal(repr(value))
    _, _, exponent = digits.as_tuple()
    if isinstance(exponent, int) and -exponent <= places:
        return value
    if digits.adjusted() + 1 < -places:  # less than half of the unit
        return 0.0 * value
    shifted = digits.scaleb(places).to_integral_value(ROUND_HALF_UP)
    return float(shifted.scaleb(-places)) if shifted else 0.0 * value


def _power(arguments: Arguments, _: Constants, __: ColumnType) -> npt.NDArray[Any]:
    return np.asarray(pc.power(pa.array(_double(arguments[0])), pa.array(_double(arguments[1]))))


_NUMERIC: dict[str, Callable[[Arguments, Constants, ColumnType], npt.NDArray[Any]]] = {
    "ABS": lambda a, _, __: np.abs(a[0].values),
    "FLOOR": _cut(np.floor),
    "CEIL": _cut(np.ceil),
    "ROUND": _round,
    # Arrow's, not numpy's: it computes every row the same way on every machine
    "POWER": _power,
    "LN": lambda a, _, __: np.asarray(pc.ln(pa.array(_double(a[0])))),
    "SQRT": lambda a, _, __: np.sqrt(_double(a[0])),
    "EXTRACT": lambda a, c, _: times.extract(str(c[0]), a[1].values),
    "DATE_TRUNC": lambda a, c, _: times.truncate(str(c[0]), a[1].values),
}


# -- texts


def _cased(arguments: Arguments, ascii: Callable[[pa.Array], pa.Array], full: Callable[[str], str]) -> ColumnData:
    """Unicode's full mapping: 'ß' becomes 'SS', a Σ at the end of a word ς."""

    def texts(given: list[pa.Array]) -> pa.Array:
        if pc.all(pc.string_is_ascii(given[0])).as_py() is not False:
            return ascii(given[0])
        return pa.array([full(t) for t in given[0].to_pylist()], pa.string())

    return over_distinct(arguments, _T.STRING, texts)


def _row_by_row(arguments: Arguments, type: ColumnType, function: Callable[..., Any]) -> ColumnData:
    kind = pa.bool_() if type is _T.BOOLEAN else pa.string()
    return over_distinct(
        arguments, type, lambda given: pa.array([function(*row) for row in zip(*_lists(given), strict=True)], kind)
    )


def _lists(given: list[pa.Array]) -> list[list[Any]]:
    return [array.to_pylist() for array in given]


def _substring(text: str, start: int, length: int | None = None) -> str | None:
    """Positions count from 1 and, if negative, from the end; 0 is 1."""
    if length is not None and length < 0:
        return None
    at = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    if at < 0:
        return ""
    return text[at:] if length is None else text[at : at + length]


def _trimmed(arguments: Arguments, constants: Constants, trim: Any, method: Callable[[str, str], str]) -> ColumnData:
    if len(arguments) == 1 or isinstance(constants[1], str):
        characters = str(constants[1]) if len(arguments) > 1 else " "
        if not characters:
            return arguments[0]
        return over_distinct(arguments[:1], _T.STRING, lambda given: trim(given[0], characters=characters))
    return _row_by_row(arguments, _T.STRING, method)


def _replace(arguments: Arguments, constants: Constants) -> ColumnData:
    old, new = constants[1], constants[2]
    if not isinstance(old, str) or not isinstance(new, str) or not old:
        return over_distinct(arguments, _T.STRING, lambda given: given[0])
    return over_distinct(
        arguments[:1], _T.STRING, lambda given: pc.replace_substring(given[0], pattern=old, replacement=new)
    )


def _regexp_like(arguments: Arguments, constants: Constants) -> ColumnData:
    pattern = constants[1]
    if not isinstance(pattern, str):
        return over_distinct(arguments, _T.BOOLEAN, lambda given: pa.nulls(len(given[0]), pa.bool_()))
    return over_distinct(arguments[:1], _T.BOOLEAN, lambda given: pc.match_substring_regex(given[0], pattern=pattern))


_TEXTUAL: dict[str, Callable[[Arguments, Constants], ColumnData]] = {
    "UPPER": lambda a, _: _cased(a, pc.ascii_upper, str.upper),
    "LOWER": lambda a, _: _cased(a, pc.ascii_lower, str.lower),
    "LENGTH": lambda a, _: over_distinct(a, _T.INT, lambda given: pc.utf8_length(given[0])),
    "CONCAT": lambda a, _: over_distinct(a, _T.STRING, lambda given: pc.binary_join_element_wise(*given, "")),
    "SUBSTRING": lambda a, _: _row_by_row(a, _T.STRING, _substring),
    "TRIM": lambda a, c: _trimmed(a, c, pc.utf8_trim, str.strip),
    "LTRIM": lambda a, c: _trimmed(a, c, pc.utf8_ltrim, str.lstrip),
    "RTRIM": lambda a, c: _trimmed(a, c, pc.utf8_rtrim, str.rstrip),
    "REPLACE": _replace,
    "STARTS_WITH": lambda a, _: _row_by_row(a, _T.BOOLEAN, str.startswith),
    "REGEXP_LIKE": _regexp_like,
}
