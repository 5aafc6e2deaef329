"""CAST over whole columns: a value that has no counterpart in the other type is NULL, nothing fails.

    number -> number      towards zero; NaN, infinities and what does not fit are NULL
    number -> BOOLEAN     zero is FALSE
    STRING -> any         spaces around it do not count; a fraction of an integer is cut off
    any    -> STRING      as Flink writes it: 1.0E10, TRUE, 2024-01-31 00:00:00.000
    TIMESTAMP <-> BIGINT  milliseconds since 1970

Texts are read and written once per distinct value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from optimizer.model.types import INTEGERS, ColumnType
from runtime.columns.column import NUMPY_TYPES, ColumnData, from_arrow
from runtime.columns.texts import over_distinct
from runtime.connectors.base import ARROW_TYPES

_T = ColumnType
_WHOLE = re.compile(r"([+-]?)0*(\d+)(?:\.\d*)?|([+-]?)\.\d+", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?)|nan", re.ASCII | re.IGNORECASE)
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?Z?",
    re.ASCII,
)
_TRUE = frozenset({"true", "t", "yes", "y", "1"})
_FALSE = frozenset({"false", "f", "no", "n", "0"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999
_RANGES = {_T.INT: range(-(1 << 31), 1 << 31), _T.BIGINT: range(-(1 << 63), 1 << 63)}


def cast(column: ColumnData, to: ColumnType) -> ColumnData:
    given = column.type
    if given is to:
        return column
    if given is _T.STRING:
        read = _READERS[to]
        return over_distinct(
            [column], to, lambda texts: pa.array([read(t.strip(" ")) for t in texts[0].to_pylist()], _ARRAYS[to])
        )
    if to is _T.STRING:
        return _written(column)
    if to is _T.BOOLEAN:
        return ColumnData(to, (column.values != 0).astype(np.uint8), column.valid)
    if to in INTEGERS:
        return _whole(column, to)
    return ColumnData(to, column.values.astype(NUMPY_TYPES[to]), column.valid)


def _whole(column: ColumnData, to: ColumnType) -> ColumnData:
    values = column.values
    if values.dtype == np.float64:
        values = np.trunc(values)
        # the bounds are powers of two and so exact; the largest integers are not
        fits = (values >= float(_RANGES[to].start)) & (values < float(_RANGES[to].stop))
    elif to is _T.INT and values.dtype == np.int64:
        fits = (values >= _RANGES[to].start) & (values < _RANGES[to].stop)
    else:
        return ColumnData(to, values.astype(NUMPY_TYPES[to]), column.valid)
    plain = np.where(fits, values, 0).astype(NUMPY_TYPES[to])
    if fits.all():
        return ColumnData(to, plain, column.valid)
    return ColumnData(to, plain, column.mask & fits)


# -- from texts


def _read_whole(text: str, among: range) -> int | None:
    match = _WHOLE.fullmatch(text)
    if match is None:
        return None
    sign, digits, _ = match.groups()
    if digits is None:
        return 0
    if len(digits) > 19:  # int() of a very long text would be slow or refused
        return None
    value = -int(digits) if sign == "-" else int(digits)
    return value if value in among else None


def _read_float(text: str) -> float | None:
    return float(text) if _FLOAT.fullmatch(text) else None


def _read_boolean(text: str) -> bool | None:
    word = text.lower()
    return True if word in _TRUE else False if word in _FALSE else None


def _read_time(text: str) -> int | None:
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction = match.groups()
    try:
        at = datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=UTC)
    except ValueError:
        return None
    return (at - _EPOCH) // timedelta(milliseconds=1) + int((fraction or "0")[:3].ljust(3, "0"))


_READERS: dict[ColumnType, Callable[[str], Any]] = {
    _T.INT: lambda text: _read_whole(text, _RANGES[_T.INT]),
    _T.BIGINT: lambda text: _read_whole(text, _RANGES[_T.BIGINT]),
    _T.DOUBLE: _read_float,
    _T.BOOLEAN: _read_boolean,
    _T.TIMESTAMP: _read_time,
}
_ARRAYS = {**ARROW_TYPES, _T.TIMESTAMP: pa.int64()}


# -- to texts


def _written(column: ColumnData) -> ColumnData:
    if column.type is _T.BOOLEAN:
        return ColumnData(_T.STRING, column.values.astype(np.int32), column.valid, pa.array(["FALSE", "TRUE"]))
    bits = column.values.view(np.int64) if column.type is _T.DOUBLE else column.values  # both zeros, any NaN
    distinct, codes = np.unique(bits, return_inverse=True)
    texts = from_arrow(_texts(distinct.view(column.values.dtype), column.type), _T.STRING).take(codes)
    valid = column.valid if texts.valid is None else texts.valid & column.mask
    return ColumnData(_T.STRING, texts.values, valid, texts.dictionary)


def _texts(values: npt.NDArray[Any], type: ColumnType) -> pa.StringArray:
    if type is _T.DOUBLE:
        return pa.array([_float_text(v) for v in values.tolist()], pa.string())
    if type is not _T.TIMESTAMP:
        return pa.array(values).cast(pa.string())
    inside = (values >= _FIRST_MS) & (values <= _LAST_MS)
    written = np.datetime_as_string(np.where(inside, values, 0).astype("datetime64[ms]"))
    texts = [text.replace("T", " ") for text in written.tolist()]
    return pa.array(texts, pa.string(), mask=~inside)


def _float_text(value: float) -> str:
    """The fewest digits that tell it apart; in full from 0.001 to below 10,000,000, else with an exponent."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return np.format_float_positional(value, trim="0")
    mantissa, exponent = np.format_float_scientific(value, trim="0", exp_digits=1).split("e")
    return f"{mantissa}E{int(exponent)}"
