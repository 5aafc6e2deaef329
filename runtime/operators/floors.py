"""Floors: from when on a query still takes tuples.

The windows that start before a query's floor are closed for good, and buckets that only they needed are gone. Where
tuples or combinations from before the floor can still turn up, the query's bit is taken off them: their partners may be
missing, so they must not match anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from runtime.columns.querysets import Words, remove_slot


class Floor(NamedTuple):
    """The query in this slot of this group takes nothing before `time`."""

    group: int
    slot: int
    time: int


def apply_floors(floors: Iterable[Floor], group: int, sets: Words, times: npt.NDArray[np.int64]) -> None:
    """Take the bits off the rows of `sets` whose time lies below the floor."""
    for floor in floors:
        if floor.group == group:
            remove_slot(sets, times < floor.time, floor.slot)
