"""What queries share, as a value: the paper's way, and two others that exist to be measured against.

    cost      the platform as it is: query groups by cost, closed lists, one bucket per read for everybody
    off       every query has a group, buckets and indexes of its own, as if it were a job of its own
    astream   one group for all, and joined lists are opened at once, as the predecessor of AJoin did

Neither of the last two is ever re-optimized.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SharingName = Literal["cost", "off", "astream"]


@dataclass(frozen=True, slots=True)
class Sharing:
    """`optimized`: groups and orders follow cost. `own_groups`: else, each query has a group of its own, or all are in
    one. `own_buckets`: one bucket per read and group instead of one per read. `closed_lists`: late materialization."""

    name: SharingName
    optimized: bool = True
    own_groups: bool = False
    own_buckets: bool = False
    closed_lists: bool = True


SHARING: Mapping[SharingName, Sharing] = {
    mode.name: mode
    for mode in (
        Sharing("cost"),
        Sharing("off", optimized=False, own_groups=True, own_buckets=True),
        Sharing("astream", optimized=False, closed_lists=False),
    )
}
