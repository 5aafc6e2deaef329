"""Where sessions begin: runs of pieces of one group that are at most a gap apart."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]


@nb.njit(cache=True, nogil=True)
def session_begins(groups: I64, lo: I64, hi: I64, gap: int) -> npt.NDArray[np.bool_]:
    """Pieces [lo, hi] in order of group, then lo. True where a piece is more than `gap` behind all before it in its
    group; pieces may overlap."""
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
