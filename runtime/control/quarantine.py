"""Which queries keep an epoch from ending: found by running the epoch without some of them.

An epoch that failed is first run again as it is: a lost machine is nobody's fault. If it fails again, it is run without
any query; if that fails too, no query is to blame, and neither are they if more than `most` would have to go. Otherwise
one culprit is found by bisection: among the queries in a fixed order, the shortest beginning that fails ends with one.
That takes log2 n runs per culprit, and one more to see whether the rest can run.

Nothing is committed while searching, so everybody else gets exactly the rows they would have had without the culprits.
A query that only fails together with another one is blamed alone: without it, the other one runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Runs = Callable[[Sequence[str]], bool]
"""Does the epoch end if only these queries (uids) run?"""


def find_culprits(uids: Sequence[str], runs: Runs, most: int) -> tuple[str, ...] | None:
    """Queries without which all others run; none: it was a passing failure; None: no query is to blame."""
    if runs(uids):
        return ()
    if not runs(()):
        return None
    culprits: list[str] = []
    kept = list(uids)
    while True:
        culprits.append(kept[shortest_failing(len(kept), lambda n: runs(kept[:n])) - 1])
        kept.remove(culprits[-1])
        if len(culprits) > most:
            return None
        if runs(kept):
            return tuple(culprits)


def shortest_failing(length: int, passes: Callable[[int], bool], known: int = 0) -> int:
    """The length of the shortest beginning that fails, of something that fails as a whole; its beginning of length
    `known` passes."""
    passing, failing = known, length
    while failing - passing > 1:
        middle = (passing + failing) // 2
        if passes(middle):
            passing = middle
        else:
            failing = middle
    return failing
