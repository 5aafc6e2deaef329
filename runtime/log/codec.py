"""Frozen values to JSON and back, for everything the state directory remembers.

    dataclass                 {"$": class name, field: value, ...}
    several alike in a row    {"$rows": class name, "of": [[value, ...], ...]}   (named tuples: numbers and names)
    mapping                   {"$map": [[key, value], ...]}
    enum, offset, plan, ...   {"$is": class name, "value": what its converter says}
    infinite or no number     {"$float": text}
    what a plug-in brings     a dataclass with "$plugin": the module that must be loaded to read it

Tuples and lists become lists and come back as tuples. Only registered classes can be read, so a file in the state
directory can never name other code to run: a module that it names is not loaded but asked for (PLUGIN_MISSING). Reading
is strict: an unknown class or field is an InternalError with reason LOG_CORRUPT.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from optimizer.errors import AlreadyExists, FailedPrecondition, InternalError
from optimizer.model import expressions, plan, query, types, windows
from optimizer.model.aggregates import BUILT_IN
from optimizer.model.changelog import Changelog
from optimizer.model.codec import changelog_from_json, changelog_to_json, plan_from_json, plan_to_json
from runtime.aggregates import plugins


class _Converter(NamedTuple):
    kind: type
    to_json: Callable[[Any], Any]
    from_json: Callable[[Any], Any]


_CLASSES: dict[str, type] = {}
_FIELDS: dict[type, tuple[str, ...]] = {}
_CONVERTERS: dict[str, _Converter] = {}
_BROUGHT: dict[type, Callable[[Any], str | None]] = {}
"""Of classes whose values may need a plug-in: the module that brings what a value needs; None: it needs none, or nobody
brings it."""
_PLAIN = frozenset({int, str, bool, type(None)})
"""Exactly these, not what is derived from them: an enum is a str, too."""


def register(*classes: type) -> None:
    """Make dataclasses and named tuples readable; their names must be unique."""
    for c in classes:
        assert _CLASSES.setdefault(c.__name__, c) is c, c.__name__
        _FIELDS[c] = tuple(f.name for f in fields(c)) if is_dataclass(c) else c._fields  # type: ignore[attr-defined]


def register_brought(kind: type, module: str) -> None:
    """Make the values of a plug-in readable."""
    if _CLASSES.get(kind.__name__, kind) is not kind:
        raise AlreadyExists(f"there is a class {kind.__name__} in the log already", reason="PLUGIN_EXISTS")
    register(kind)
    _BROUGHT.setdefault(kind, lambda _: module)


def register_converted(kind: type, to_json: Callable[[Any], Any], from_json: Callable[[Any], Any]) -> None:
    """A class that knows a JSON value of its own."""
    _CONVERTERS[kind.__name__] = _Converter(kind, to_json, from_json)


register(types.Column, types.StreamSchema, plan.Leaf, plan.RunningQuery)
register(windows.PeriodicWindow, windows.FixedWindow, windows.SessionWindow, windows.CountWindow)
register(windows.PunctuatedWindow, windows.Unwindowed)
register(query.Source, query.EquiPredicate, query.Output, query.Query)
register(
    expressions.ColumnRef,
    expressions.Literal,
    expressions.WindowBound,
    expressions.GroupRef,
    expressions.Aggregate,
    expressions.Compare,
    expressions.Arithmetic,
    expressions.Negate,
    expressions.And,
    expressions.Or,
    expressions.Not,
    expressions.IsNull,
    expressions.InList,
    expressions.Like,
    expressions.Call,
    expressions.Case,
    expressions.Cast,
)
register_converted(types.ColumnType, str, types.ColumnType)
register_converted(plan.Plan, plan_to_json, plan_from_json)
register_converted(Changelog, changelog_to_json, changelog_from_json)
_BROUGHT[expressions.Aggregate] = lambda a: None if a.function in BUILT_IN else plugins.module_of(a.function)


def encode(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:  # most of a commit is numbers and names
        return value
    if kind is tuple or kind is list:
        return _encode_sequence(value)
    if kind in _FIELDS:
        out: dict[str, Any] = {"$": kind.__name__}
        if kind in _BROUGHT and (module := _BROUGHT[kind](value)) is not None:
            out["$plugin"] = module
        for f in _FIELDS[kind]:
            field = getattr(value, f)
            out[f] = field if type(field) in _PLAIN else encode(field)
        return out
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind.__name__ in _CONVERTERS:
        return {"$is": kind.__name__, "value": _CONVERTERS[kind.__name__].to_json(value)}
    assert isinstance(value, Mapping), f"{kind.__name__} is not registered"
    return {"$map": [[encode(k), encode(v)] for k, v in value.items()]}


def _encode_sequence(values: tuple[Any, ...] | list[Any]) -> Any:
    kind = type(values[0]) if values else None
    if kind in _FIELDS and issubclass(kind, tuple) and all(type(v) is kind for v in values):
        return {"$rows": kind.__name__, "of": [[v if type(v) in _PLAIN else encode(v) for v in row] for row in values]}
    return [v if type(v) in _PLAIN else encode(v) for v in values]


def decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple([decode(v) for v in value])
    if not isinstance(value, dict):
        return value
    if "$" in value:
        if "$plugin" in value:
            return _brought(value, value["$plugin"])
        return _object(_class(value["$"]), value)
    if "$rows" in value:
        kind = _class(value["$rows"])
        return tuple([_row(kind, row) for row in value["of"]])
    if "$map" in value:
        return {decode(k): decode(v) for k, v in value["$map"]}
    if "$float" in value:
        return float(value["$float"])
    converter = _CONVERTERS.get(value.get("$is", ""))
    if converter is None:
        raise _unknown(value.get("$is"))
    return converter.from_json(value["value"])


def _object(kind: type, value: dict[str, Any]) -> Any:
    if value.keys() - {"$", "$plugin"} != set(_FIELDS[kind]):
        raise _unknown(value["$"])
    return kind(**{f: decode(value[f]) for f in _FIELDS[kind]})


def _brought(value: dict[str, Any], module: Any) -> Any:
    kind = _CLASSES.get(value["$"])
    made = None if kind is None else _object(kind, value)
    if kind is None or kind not in _BROUGHT or _BROUGHT[kind](made) is None:
        what = getattr(made, "function", value["$"])
        raise FailedPrecondition(
            f"a query in this state uses {what} of the plug-in {module}, which is not loaded",
            reason="PLUGIN_MISSING",
            hint=f"start with --plugin {module}, or name it in the setting plugins",
        )
    return made


def _row(kind: Any, row: list[Any]) -> Any:
    """Of a named tuple; it may have got more numbers, which have defaults, since the row was written."""
    most = len(_FIELDS[kind])
    if not most - len(getattr(kind, "_field_defaults", ())) <= len(row) <= most:
        raise _unknown(kind.__name__)
    return kind(*(decode(v) for v in row))


def _class(name: Any) -> type:
    known = _CLASSES.get(name) if isinstance(name, str) else None
    if known is None:
        raise _unknown(name)
    return known


def _unknown(name: Any) -> InternalError:
    return InternalError(f"the log holds an unknown record {name!r}", reason="LOG_CORRUPT")
