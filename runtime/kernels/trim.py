"""Results whose length is known only at the end: arrays are allocated for the most there can be, then cut.

Mostly nearly all of an array is used, and then the result is a view of it: copying megabytes of query sets into fresh
memory costs about as much as computing them. If less than half is used, a copy lets the rest be freed.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt


def trim(array: npt.NDArray[Any], used: int) -> npt.NDArray[Any]:
    """The first `used` rows."""
    return array[:used] if 2 * used >= len(array) else array[:used].copy()
