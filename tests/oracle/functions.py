"""Scalar functions over plain Python values, one at a time: what docs/sql.md says, in the most obvious way.

Arguments are already evaluated; NULL is None. Times are milliseconds; dates come from Python's own calendar, which
knows the years 1 to 9999: others are moved there by whole cycles of 400 years, after which the calendar repeats,
weekdays included.
"""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from optimizer.model.types import ColumnType

T = ColumnType
EPOCH = datetime(1970, 1, 1)
CYCLE_YEARS, CYCLE_MS = 400, 146_097 * 86_400_000
BITS = {T.INT: 32, T.BIGINT: 64, T.TIMESTAMP: 64}
EXACT = Context(prec=2000, Emax=100_000, Emin=-100_000)


def wrapped(value: int, type_: ColumnType) -> int:
    half = 1 << (BITS[type_] - 1)
    return (value + half) % (2 * half) - half


def call(name: str, arguments: list[Any], types: list[ColumnType], type_: ColumnType) -> Any:
    if name == "COALESCE":
        known = [a for a in arguments if a is not None]
        return as_type(known[0], type_) if known else None
    if name == "NULLIF":
        a, b = arguments
        return None if a is not None and b is not None and equal(a, types[0], b, types[1]) else a
    if any(a is None for a in arguments):
        return None
    match name:
        case "GREATEST" | "LEAST":
            return extreme(name, [as_type(a, type_) for a in arguments])
        case "ABS":
            value = arguments[0]
            return math.fabs(value) if type_ == T.DOUBLE else wrapped(abs(value), type_)
        case "ROUND":
            return rounded(arguments[0], arguments[1] if len(arguments) > 1 else 0, type_)
        case "FLOOR" | "CEIL":
            value = arguments[0]
            if type_ != T.DOUBLE or not math.isfinite(value):
                return value
            whole = math.floor(value) if name == "FLOOR" else math.ceil(value)
            return math.copysign(float(whole), value)
        case "POWER":
            return power(float(arguments[0]), float(arguments[1]))
        case "SQRT":
            return math.sqrt(arguments[0]) if arguments[0] >= 0 else math.copysign(math.nan, 1)
        case "LN":
            value = float(arguments[0])
            return math.log(value) if value > 0 else -math.inf if value == 0 else math.nan
        case "EXTRACT":
            return extract(*arguments)
        case "DATE_TRUNC":
            return truncated(*arguments)
    return text_call(name, arguments)


def text_call(name: str, arguments: list[Any]) -> Any:
    text = arguments[0]
    match name:
        case "UPPER":
            return text.upper()
        case "LOWER":
            return text.lower()
        case "LENGTH":
            return len(text)
        case "CONCAT":
            return "".join(arguments)
        case "SUBSTRING":
            return substring(*arguments)
        case "TRIM" | "LTRIM" | "RTRIM":
            unwanted = arguments[1] if len(arguments) > 1 else " "
            while name != "RTRIM" and text and text[0] in unwanted:
                text = text[1:]
            while name != "LTRIM" and text and text[-1] in unwanted:
                text = text[:-1]
            return text
        case "REPLACE":
            old, new = arguments[1:]
            return new.join(text.split(old)) if old else text
        case "STARTS_WITH":
            return text[: len(arguments[1])] == arguments[1]
        case "REGEXP_LIKE":
            return re.search(arguments[1], text) is not None
    raise TypeError(f"unknown function {name}")


def as_type(value: Any, type_: ColumnType) -> Any:
    return float(value) if type_ == T.DOUBLE else value


def equal(a: Any, a_type: ColumnType, b: Any, b_type: ColumnType) -> bool:
    return float(a) == float(b) if T.DOUBLE in (a_type, b_type) else a == b


def extreme(name: str, values: list[Any]) -> Any:
    """NaN is greater than any other number; of equal values the first."""
    best = values[0]
    for value in values[1:]:
        if name == "GREATEST" and (value != value or value > best):
            best = value
        if name == "LEAST" and (best != best or value < best):
            best = value
    return best


def rounded(value: Any, places: int, type_: ColumnType) -> Any:
    if type_ == T.DOUBLE and not math.isfinite(value):
        return value
    if abs(places) > 600:
        places = 600 if places > 0 else -600
    shifted = Decimal(repr(value)).scaleb(places, EXACT)
    result = shifted.to_integral_value(ROUND_HALF_UP, EXACT).scaleb(-places, EXACT)
    if type_ == T.DOUBLE:
        return math.copysign(float(result), value)
    return wrapped(int(result), type_)


