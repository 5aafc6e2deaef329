"""What a COUNT(*) query delivers, epoch by epoch.

    after every epoch, for every window of the query with at least one combination so far
        not delivered yet and end <= watermark   ->  the number, revision 0
        delivered before, and new combinations   ->  the number, revision one higher

At the end of a scenario all watermarks go to infinity, which delivers what is still open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from optimizer.model.expressions import CountAll, WindowBound
from optimizer.model.query import JoinQuery
from tests.oracle.rows import ResultRow, freeze

REVISION = "revision"
"""A row of a COUNT(*) query is frozen together with its revision, under this name."""


def count_rows(
    query: JoinQuery,
    arrivals: Mapping[int, Counter[tuple[int, int]]],
    watermarks: Mapping[int, int | None],
    flushed: bool,
) -> Counter[ResultRow]:
    """`arrivals`: new combinations per epoch and window; `watermarks`: the query's, as each epoch left it."""
    rows: Counter[ResultRow] = Counter()
    so_far: Counter[tuple[int, int]] = Counter()
    delivered: Counter[tuple[int, int]] = Counter()

    def deliver(window: tuple[int, int]) -> None:
        row = {o.name: _value(o.expr, window, so_far[window]) for o in query.outputs}
        rows[freeze(*window, {**row, REVISION: delivered[window]})] += 1
        delivered[window] += 1

    for epoch, watermark in sorted(watermarks.items()):
        new = arrivals.get(epoch, Counter())
        so_far += new
        for window in list(so_far):
            if delivered[window]:
                if new[window]:
                    deliver(window)
            elif watermark is not None and window[1] <= watermark:
                deliver(window)
    for window in list(so_far):
        if flushed and not delivered[window]:
            deliver(window)
    return rows


def _value(expr: object, window: tuple[int, int], count: int) -> int:
    if isinstance(expr, CountAll):
        return count
    assert isinstance(expr, WindowBound), "only the window's bounds stand beside COUNT(*)"
    return window[0] if expr.which == "window_start" else window[1]
