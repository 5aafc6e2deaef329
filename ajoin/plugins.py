"""What a plug-in imports: a module that brings aggregate functions or kinds of windows.

    ajoin serve --plugin my_module

    register_aggregate(AggregatePlugin(...))   `NAME(x)` in SELECT and HAVING
    register_window(WindowPlugin(...))         `WINDOW NAME (...)`

Two examples are ajoin.examples.geo_mean and ajoin.examples.calendar_windows. Registering happens while the module is
imported. docs/plugins.md is the guide; runtime.aggregates.plugins, runtime.windows.plugins and runtime.plugins say the
rules. Workers import this module, so it knows neither gRPC nor SQL.
"""

from __future__ import annotations

from optimizer.model.aggregates import ANY, AggregateFunction
from optimizer.model.types import INTEGERS, NUMBERS, ColumnType
from optimizer.model.windows import AlignedWindow, ConsecutiveWindow
from runtime.aggregates.plugins import AggregatePlugin, Parts
from runtime.plugins import register_aggregate, register_window
from runtime.windows.base import Holding, Shape, WindowLogic
from runtime.windows.consecutive import Consecutive
from runtime.windows.plugins import WindowPlugin

__all__ = [
    "ANY",
    "INTEGERS",
    "NUMBERS",
    "AggregateFunction",
    "AggregatePlugin",
    "AlignedWindow",
    "ColumnType",
    "Consecutive",
    "ConsecutiveWindow",
    "Holding",
    "Parts",
    "Shape",
    "WindowLogic",
    "WindowPlugin",
    "register_aggregate",
    "register_window",
]
