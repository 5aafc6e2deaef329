"""Whose time an epoch took: the seconds of its join tasks, divided among queries.

A task works for all its queries at once, so their shares are estimates. Where work is measured
(runtime.operators.pace), because somebody has a budget that needs it, the time of a task is divided by work: a query
whose conditions leave no row of a million does not hide behind those that get rows. Else it is divided by rows. Time
of a task that did nothing for anybody is nobody's.
"""

from __future__ import annotations

from collections.abc import Iterable

from runtime.operators.join import JoinReport


def seconds_by_query(reports: Iterable[JoinReport]) -> dict[str, float]:
    out: dict[str, float] = {}
    for report in reports:
        spent = report.join_seconds + report.sink_seconds
        rows = {uid: c.rows for uid, c in report.delivered.queries.items()} if report.delivered else {}
        shares = report.work or rows
        total = sum(shares.values())
        for uid, share in shares.items():
            if total:
                out[uid] = out.get(uid, 0.0) + spent * share / total
    return out


def work_by_query(reports: Iterable[JoinReport]) -> dict[str, int]:
    out: dict[str, int] = {}
    for report in reports:
        for uid, work in report.work.items():
            out[uid] = out.get(uid, 0) + work
    return out
