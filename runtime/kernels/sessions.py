"""Sessions: runs of pieces of one group that are at most a gap apart.

Entries come in the order of groups, and inside a group mostly in the order of time, because epochs follow time. So a
group is looked at first and sorted only if it is not in order: one pass over all entries instead of a sort.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from runtime.kernels.csr import sort_run
from runtime.kernels.kinds import INTS

I64 = npt.NDArray[np.int64]


@nb.njit([(INTS, INTS, INTS, INTS, nb.int64)], cache=True, nogil=True)
def cut_sessions(entries: I64, groups: I64, lo: I64, hi: I64, gap: int):  # type: ignore[no-untyped-def]
    """(the entries by group, then time, where each session begins among them, the last time of each session).

    `entries` are in the order of their groups; `groups`, `lo` and `hi` are of all entries there are. A session begins
    where a piece [lo, hi] is more than `gap` behind all before it in its group; pieces may overlap.
    """
    n = entries.shape[0]
    order = np.empty(n, np.int32)
    spare = np.empty(n, np.int32)
    begins = np.empty(n, np.int64)
    lasts = np.empty(n, np.int64)
    for i in range(n):
        order[i] = entries[i]
    count = 0
    a = 0
    while a < n:
        group = groups[order[a]]
        b = a + 1
        sorted_ = True
        while b < n and groups[order[b]] == group:
            sorted_ = sorted_ and lo[order[b]] >= lo[order[b - 1]]
            b += 1
        if not sorted_:
            sort_run(order, spare, a, b, lo, lo, lo)
        for i in range(a, b):
            e = order[i]
            if i == a or lo[e] - lasts[count - 1] > gap:
                begins[count] = i
                lasts[count] = hi[e]
                count += 1
            else:
                lasts[count - 1] = max(lasts[count - 1], hi[e])
        a = b
    return order, begins[:count].copy(), lasts[:count].copy()


@nb.njit(cache=True, nogil=True)
def session_begins(groups: I64, lo: I64, hi: I64, gap: int) -> npt.NDArray[np.bool_]:
    """The same for pieces that are in the order of group, then lo: True where a session begins."""
    n = groups.shape[0]
    begins = np.zeros(n, np.bool_)
    last = np.int64(0)
    for i in range(n):
        if i == 0 or groups[i] != groups[i - 1] or lo[i] - last > gap:
            begins[i] = True
            last = hi[i]
        else:
            last = max(last, hi[i])
    return begins
