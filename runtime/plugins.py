"""Plug-ins: modules that bring aggregate functions and windows, named by whoever starts the platform.

A plug-in is code that runs inside the driver and all workers, so it never comes from a client: statements use the names
that plug-ins brought, the log says which module brought them, and neither can load one. A module is loaded by importing
it, once per process: in the driver before the state is opened, because the state may need it, and in a worker before
its first task (runtime.spark.executor sends the names along). While it is imported it registers what it brings.

Everything is registered for the whole process and stays: code that was imported cannot be taken back either.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Iterable

from optimizer.errors import InvalidRequest
from optimizer.model.aggregates import BUILT_IN
from optimizer.model.vocabulary import Vocabulary
from runtime.aggregates import plugins as aggregates
from runtime.aggregates.plugins import AggregatePlugin
from runtime.log import codec
from runtime.windows import plugins as windows
from runtime.windows.plugins import WindowPlugin

GROUP = "ajoin.plugins"
"""Entry points of installed packages that name a module each."""

_loaded: list[str] = []
_loading = ""


def installed() -> tuple[str, ...]:
    """Modules that installed packages offer as plug-ins."""
    return tuple(sorted({entry.module for entry in importlib.metadata.entry_points(group=GROUP)}))


def load(modules: Iterable[str]) -> None:
    """Import what was not loaded yet. InvalidRequest with reason CONFIG_PLUGIN, if one cannot be."""
    global _loading
    for module in modules:
        if module in _loaded:
            continue
        before, _loading = _loading, module
        try:
            importlib.import_module(module)
        except Exception as failure:
            raise InvalidRequest(
                f"the plug-in {module} cannot be loaded: {type(failure).__name__}: {failure}",
                reason="CONFIG_PLUGIN",
                hint="a plug-in is a module that Python can import, here and on every machine that runs tasks: "
                "installed, or in a folder of PYTHONPATH",
            ) from failure
        finally:
            _loading = before
        _loaded.append(module)


def loaded() -> tuple[str, ...]:
    """What was loaded, in this order; a worker needs the same."""
    return tuple(_loaded)


def register_aggregate(plugin: AggregatePlugin) -> None:
    """`name(arguments)` in SELECT and HAVING."""
    aggregates.register(plugin, _loading)


def register_window(plugin: WindowPlugin) -> None:
    """`WINDOW name (arguments)`."""
    windows.register(plugin)
    codec.register_brought(plugin.value, _loading or plugin.value.__module__)


def vocabulary() -> Vocabulary:
    """The words of SQL, with those of all plug-ins that are loaded."""
    return Vocabulary({**BUILT_IN, **aggregates.functions()}, windows.kinds())
