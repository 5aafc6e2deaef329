"""Count windows that overlap, without laying out every tuple once per window.

The edges of the windows that close cut a group's tuples into pieces, and a window is a run of neighbouring pieces. So
each tuple is folded once, into its piece, and windows are combined from pieces, whose number is at most twice that of
the windows: tuples + windows steps instead of tuples * size / advance. COUNT (SIZE 1000000 ADVANCE BY 1000) would
otherwise look at every tuple a thousand times.

All runs of all groups stand behind one another in one sequence of pieces. No window reaches over the end of a run, and
nothing is subtracted, so what is in one group never touches a number of another: counts, sums and smallest or greatest
numbers go by two stacks (runtime.kernels.sliding), every other kind combines all pieces of each window: size / advance
steps per window, but no more per tuple. The entries are those of groups without late tuples, in their order, and what
is combined is the same from left to right; so partials are those that laying out gives.

optimizer.model.combining says when it pays: for windows that overlap enough, and kinds whose partials have a constant
size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from runtime.aggregates.components import Component
from runtime.aggregates.partials import concat
from runtime.aggregates.sliding import Cells, has_kernel, slide
from runtime.aggregates.states import State, fold
from runtime.kernels.expand import unroll
from runtime.operators.closing import offsets_of

I64 = npt.NDArray[np.int64]

PIECES = 1 << 22
"""(Piece, window) pairs laid out at a time, for kinds that have no kernel; a single window is never cut."""

WINDOWS = 1 << 20
"""Windows that are combined at a time: as many as the largest window has tuples, so few are folded twice."""


class Pieces(NamedTuple):
    """`edges`: piece i is [edges[i], edges[i + 1]) of a sequence of entries; window w has the pieces [first[w],
    end[w])."""

    edges: I64
    first: I64
    end: I64


def cut(begin: I64, end: I64) -> Pieces:
    """At the edges of these windows, which ascend and are not empty."""
    edges = np.unique(np.concatenate([begin, end]))
    return Pieces(edges, np.searchsorted(edges, begin), np.searchsorted(edges, end))


def combined(states: Callable[[Component], State], ordered: I64, pieces: Pieces) -> Callable[[Component], State]:
    """The partials of all windows. `ordered`: which entry of a state stands at each place of the sequence."""
    edges, first, end = pieces
    order = ordered[edges[0] : edges[-1]].astype(np.int32)
    count = len(edges) - 1
    cells = Cells(np.arange(count), np.zeros(count, np.int64), (count, 1))
    longest = int((end - first).max())

    @cache
    def of(component: Component) -> State:
        state = fold(component, states(component), order, edges - edges[0])
        if has_kernel(component, state, longest):
            return slide(component, state, cells, first, end, "stacks")[0]
        return concat([_laid_out(component, state, first[at], end[at]) for at in _parts(len(first), longest)])

    return of


def _parts(windows: int, longest: int) -> Iterator[slice]:
    step = max(1, PIECES // longest)
    return (slice(at, at + step) for at in range(0, windows, step))


def _laid_out(component: Component, state: State, first: I64, end: I64) -> State:
    _, places = unroll(first, end)
    return fold(component, state, places.astype(np.int32), offsets_of(end - first))