def power(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        odd = exponent % 2 == 1
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:
        if base == 0:  # to a negative power
            odd = exponent % 2 == 1
            return math.copysign(math.inf, base) if odd else math.inf
        return math.nan


def substring(text: str, start: int, length: int | None = None) -> str | None:
    if length is not None and length < 0:
        return None
    if start == 0:
        start = 1
    if start < 0:
        start = len(text) + start + 1
        if start < 1:
            return ""
    stop = len(text) if length is None else start - 1 + length
    return "".join(c for i, c in enumerate(text) if start - 1 <= i < stop)


def moment(ms: int) -> tuple[datetime, int]:
    """A date of the years that Python knows, and how many cycles away it is."""
    cycles = (ms - 946_684_800_000) // CYCLE_MS  # from 2000 on
    return EPOCH + timedelta(milliseconds=ms - cycles * CYCLE_MS), cycles


def extract(field: str, ms: int) -> int:
    at, cycles = moment(ms)
    year, week, weekday = at.isocalendar()
    match field:
        case "MILLISECOND":
            return at.microsecond // 1000
        case "SECOND":
            return at.second
        case "MINUTE":
            return at.minute
        case "HOUR":
            return at.hour
        case "DAY":
            return at.day
        case "MONTH":
            return at.month
        case "QUARTER":
            return [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4][at.month - 1]
        case "YEAR":
            return at.year + cycles * CYCLE_YEARS
        case "WEEK":
            return week
        case "ISOYEAR":
            return year + cycles * CYCLE_YEARS
        case "ISODOW":
            return weekday
        case "DOW":
            return {7: 1, 1: 2, 2: 3, 3: 4, 4: 5, 5: 6, 6: 7}[weekday]
        case "DOY":
            return at.timetuple().tm_yday
        case "EPOCH":
            return math.floor(Decimal(ms) / 1000)
    raise TypeError(f"unknown field {field}")


def truncated(unit: str, ms: int) -> int:
    at, cycles = moment(ms)
    fields = {"MILLISECOND": 6, "SECOND": 6, "MINUTE": 5, "HOUR": 4, "DAY": 3, "WEEK": 3, "MONTH": 2, "QUARTER": 2}
    parts = [at.year, at.month, at.day, at.hour, at.minute, at.second][: fields.get(unit, 1)]
    start = datetime(*(parts + [1] * (3 - len(parts))))  # type: ignore[arg-type]
    if unit == "MILLISECOND":
        start = at
    if unit == "WEEK":
        start -= timedelta(days=at.weekday())
    if unit == "QUARTER":
        start = start.replace(month={1: 1, 2: 4, 3: 7, 4: 10}[extract("QUARTER", ms)])
    return wrapped((start - EPOCH) // timedelta(milliseconds=1) + cycles * CYCLE_MS, T.BIGINT)


# -- CAST


def cast(value: Any, given: ColumnType, to: ColumnType) -> Any:
    if value is None or given == to:
        return value
    if given == T.STRING:
        return read(value.strip(" "), to)
    match to:
        case T.STRING:
            return written(value, given)
        case T.BOOLEAN:
            return value != 0
        case T.DOUBLE:
            return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return fitting(int(value), to)


def fitting(value: int, to: ColumnType) -> int | None:
    return value if wrapped(value, to) == value else None


def read(text: str, to: ColumnType) -> Any:
    if not text.isascii():
        return None
    number = re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)", text)
    match to:
        case T.BOOLEAN:
            return {
                **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
                **dict.fromkeys(("false", "f", "no", "n", "0"), False),
            }.get(text.lower())
        case T.INT | T.BIGINT:
            return fitting(int(Decimal(text)), to) if number else None
        case T.DOUBLE:
            if text.lower() in ("nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"):
                return float(text)
            return float(text) if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text) else None
    time = re.fullmatch(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?Z?", text)
    if not time:
        return None
    day, clock, second, fraction = time.groups()
    try:
        at = datetime.strptime(f"{day} {clock or '00:00'}:{second or '00'}", "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return None
    if second is not None and int(second) > 59:
        return None
    return (at - EPOCH) // timedelta(milliseconds=1) + int(Decimal("0." + (fraction or "0")) * 1000)


def written(value: Any, given: ColumnType) -> str | None:
    if given == T.BOOLEAN:
        return "TRUE" if value else "FALSE"
    if given == T.TIMESTAMP:
        try:
            return (EPOCH + timedelta(milliseconds=value)).isoformat(sep=" ", timespec="milliseconds")
        except OverflowError:
            return None
    if given != T.DOUBLE:
        return str(value)
    if not math.isfinite(value):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}[repr(value)]
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text, point = "".join(map(str, digits)), len(digits) + int(exponent)
    minus = "-" if sign else ""
    if value == 0:
        return minus + "0.0"
    if abs(value) < 1e-3 or abs(value) >= 1e7:
        return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{text}"
    text = text.ljust(point, "0")
    return f"{minus}{text[:point]}.{text[point:] or '0'}"
