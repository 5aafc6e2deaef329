"""What a query may take: of an epoch, of the retention, of the state; and what happens when that is not enough.

A query's budget is fixed when it is created. Before an epoch, everything it says about epochs and retention becomes a
number of rows that the query may make (`allowance`, `work_allowance`): from its own work so far one knows the bytes and
the seconds of a row. Rows are counted before they are made: of a thousand that are counted, conditions may leave one.
The join stops at that number (runtime.operators.pace). What then happens is the query's choice:

    pause     the rest is postponed: rows come in later epochs, exact, and the query's watermark waits for them. A query
              that cannot catch up within `max_behind` epochs, or whose postponed work keeps more than its state budget,
              is suspended.
    sample    the rest is left out, and the query's record says in which windows rows may be missing.
    fail      the query is suspended at once.

Only joins can make many rows of few tuples. A query over one stream makes at most a row per tuple and window, and so
does a window that closes: such rows are made at once, and what is more than the budget is a *debt*, counted in epochs
of the budget. Epochs that take less pay it back. So `pause` means that a query which owes more than `max_behind`
epochs is suspended, `fail` that one which owes anything is, and `sample` leaves rows out (`samples`), as in joins.

Every allowance follows from the state alone, so an epoch that is run again decides the same.

`pace` is a bound for everybody, whatever their budgets: the rows one query may make in an epoch before the others stop
waiting for it. All queries that are behind share one such portion per epoch, so however many they are, and however
much they have to do, an epoch is longer by at most about that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from optimizer.model.plan import RunningQuery
from runtime.api import AtLimit
from runtime.buckets.refs import PartialRef
from runtime.control.state import QueryRecord, State
from runtime.operators.pace import Allowances


@dataclass(frozen=True, slots=True)
class Pacing:
    """`rows`: None lets every query make all its rows at once. `max_behind`: epochs."""

    rows: int | None = None
    max_behind: int = 200


AT_ONCE = Pacing()
"""Everybody's rows in the epoch of their last tuple."""


class OverBudget(NamedTuple):
    """A query to be suspended, and why."""

    id: str
    reason: str


def allowance(record: QueryRecord, pace: int | None) -> int | None:
    """Rows that the query may make in the next epoch; None: any number."""
    budget = record.budget
    if budget.retained_bytes is not None and record.usage.retained_bytes >= budget.retained_bytes:
        return 0
    return min((limit for limit in (pace, budget.rows) if limit is not None), default=None)


def work_allowance(record: QueryRecord) -> int | None:
    """Work (`QueryRecord.work`) that is in the query's budgets of bytes and seconds for the next epoch, by what its
    work has taken so far; None: any amount."""
    budget, known = record.budget, record.usage
    limits = []
    if record.work and budget.bytes is not None:
        limits.append(int(budget.bytes * record.work / max(known.bytes, 1)))
    if record.work and budget.seconds is not None:
        limits.append(int(budget.seconds * record.work / max(known.seconds, 1e-9)))
    return max(1, min(limits)) if limits else None


def samples(state: State) -> dict[str, int]:
    """Rows that queries which chose a sample may make in an epoch where rows are not postponed: of one stream, and of
    windows that close."""
    out: dict[str, int] = {}
    for uid, rq in state.running.items():
        record = state.queries[uid]
        if record.budget.at_limit == AtLimit.SAMPLE and makes_rows_at_once(rq):
            budget, used = record.budget, record.usage
            limits = [allowance(record, None)]
            if record.rows and budget.bytes is not None:
                limits.append(int(budget.bytes * record.rows / max(used.bytes, 1)))
            if record.rows and budget.seconds is not None:
                limits.append(int(budget.seconds * record.rows / max(used.seconds, 1e-9)))
            known = [limit for limit in limits if limit is not None]
            if known:
                out[uid] = min(known)
    return out


def makes_rows_at_once(rq: RunningQuery) -> bool:
    return rq.query.folds or len(rq.query.sources) == 1


def debt(record: QueryRecord, rows: int, size: int, seconds: float) -> float:
    """What the query owes after an epoch that made so many rows, of so many bytes, in so many seconds. `record`: with
    this epoch in it."""
    budget = record.budget
    if not makes_rows_at_once(record.query) or budget.at_limit == AtLimit.SAMPLE:
        return 0.0
    spent = [0.0]
    for used, limit in ((rows, budget.rows), (size, budget.bytes), (seconds, budget.seconds)):
        if limit is not None:
            spent.append(used / max(limit, 1e-9))
    if budget.retained_bytes is not None and record.usage.retained_bytes > budget.retained_bytes:
        spent.append(2.0)
    return max(0.0, record.debt + max(spent) - 1.0)


def _measured(state: State) -> bool:
    """Has somebody a budget for which tasks must say how much they did for whom?"""
    budgets = (state.queries[uid].budget for uid in state.running)
    return any(b.bytes is not None or b.seconds is not None for b in budgets)


