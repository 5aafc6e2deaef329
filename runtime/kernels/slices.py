"""Slices: the finest pieces of event time that no running window cuts.

The edges of all running queries' windows cut time into slices (Scotty's stream slicing); two tuples of one slice lie
in exactly the same windows of every query. A slice is named by its start, an event time: so the question whether two
slices share a window of a query is arithmetic on two numbers, needs no table of slices, and stays true when later
plans cut time more finely (a new query never looks at older tuples, so the coarser old slices are fine enough for
it).
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]


@nb.njit(cache=True, nogil=True)
def slice_starts(times: I64, sizes: I64, advances: I64) -> I64:
    """Latest window edge at or before each time, over all window shapes [k*advance, k*advance + size).

    Neighbours mostly lie in one slice; only where they do not, the edges are looked at.
    """
    n = times.shape[0]
    out = np.empty(n, np.int64)
    best = following = np.int64(0)
    for i in range(n):
        t = times[i]
        if not best <= t < following:
            best = (t // advances[0]) * advances[0]
            following = best + advances[0]
            for w in range(sizes.shape[0]):
                a = advances[w]
                edge = (t // a) * a
                best, following = max(best, edge), min(following, edge + a)
                edge = ((t - sizes[w]) // a) * a + sizes[w]
                best, following = max(best, edge), min(following, edge + a)
        out[i] = best
    return out
