"""Result rows as hashable values, so that bags of them can be compared with a Counter.

Python says True == 1 == 1.0 and NaN != NaN; a result log may say neither. A frozen value therefore carries
its kind, and NaN is one value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

FrozenValue = tuple[str, Any]
ResultRow = tuple[int | None, int | None, tuple[tuple[str, FrozenValue], ...]]
"""(window_start, window_end, the row's columns ordered by name); a row without a window has None and None"""


def freeze(window_start: int | None, window_end: int | None, row: Mapping[str, Any]) -> ResultRow:
    return window_start, window_end, tuple((name, freeze_value(row[name])) for name in sorted(row))


def thaw(result: ResultRow) -> dict[str, Any]:
    return {name: math.nan if kind == "NaN" else value for name, (kind, value) in result[2]}


def freeze_value(value: Any) -> FrozenValue:
    if isinstance(value, float) and math.isnan(value):
        return "NaN", None
    return type(value).__name__, value
