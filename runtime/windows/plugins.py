"""Kinds of aligned windows that users bring: a value, its logic over arrays, and how both are written in SQL.

    WINDOW name (arguments)      arguments are constants: numbers, 'texts' or words, lengths of time

A plug-in registers the class of the value (`AlignedWindow`, a frozen dataclass of plain fields), the class of the logic
(`WindowLogic`) and `make`, which turns arguments into a value or raises. The driver asks the value at every epoch and
has nobody to blame if it fails. So a value is tried before a query may have it: it must come back from the log as it
was, and give answers that fit together, on both sides of 1970, far away, and through both interfaces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from inspect import signature
from typing import Any

import numpy as np

from optimizer.errors import AlreadyExists, InvalidRequest
from optimizer.model.vocabulary import BUILT_IN_WINDOWS, WindowKind
from optimizer.model.windows import AlignedWindow
from optimizer.model.windows.base import NEVER
from runtime.windows.base import WindowLogic
from runtime.windows.registry import KINDS, logic_of

PLAIN = (int, float, str, bool)
TRIED = (0, 1, -1, 951_782_400_000, 1_700_000_000_000, -2_208_988_800_001, 1 << 50, -(1 << 50))
"""Times at which a window is asked."""


@dataclass(frozen=True, slots=True)
class WindowPlugin:
    """`usage`: how it is written after WINDOW, for people: "CALENDAR (unit [, 'time zone'])"."""

    name: str
    usage: str
    value: type[Any]
    logic: type[WindowLogic]
    make: Callable[..., AlignedWindow]


_registered: dict[str, WindowPlugin] = {}


def register(plugin: WindowPlugin) -> None:
    """Registering the same plug-in again changes nothing."""
    name = plugin.name
    if not (name.isidentifier() and name.isascii() and name.isupper()):
        raise InvalidRequest(
            f"a window cannot be called {name!r}",
            reason="PLUGIN_INVALID",
            hint="capital letters, digits and _, beginning with a letter",
        )
    if name in BUILT_IN_WINDOWS or _registered.get(name, plugin) != plugin:
        raise AlreadyExists(f"there is a window {name} already", reason="PLUGIN_EXISTS")
    if not is_dataclass(plugin.value) or not getattr(plugin.value, "__dataclass_params__").frozen:  # noqa: B009
        raise _broken(name, f"{plugin.value.__name__} is no frozen dataclass")
    if KINDS.setdefault(plugin.value, plugin.logic) is not plugin.logic:
        raise AlreadyExists(f"{plugin.value.__name__} has another logic already", reason="PLUGIN_EXISTS")
    _registered[name] = plugin


def kinds() -> Mapping[str, WindowKind]:
    """What plug-ins add to the windows of SQL."""
    return {name: WindowKind(name, p.usage, _making(p), _joins) for name, p in _registered.items()}


def _making(plugin: WindowPlugin) -> Callable[..., AlignedWindow]:
    def make(*arguments: object) -> AlignedWindow:
        try:
            signature(plugin.make).bind(*arguments)
        except TypeError:
            given = f"{len(arguments)} argument" + ("" if len(arguments) == 1 else "s")
            raise ValueError(f"it cannot be written with {given}") from None
        window = plugin.make(*arguments)
        if type(window) is not plugin.value:
            raise _broken(plugin.name, f"it made a {type(window).__name__}, not a {plugin.value.__name__}")
        check(plugin.name, window)
        return window

    return make


def _joins(window: AlignedWindow) -> bool:
    return logic_of(window).shape is not None


def check(name: str, window: AlignedWindow) -> None:
    """Raises InvalidRequest with what does not fit together."""
    for field in fields(window):
        if type(getattr(window, field.name)) not in PLAIN:
            raise _broken(name, f"its field {field.name} is no number, text or truth value, so the log cannot hold it")
    if not isinstance(window, AlignedWindow) or window.most_per_tuple < 1 or window.length_ms < 0 or not window.sql:
        raise _broken(name, "it does not say all that an aligned window must")
    hash(window)
    logic = logic_of(window)
    for time in TRIED:
        start = window.first_start_at_or_after(time)
        if start >= NEVER:
            continue
        end = window.end(start)
        if not time <= start < end:
            raise _broken(name, f"the first window from {time} on is [{start}, {end})")
        if window.closed(start, end - 1) or not window.closed(start, end):
            raise _broken(name, f"[{start}, {end}) must close at {end}, not before")
        if window.first_alive(start) > start or not window.first_start_at_or_after(start) == start:
            raise _broken(name, f"the window that starts at {start} must be alive at {start}")
        inside = np.array([start, end - 1], np.int64)
        first, beyond = logic.numbers(inside, inside, start)
        for at in range(2):
            mine = np.arange(first[at], beyond[at], dtype=np.int64)
            starts = logic.starts_of(mine)
            where = np.flatnonzero(starts == start)
            if len(where) != 1 or int(logic.ends(starts)[where[0]]) != end:
                raise _broken(name, f"its logic does not find [{start}, {end}) at {int(inside[at])}")
            number = int(mine[where[0]])
            if not logic.last_closed(end - 1) < number <= logic.last_closed(end):
                raise _broken(name, f"its logic must close [{start}, {end}) at {end}")


def _broken(name: str, what: str) -> InvalidRequest:
    return InvalidRequest(
        f"the window plug-in {name} is not right: {what}", reason="PLUGIN_INVALID", hint="its author must mend it"
    )
