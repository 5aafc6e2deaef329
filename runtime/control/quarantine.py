"""Which queries keep an epoch from ending: found by running the epoch without some of them.

An epoch that failed is first run again as it is: a lost machine is nobody's fault. If it fails again, it is run without
any query; if that fails too, no query is to blame and the failure stands. The same holds when more than half of the
queries would have to go: then whatever they share is broken. Otherwise one culprit is found by bisection:
among the queries in a fixed order, the shortest beginning that fails ends with one. That takes log2 n runs per culprit,
and one more to see whether the rest can run.

Nothing is committed while searching, so everybody else gets exactly the rows they would have had without the culprits.
A query that only fails together with another one is blamed alone: without it, the other one runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Runs = Callable[[Sequence[str]], bool]
"""Does the epoch end if only these queries (uids) run?"""


def find_culprits(uids: Sequence[str], runs: Runs) -> tuple[str, ...] | None:
    """Queries without which all others run; none: it was a passing failure; None: no query is to blame."""
    if runs(uids):
        return ()
    if not runs(()):
        return None
    culprits: list[str] = []
    kept = list(uids)
    while True:
        culprits.append(_last_of_shortest_failing(kept, runs))
        kept.remove(culprits[-1])
        if len(culprits) > max(1, len(uids) // 2):
            return None
        if runs(kept):
            return tuple(culprits)


def _last_of_shortest_failing(uids: Sequence[str], runs: Runs) -> str:
    """`uids` together fail, none of them does not."""
    passing, failing = 0, len(uids)
    while failing - passing > 1:
        middle = (passing + failing) // 2
        if runs(uids[:middle]):
            passing = middle
        else:
            failing = middle
    return uids[failing - 1]
