"""Results whose length is known only at the end: made in as much room as they could take, then cut.

Mostly nearly all of the room is used, and then the result stays where it is: copying megabytes of query sets into fresh
memory costs about as much as computing them. If less than half of it is used, a copy lets go of the rest.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt


def trimmed(used: int, *columns: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], ...]:
    return tuple(c[:used] if 2 * used >= len(c) else c[:used].copy() for c in columns)
