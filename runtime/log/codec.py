"""Frozen dataclasses to JSON and back, for everything the state directory remembers.

A dataclass becomes {"$": class name, field: value, ...}; tuples and lists become lists and come back as tuples; enums
travel as their value. Only the classes registered here can be read, so a file in the state directory can never name
other code to run. Reading is strict: an unknown class or field is an InternalError with reason LOG_CORRUPT.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from optimizer.errors import InternalError
from optimizer.model import expressions, plan, query, types
from optimizer.model.types import ColumnType
from runtime.windows.registry import KINDS

_CLASSES: dict[str, type] = {}
_FIELDS: dict[type, tuple[str, ...]] = {}
_PLAIN = frozenset({int, str, bool, type(None)})
"""Exactly these, not what is derived from them: an enum is a str, too."""


def register(*classes: type) -> None:
    """Make classes readable; their names must be unique."""
    for c in classes:
        assert _CLASSES.setdefault(c.__name__, c) is c, c.__name__
        _FIELDS[c] = tuple(f.name for f in fields(c))


register(types.Column, types.StreamSchema, plan.Leaf, plan.RunningQuery)
register(*KINDS, query.Source, query.EquiPredicate, query.Output, query.JoinQuery)
register(
    expressions.ColumnRef,
    expressions.Literal,
    expressions.WindowBound,
    expressions.CountAll,
    expressions.Compare,
    expressions.Arithmetic,
    expressions.Negate,
    expressions.And,
    expressions.Or,
    expressions.Not,
    expressions.IsNull,
    expressions.InList,
    expressions.Like,
)


def encode(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:  # most of a commit is numbers and names
        return value
    name = kind.__name__
    if kind in _FIELDS:
        out: dict[str, Any] = {"$": name}
        for f in _FIELDS[kind]:
            field = getattr(value, f)
            out[f] = field if type(field) in _PLAIN else encode(field)
        return out
    if isinstance(value, Enum):
        return {"$e": value.value}
    if isinstance(value, (tuple, list)):
        return [encode(v) for v in value]
    if isinstance(value, dict):
        assert all(isinstance(k, str) for k in value)
        return {"$d": {k: encode(v) for k, v in value.items()}}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"$f": repr(value)}
    assert not is_dataclass(kind), f"{name} is not registered"
    return value


def decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(decode(v) for v in value)
    if not isinstance(value, dict):
        return value
    if "$e" in value:
        return ColumnType(value["$e"])
    if "$f" in value:
        return float(value["$f"])
    if "$d" in value:
        return {k: decode(v) for k, v in value["$d"].items()}
    name = value.get("$")
    found = _CLASSES.get(name) if isinstance(name, str) else None
    if found is None or set(value) - {"$"} != set(_FIELDS[found]):
        raise InternalError(f"the log holds an unknown record {name!r}", reason="LOG_CORRUPT")
    return found(**{f: decode(value[f]) for f in _FIELDS[found]})
