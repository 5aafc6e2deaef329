"""Constants: numbers, strings, TIMESTAMP '...' and INTERVAL '...', turned into typed values.

An INTERVAL is a BIGINT count of milliseconds, because the difference of two TIMESTAMPs is one too.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from sqlglot import exp

from ajoin.sql.places import sql_error
from ajoin.sql.reasons import Reason
from optimizer.model.expressions import Literal
from optimizer.model.types import ColumnType

UNIT_MS = {
    unit: ms
    for names, ms in (
        ("MS MILLISECOND MILLISECONDS", 1),
        ("S SECOND SECONDS", 1_000),
        ("MINUTE MINUTES", 60_000),
        ("HOUR HOURS", 3_600_000),
        ("DAY DAYS", 86_400_000),
    )
    for unit in names.split()
}
MAX_WINDOW_MS = 100 * 366 * 86_400_000  # a hundred years: event time plus a window length can then never overflow
_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?)?Z?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def number(sql: str, node: exp.Literal, *, negative: bool) -> Literal:
    """Whole numbers are INT when they fit 32 bits, else BIGINT; a point or an exponent makes a DOUBLE."""
    sign = "-" if negative else ""
    text = sign + node.name
    if re.fullmatch(r"-?\d+", text, re.ASCII):
        # Every 64-bit value has fewer than 20 digits; int() of a very long text would be slow or refused.
        digits = node.name.lstrip("0") or "0"
        whole = int(sign + digits) if len(digits) < 20 else _INT64.stop
        if whole not in _INT64:
            message = f"{text[:40]} does not fit into 64 bits"
            raise sql_error(sql, node, Reason.LITERAL_OUT_OF_RANGE, message, "write a DOUBLE: 1e20")
        return Literal(whole, ColumnType.INT if whole in _INT32 else ColumnType.BIGINT)
    try:
        value = float(text)
    except ValueError:
        raise sql_error(sql, node, Reason.INVALID_LITERAL, f"{text[:40]!r} is not a number") from None
    if math.isinf(value):
        raise sql_error(sql, node, Reason.LITERAL_OUT_OF_RANGE, f"{text[:40]} does not fit into a DOUBLE")
    return Literal(value, ColumnType.DOUBLE)


def timestamp(sql: str, node: exp.Literal) -> Literal:
    """Milliseconds since the epoch; the text is UTC."""
    text = node.name.strip()
    try:
        if not _TIMESTAMP.fullmatch(text):
            raise ValueError(text)
        at = datetime.fromisoformat(text.rstrip("Z")).replace(tzinfo=UTC)
    except ValueError:
        raise sql_error(
            sql,
            node,
            Reason.INVALID_LITERAL,
            f"{node.name[:40]!r} is not a TIMESTAMP",
            "write TIMESTAMP '2024-01-31 23:59:59.999' (UTC, at most milliseconds)",
        ) from None
    return Literal((at - _EPOCH) // timedelta(milliseconds=1), ColumnType.TIMESTAMP)


def interval_ms(sql: str, node: exp.Interval, reason: Reason = Reason.INVALID_LITERAL) -> int:
    """The length of `INTERVAL '10 seconds'`, `INTERVAL '10' SECOND`, or of a length in a WINDOW clause."""
    amount, unit = node.this, node.args.get("unit")
    if not (isinstance(amount, exp.Literal) and re.fullmatch(r"-?\d{1,18}(\.\d{1,9})?", amount.name, re.ASCII)):
        raise sql_error(sql, node, reason, "a length of time is one number and one unit", "write it like 90 SECONDS")
    factor = UNIT_MS.get(unit.name.upper()) if isinstance(unit, exp.Var) else None
    if factor is None:
        what = f"unknown time unit {unit.sql()[:40]!r}" if unit else "a length of time needs a unit"
        raise sql_error(sql, node, reason, what, "use MILLISECONDS, SECONDS, MINUTES, HOURS or DAYS")
    exact = Decimal(amount.name) * factor
    if exact != exact.to_integral_value():
        message = f"{amount.name} {unit.name if unit else ''} is not a whole number of milliseconds"
        raise sql_error(sql, node, reason, message, "times are counted in milliseconds")
    ms = int(exact)
    if ms not in _INT64:
        raise sql_error(sql, node, reason, "this length of time does not fit into 64 bits")
    return ms


def window_length(sql: str, node: exp.Interval) -> int:
    ms = interval_ms(sql, node, Reason.INVALID_WINDOW)
    if not 0 < ms <= MAX_WINDOW_MS:
        message = "a window length must be positive and at most a hundred years"
        raise sql_error(sql, node, Reason.INVALID_WINDOW, message)
    return ms