def allowances(state: State, pacing: Pacing) -> Allowances:
    """Of an epoch. A query that is behind makes no new rows before it has caught up."""
    rows = {uid: 0 if uid in state.behind else allowance(state.queries[uid], pacing.rows) for uid in state.running}
    work = {uid: work_allowance(state.queries[uid]) for uid in state.running}
    return Allowances(
        {uid: most for uid, most in rows.items() if most is not None},
        {uid: most for uid, most in work.items() if most is not None},
        _measured(state),
    )


def portions(state: State, uids: Sequence[str], pacing: Pacing) -> dict[str, int]:
    """Rows that each of these queries may make of its postponed work in this epoch."""
    out: dict[str, int] = {}
    for uid in uids:
        mine = allowance(state.queries[uid], pacing.rows)
        share = None if pacing.rows is None else max(1, pacing.rows // len(uids))
        known = [n for n in (mine, share) if n is not None]
        out[uid] = min(known) if known else UNBOUNDED
    return {uid: rows for uid, rows in out.items() if rows > 0}


UNBOUNDED = 1 << 62


def can_go_on(state: State) -> bool:
    """Is there postponed work that the next epoch could do?"""
    return any(allowance(state.queries[uid], None) != 0 for uid in state.behind)


def over_budget(state: State, pacing: Pacing) -> list[OverBudget]:
    """Queries that have to be suspended now."""
    out = []
    held = state_bytes(state)
    for uid in state.running:
        reason = _reason(state, state.queries[uid], pacing, held.get(uid, 0))
        if reason:
            out.append(OverBudget(state.queries[uid].query.id, f"{OVER_BUDGET}: {reason}"))
    return out


OVER_BUDGET = "it is over its budget"
"""How the reason of such a suspension begins."""


def _reason(state: State, record: QueryRecord, pacing: Pacing, held: int) -> str:
    uid, budget, used = record.query.uid, record.budget, record.usage
    since = state.behind.get(uid)
    if since is not None:
        if budget.at_limit == AtLimit.FAIL:
            return f"in epoch {since} it had more rows than it may make, and its at_limit is fail"
        late = state.epoch - since
        if late > pacing.max_behind:
            why = f"its rows of epoch {since} are still not made, {late} epochs later (max_epochs_behind)"
            if budget.retained_bytes is not None and used.retained_bytes >= budget.retained_bytes:
                why += f"; it waits until less than {budget.retained_bytes:,} bytes of its results are kept"
            return why
    if record.debt > 0 and budget.at_limit == AtLimit.FAIL:
        return f"in epoch {state.epoch} it made more than it may, and its at_limit is fail"
    if record.debt > pacing.max_behind:
        return (
            f"it has made as many rows more than it may as {record.debt:,.0f} epochs would allow (max_epochs_behind is "
            f"{pacing.max_behind})"
        )
    if budget.state_bytes is not None and held > budget.state_bytes:
        return f"its share of the state is {held:,} bytes; {budget.state_bytes:,} are allowed"
    return ""


def state_bytes(state: State) -> dict[str, int]:
    """Per query with a budget for it: what its postponed work keeps, and its share of the open buckets, which is those
    it uses, divided by the number of queries that use them: source buckets by joins, partial buckets and blocks by the
    queries of a fold. One pass for all of them."""
    held = {uid: 0.0 for uid in state.running if state.queries[uid].budget.state_bytes is not None}
    if not held:
        return {}
    for uid in held.keys() & state.behind.keys():
        pinned = {number for p in state.postponed.values() if p.uid == uid for number in p.pins}
        held[uid] += sum(state.pins[number].bytes for number in pinned)
    streams = _sums((r.stream, r.bytes) for r in state.sources.values())
    joins = {uid: rq.query.streams for uid, rq in state.running.items() if len(rq.query.sources) > 1}
    users = Counter(stream for mine in joins.values() for stream in mine)
    folded = _sums((r.fold, r.bytes) for r in (*state.partials.values(), *_parts(state)))
    members = Counter(state.queries[uid].fold for uid in state.running)
    for uid in held:
        held[uid] += sum(streams.get(s, 0) / users[s] for s in joins.get(uid, ()))
        fold = state.queries[uid].fold
        held[uid] += folded.get(fold, 0) / members[fold]
    nodes = _sums((r.node, r.bytes) for r in state.joined.values())
    for node, uids in state.plan.nodes.items():
        for uid in uids:
            if uid in held:
                held[uid] += nodes.get(node.name, 0) / len(uids)
    return {uid: int(size) for uid, size in held.items()}


def _parts(state: State) -> Iterable[PartialRef]:
    return (part for block in state.blocks.values() for part in block.parts)


def _sums(parts: Iterable[tuple[str, int]]) -> dict[str, int]:
    out: dict[str, int] = {}
    for name, size in parts:
        out[name] = out.get(name, 0) + size
    return out
