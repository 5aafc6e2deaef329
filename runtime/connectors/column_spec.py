"""The little language of the generator's `column.<name>` options.

A column is described by a small text, `parse` turns it into a frozen value:

    seq  seq(start)           start + i (INT starts again at 2^31)
    uniform(lo,hi)            whole numbers lo..hi, both included; DOUBLE: lo <= x < hi
    zipf(n,s)                 1..n, k with a probability proportional to 1 / k^s
    choice(a|b|c)             each equally likely
    weights(a:5|b:3|c:1)      likely in these proportions
    const(x)                  always x
    bool(p)                   true with probability p
    normal(mean,std)          bell curve; rounded for whole-number columns
    null(p, <any of these>)   NULL with probability p

Whole numbers can fill BIGINT, INT, DOUBLE, TIMESTAMP (as milliseconds) and STRING (as text) columns.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from optimizer.model.types import ColumnType
from runtime.connectors.distributions import (
    Bool,
    Choice,
    Const,
    Distribution,
    Normal,
    Null,
    Seq,
    Uniform,
    UniformReal,
    Zipf,
)

MAX_ZIPF = 10_000_000
_SHAPE = re.compile(r"\s*([a-z]+)\s*(?:\((.*)\))?\s*", re.DOTALL | re.IGNORECASE)
_WHOLE_TYPES = {ColumnType.BIGINT, ColumnType.INT, ColumnType.TIMESTAMP}
KNOWN = ("seq", "uniform", "zipf", "choice", "weights", "const", "bool", "normal", "null")


DEFAULTS: dict[ColumnType, Distribution] = {
    ColumnType.BIGINT: Uniform(0, 99_999),
    ColumnType.INT: Uniform(0, 999),
    ColumnType.DOUBLE: UniformReal(0.0, 1.0),
    ColumnType.STRING: Choice(("a", "b", "c", "d", "e", "f", "g", "h")),
    ColumnType.BOOLEAN: Bool(0.5),
}
"""What a column holds when nothing is said. TIMESTAMP is missing: such a column repeats the event time."""


def parse(text: str, type: ColumnType) -> Distribution:
    """Raises ValueError with the reason when the text is not a distribution for a column of this type."""
    shape = _SHAPE.fullmatch(text)
    if shape is None or shape[1].lower() not in KNOWN:
        raise ValueError("expected one of " + ", ".join(KNOWN))
    name, inside = shape[1].lower(), shape[2] or ""
    args = [a.strip() for a in inside.split(",")] if inside.strip() else []
    numeric = type is not ColumnType.BOOLEAN
    match name, args:
        case "seq", [] | [_] if numeric:
            return Seq(_literal(args[0], ColumnType.BIGINT) if args else 0)
        case "uniform", [low, high] if type is ColumnType.DOUBLE:
            return UniformReal(*_ordered(_real(low), _real(high)))
        case "uniform", [low, high] if numeric:
            kind = type if type in _WHOLE_TYPES else ColumnType.BIGINT
            return Uniform(*_ordered(_literal(low, kind), _literal(high, kind)))
        case "zipf", [n, s] if numeric:
            return Zipf(_zipf_n(n), _positive(s))
        case "choice", [_, *_]:
            return Choice(tuple(_literal(v, type) for v in inside.split("|")))
        case "weights", [_, *_]:
            return _weights(inside, type)
        case "const", _:
            return Const(_literal(inside, type))
        case "bool", [p] if type is ColumnType.BOOLEAN:
            return Bool(_probability(p))
        case "normal", [mean, std] if type in _WHOLE_TYPES or type is ColumnType.DOUBLE:
            return Normal(_real(mean), _positive(std))
        case "null", [p, _, *_]:
            return Null(_probability(p), parse(inside.split(",", 1)[1], type))
    raise ValueError(f"{name} with {len(args)} argument(s) does not fit a {type} column")


def _literal(text: str, type: ColumnType) -> Any:
    text = text.strip()
    match type:
        case ColumnType.STRING:
            return text
        case ColumnType.DOUBLE:
            return _real(text)
        case ColumnType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ValueError(f"{text!r} is neither true nor false")
            return text.lower() == "true"
        case _:
            width = 31 if type is ColumnType.INT else 63
            try:
                value = int(text)
            except ValueError:
                raise ValueError(f"{text!r} is not a whole number") from None
            if not -(2**width) <= value < 2**width:
                raise ValueError(f"{text} does not fit a {type} column")
            return value


def _real(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not math.isfinite(value):
        raise ValueError(f"{text} is not finite")
    return value


def _positive(text: str) -> float:
    value = _real(text)
    if value < 0:
        raise ValueError(f"{text} is below 0")
    return value


def _probability(text: str) -> float:
    value = _real(text)
    if not 0 <= value <= 1:
        raise ValueError(f"{text} is not a probability between 0 and 1")
    return value


def _zipf_n(text: str) -> int:
    n = int(_literal(text, ColumnType.BIGINT))
    if not 1 <= n <= MAX_ZIPF:
        raise ValueError(f"zipf needs 1 to {MAX_ZIPF} values, not {n}")
    return n


def _ordered(low: Any, high: Any) -> tuple[Any, Any]:
    if low > high:
        raise ValueError(f"{low} is above {high}")
    return low, high


def _weights(inside: str, type: ColumnType) -> Choice:
    pairs = [part.rpartition(":") for part in inside.split("|")]
    if any(not colon for _, colon, _ in pairs):
        raise ValueError("weights are written value:weight|value:weight")
    shares = [_positive(weight) for _, _, weight in pairs]
    total = math.fsum(shares)
    if total <= 0:
        raise ValueError("all weights are 0")
    steps = np.cumsum(shares) / total
    return Choice(tuple(_literal(value, type) for value, _, _ in pairs), tuple(steps.tolist()))
