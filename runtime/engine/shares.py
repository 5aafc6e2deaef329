"""Whose time an epoch took: the seconds of its tasks, divided among queries.

A task works for all its queries at once, so their shares are estimates. Where work is measured
(runtime.operators.pace), because somebody has a budget that needs it, the time of a task is divided by work: a query
whose conditions leave no row of a million does not hide behind those that get rows. Else it is divided by rows. Time
of a task that did nothing for anybody is nobody's. The time in which rows of one stream are made, and windows are
closed, is divided by rows; reading and folding, which queries share, is nobody's.
"""

from __future__ import annotations

from collections.abc import Iterable

from runtime.operators.close import CloseReport
from runtime.operators.join import JoinReport
from runtime.operators.source import SourceReport
from runtime.results.segment import Delivered


def seconds_by_query(
    joins: Iterable[JoinReport], sources: Iterable[SourceReport], closed: Iterable[CloseReport]
) -> dict[str, float]:
    out: dict[str, float] = {}
    shares = [(r.join_seconds + r.sink_seconds, r.work or _rows(r.delivered)) for r in joins]
    shares += [(r.row_seconds, _rows(r.delivered)) for r in sources]
    shares += [(r.seconds, _rows(r.delivered)) for r in closed]
    for spent, by_query in shares:
        total = sum(by_query.values())
        for uid, share in by_query.items():
            if total:
                out[uid] = out.get(uid, 0.0) + spent * share / total
    return out


def _rows(delivered: Delivered | None) -> dict[str, int]:
    return {} if delivered is None else {uid: contents.rows for uid, contents in delivered.queries.items()}


def work_by_query(reports: Iterable[JoinReport]) -> dict[str, int]:
    out: dict[str, int] = {}
    for report in reports:
        for uid, work in report.work.items():
            out[uid] = out.get(uid, 0) + work
    return out
