"""Sources and sinks. `registry` knows them all; it is loaded on first use.

Every Spark task that loads a read imports this package, and most need one connector of all there are.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runtime.connectors.registry import (
        SINKS,
        SOURCES,
        check_options,
        check_sink,
        check_source,
        make_sink,
        make_source,
    )

__all__ = ["SINKS", "SOURCES", "check_options", "check_sink", "check_source", "make_sink", "make_source"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("runtime.connectors.registry"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
