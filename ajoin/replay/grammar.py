"""The grammar of one scenario line.

A line has exactly one leading key (`stream`, `create`, `event`, ...), which decides what else it must and
may carry; `SHAPES` is that grammar as data. Everything here raises `Malformed`, which knows what is wrong
but not where: the reader of the file adds the line number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from ajoin.replay.steps import (
    Action,
    CreateSql,
    Declare,
    EndEpoch,
    Feed,
    FeedFile,
    Punctuate,
    Restart,
    Step,
)
from runtime.api import DeleteQuery, ForceGroups, ForceOrder, Optimize, ScaleTo, SplitPartition, Unpin


class Malformed(Exception):
    def __init__(self, message: str, hint: str = "") -> None:
        self.message = message
        self.hint = hint


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str) or not value:
        raise Malformed(f"{key!r} must be a non-empty string, not {_show(value)}")
    return value


def _integer(value: Any, key: str, least: int | None = None) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        bound = "" if least is None else f" of at least {least}"
        raise Malformed(f"{key!r} must be an integer{bound}, not {_show(value)}")
    if not -(1 << 63) <= value < 1 << 63:
        raise Malformed(f"{key!r} must fit into 64 bits, not {value}")
    return value


def _object(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(f"{key!r} must be an object, not {_show(value)}")
    return value


def _choice(value: Any, key: str, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise Malformed(f"{key!r} must be {' or '.join(map(repr, choices))}, not {_show(value)}")
    return value


def _declare(line: dict[str, Any], _: Path) -> Action:
    schema = _object(line["schema"], "schema")
    if not schema:
        raise Malformed("'schema' must name at least one column")
    return Declare(
        _text(line["stream"], "stream"),
        tuple((_text(name, "schema"), _text(kind, f"schema.{name}")) for name, kind in schema.items()),
        _text(line["time"], "time"),
        _integer(line.get("watermark_delay_ms", 0), "watermark_delay_ms", 0),
        _integer(line.get("allowed_lateness_ms", 0), "allowed_lateness_ms", 0),
        *(_integer(line[key], key, 1) if key in line else None for key in ("max_ahead_ms", "max_jump_ms")),
    )


def _feed(line: dict[str, Any], _: Path) -> Action:
    return Feed(_text(line["event"], "event"), _object(line["row"], "row"))


def _feed_file(line: dict[str, Any], folder: Path) -> Action:
    return FeedFile(_text(line["events"], "events"), folder / _text(line["file"], "file"))


def _end_epoch(line: dict[str, Any], _: Path) -> Action:
    if line["epoch"] is not True:
        raise Malformed(f"'epoch' must be true, not {_show(line['epoch'])}")
    return EndEpoch()


def _force(line: dict[str, Any], _: Path) -> Action:
    force = _object(line["force"], "force")
    if "groups" in force:
        _only(force, ("groups",), where="'force' with 'groups'")
        groups = _object(force["groups"], "groups")
        return ForceGroups(tuple((id, _integer(group, f"groups.{id}", 0)) for id, group in groups.items()))
    _only(force, ("query", "order"), where="'force'")
    order = force["order"]
    if not isinstance(order, list):
        raise Malformed(f"'order' must be a nested list of aliases, not {_show(order)}")
    return ForceOrder(_text(force["query"], "query"), _order(order))


def _order(order: Any) -> Any:
    """Nested pairs; a longer list is read from left to right: [a, b, c] is [[a, b], c]."""
    if isinstance(order, str) and order:
        return order
    if not isinstance(order, list) or len(order) < 2:
        raise Malformed(f"'order' holds {_show(order)}", hint='it must be nested lists of aliases: [["V", "W"], "C"]')
    return reduce(lambda left, right: (left, right), [_order(part) for part in order])


def _scale(line: dict[str, Any], _: Path) -> Action:
    scale = _object(line["scale"], "scale")
    if "partitions" in scale:
        _only(scale, ("partitions",), where="'scale' with 'partitions'")
        return ScaleTo(_integer(scale["partitions"], "partitions"))
    _only(scale, ("split",), where="'scale'")
    split = _object(scale["split"], "split")
    _only(split, ("partition", "ways"), where="'split'")
    return SplitPartition(_integer(split["partition"], "partition"), _integer(split["ways"], "ways"))


def _unpin(line: dict[str, Any], _: Path) -> Action:
    """Everything, the scale, or one query."""
    what = line["unpin"]
    if isinstance(what, dict):
        _only(what, ("query",), where="'unpin'")
        return Unpin((_text(what["query"], "query"),))
    return Unpin(scale=True) if _choice(what, "unpin", ("all", "scale")) == "scale" else Unpin()


@dataclass(frozen=True, slots=True)
class _Shape:
    build: Callable[[dict[str, Any], Path], Action]
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


SHAPES: Mapping[str, _Shape] = {
    "stream": _Shape(
        _declare, ("schema", "time"), ("watermark_delay_ms", "allowed_lateness_ms", "max_ahead_ms", "max_jump_ms")
    ),
    "create": _Shape(lambda l, _: CreateSql(_text(l["create"], "create"), _text(l["sql"], "sql")), ("sql",)),
    "delete": _Shape(lambda l, _: DeleteQuery(_text(l["delete"], "delete"))),
    "event": _Shape(_feed, ("row",)),
    "events": _Shape(_feed_file, ("file",)),
    "epoch": _Shape(_end_epoch),
    "watermark": _Shape(lambda l, _: Punctuate(_text(l["watermark"], "watermark"), _integer(l["ts"], "ts")), ("ts",)),
    "optimize": _Shape(lambda l, _: Optimize(_choice(l["optimize"], "optimize", ("full", "incremental")))),
    "force": _Shape(_force),
    "unpin": _Shape(_unpin),
    "scale": _Shape(_scale),
    "restart": _Shape(lambda l, _: Restart(_choice(l["restart"], "restart", ("graceful", "kill")) == "graceful")),
}
"""Leading key -> how to read the line, and the other keys it must and may have (besides expect_error)."""


def parse_line(number: int, text: str, folder: Path) -> Step:
    try:
        line = json.loads(text, object_pairs_hook=_without_repetition)
    except json.JSONDecodeError as failure:
        raise Malformed(f"not valid JSON: {failure.msg} at column {failure.colno}") from None
    except (RecursionError, ValueError) as failure:
        raise Malformed(f"not usable JSON: {failure}") from None
    if not isinstance(line, dict):
        raise Malformed(f"must be a JSON object, not {_show(line)}")
    leading = [key for key in SHAPES if key in line]
    if not leading:
        raise Malformed("has no leading key", hint="expected one of " + ", ".join(SHAPES))
    if len(leading) > 1:
        raise Malformed(f"has more than one leading key: {', '.join(leading)}", hint="write one line for each")
    shape = SHAPES[leading[0]]
    _only(line, (leading[0], *shape.required), (*shape.optional, "expect_error"), f"a {leading[0]!r} line")
    expect_error = line.get("expect_error", False)
    if not isinstance(expect_error, bool):
        raise Malformed(f"'expect_error' must be true or false, not {_show(expect_error)}")
    return Step(number, shape.build(line, folder), expect_error)


def _only(given: Mapping[str, Any], required: tuple[str, ...], optional: tuple[str, ...] = (), where: str = "") -> None:
    """All of `required`, some of `optional`, nothing else."""
    for key in required:
        if key not in given:
            raise Malformed(f"{where} needs {key!r}")
    for key in given:
        if key not in required and key not in optional:
            known = ", ".join((*required, *optional))
            raise Malformed(f"{where} has an unknown key {key!r}", hint=f"known are {known}")


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise Malformed(f"the key {twice!r} appears twice in one object")
    return made


def _show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:37] + "..."
