"""The words of SQL that depend on what is loaded: aggregate functions and kinds of windows.

The built-in aggregates are always there, the built-in windows are part of the grammar; plug-ins add to both
(runtime.plugins). Whoever reads a statement is given a vocabulary, so that reading stays a function of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from optimizer.model.aggregates import BUILT_IN, AggregateFunction
from optimizer.model.windows import AlignedWindow

PLUGIN_HINT = "what a plug-in brings is there when the server was started with --plugin MODULE"
BUILT_IN_WINDOWS = frozenset({"TUMBLING", "HOPPING", "BETWEEN", "SESSION", "COUNT", "PUNCTUATED"})


@dataclass(frozen=True, slots=True)
class WindowKind:
    """What a plug-in's `WINDOW name (arguments)` means.

    `usage`: how it is written after WINDOW, for people. `make`: from arguments (int, float, str, and timedelta for a
    length of time) to the window; what it raises is shown to the user. `joins`: may several streams be joined in it?
    """

    name: str
    usage: str
    make: Callable[..., AlignedWindow]
    joins: Callable[[AlignedWindow], bool]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Names are in upper case."""

    functions: Mapping[str, AggregateFunction] = field(default_factory=lambda: BUILT_IN)
    windows: Mapping[str, WindowKind] = field(default_factory=dict)


PLAIN = Vocabulary()
"""Without plug-ins."""
